//! The upload door: one part `upload[file]` of a multipart body, streamed (`executor.md` §13).
//!
//! The body's time-out is the uploads' (`http::guard` gives it to every multipart body); its bound is
//! the file's, counted by the command, and a larger one around everything, below.

use axum::Router;
use axum::body::Body as RawBody;
use axum::extract::multipart::{Field, Multipart, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use futures_util::stream;
use serde::Serialize;

use crate::app::App;
use crate::commands::upload::{self, MAX_UPLOAD, Refusal};
use crate::commands::{Error, to_the_end};
use crate::http::answer::Answer;
use crate::http::auth::ExecutorCaller;
use crate::http::error::ApiError;
use crate::http::refusals::Refused as _;
use crate::store::uploads::Upload;

/// The part that is the file.
const PART: &str = "upload[file]";
/// The most bytes of a body that are read at all: what is too large is still taken in up to here,
/// since a client that is answered while it sends often sees a broken connection instead.
const MAX_READ: u64 = 2 * MAX_UPLOAD;

/// Its routes.
pub fn routes() -> Router<App> {
    Router::new().route(
        "/agent_api/v1/executor/uploads",
        post(stage).layer(DefaultBodyLimit::disable()),
    )
}

/// An upload as the doors wrap it.
#[derive(Debug, Serialize)]
pub(super) struct Wrapped {
    pub(super) upload: Upload,
}

async fn stage(
    caller: ExecutorCaller,
    State(app): State<App>,
    request: Request,
) -> Result<Answer<Wrapped>, ApiError> {
    refuse_by_headers(request.headers())?;
    let Some(mut multipart) = multipart(request).await? else {
        return Err(ApiError::parameter_missing(PART));
    };
    // In a task of its own: a client that hangs up ends the body with an error, and the command
    // takes away what it had written.
    let staging = to_the_end(async move {
        let staged = receive(&app, &caller, &mut multipart).await;
        read_out(&mut multipart).await;
        match staged {
            Ok(upload) => Ok(upload),
            Err(error) => Err(Error::Refused(error)),
        }
    });
    match staging.await {
        Ok(upload) => Ok(Answer(StatusCode::CREATED, Wrapped { upload })),
        Err(Error::Refused(error)) => Err(error),
        Err(Error::Fault(fault)) => Err(fault.into()),
    }
}

/// What the headers alone tell: encoded, of another type, hopelessly large.
fn refuse_by_headers(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or_default());
    if text(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let sentence = "compressed bodies are not read; send them plain";
        return Err(unsupported(sentence));
    }
    let length: Option<u64> = text(header::CONTENT_LENGTH).and_then(|n| n.parse().ok());
    if length.is_some_and(|n| n > MAX_READ) {
        return Err(Refusal::TooLarge.answer());
    }
    Ok(())
}

fn unsupported(sentence: &str) -> ApiError {
    ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        sentence,
    )
}

/// The body as parts; none when there is no body of any type.
async fn multipart(request: Request) -> Result<Option<Multipart>, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.map(|v| v.to_str().unwrap_or_default().to_ascii_lowercase());
    match kind {
        None if http_body::Body::is_end_stream(request.body()) => return Ok(None),
        Some(kind) if kind.starts_with("multipart/form-data") => {}
        _ => {
            let takes = "Content-Type must be multipart/form-data";
            return Err(unsupported(takes));
        }
    }
    let request = request.map(bounded);
    Multipart::from_request(request, &())
        .await
        .map(Some)
        .map_err(|_| ApiError::bad_request("Content-Type must name the boundary of the parts"))
}

/// A body that fails once it is longer than is ever read.
fn bounded(body: RawBody) -> RawBody {
    use futures_util::StreamExt as _;
    let mut left = MAX_READ;
    RawBody::from_stream(body.into_data_stream().map(move |piece| {
        let piece = piece?;
        left = left.checked_sub(piece.len() as u64).ok_or_else(|| {
            let sentence = "the body is longer than is ever read";
            axum::Error::new(std::io::Error::other(sentence))
        })?;
        Ok::<_, axum::Error>(piece)
    }))
}

async fn receive(
    app: &App,
    caller: &ExecutorCaller,
    multipart: &mut Multipart,
) -> Result<Upload, ApiError> {
    loop {
        let field = multipart.next_field().await.map_err(unreadable)?;
        let Some(field) = field else {
            return Err(ApiError::parameter_missing(PART));
        };
        if field.name() != Some(PART) {
            continue; // dropped unread: what is left of it is skipped
        }
        let Some(name) = field.file_name().filter(|name| !name.is_empty()) else {
            let takes = format!("{PART} must be a file: a part with a filename");
            return Err(ApiError::parameter_invalid(PART, takes));
        };
        let name = name.to_owned();
        let pieces = Box::pin(pieces(field));
        return Ok(upload::stage(app, caller, &name, pieces).await?);
    }
}

fn unreadable(error: MultipartError) -> ApiError {
    ApiError::bad_request(format!(
        "the parts could not be read: {}",
        error.body_text()
    ))
}

fn pieces(field: Field<'_>) -> impl futures_util::Stream<Item = Result<bytes::Bytes, String>> {
    stream::unfold(field, |mut field| async move {
        match field.chunk().await {
            Ok(Some(piece)) => Some((Ok(piece), field)),
            Ok(None) => None,
            Err(error) => Some((Err(error.body_text()), field)),
        }
    })
}

/// Takes in what follows, so that the client has sent everything before it is answered. Ends at the
/// bound of the body and at its time-out.
async fn read_out(multipart: &mut Multipart) {
    while let Ok(Some(_)) = multipart.next_field().await {}
}
