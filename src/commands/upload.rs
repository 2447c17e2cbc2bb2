//! Upload: a capture is staged (`executor.md` §13).
//!
//! Its row comes first, then its bytes, then the digest that makes it whole; whatever ends this
//! before the digest takes bytes and row away again, and what a crash leaves is an unbound row that
//! the sweep reclaims. No connection and no lock is held while bytes arrive.

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use sha2::{Digest as _, Sha256};

use super::Error;
use crate::app::App;
use crate::blobs::Writer;
use crate::domain::media;
use crate::store::credentials::ExecutorCaller;
use crate::store::uploads::{BlobRef, Upload, Whole};

/// The most bytes of one file.
pub const MAX_UPLOAD: u64 = 100 * 1024 * 1024;

/// Why an upload is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too large.
    #[error("a file may have at most {MAX_UPLOAD} bytes")]
    TooLarge,
    /// The bytes broke off, or were no file: says how.
    #[error("the file could not be read: {0}")]
    Broken(String),
}

impl Refusal {
    /// The word clients branch on.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge => "content_too_large",
            Self::Broken(_) => "bad_request",
        }
    }
}

/// Stages a capture of this executor: the bytes as they arrive, an item that is an error ends them.
/// Run it to its end ([`super::to_the_end`]): a dropped future leaves what it has written to the
/// sweep.
///
/// # Errors
/// [`Refusal`], or a fault; then nothing is left behind.
pub async fn stage<S>(
    app: &App,
    caller: &ExecutorCaller,
    claimed_name: &str,
    bytes: S,
) -> Result<Upload, Error<Refusal>>
where
    S: Stream<Item = Result<Bytes, String>> + Send + Unpin,
{
    let public_id = app.mint().public_id(app.store.now().await?);
    let blob = app
        .store
        .upload_begin(caller.account, caller.id, public_id, app.blobs.place())
        .await?;
    match receive(app, &blob, claimed_name, bytes).await {
        Ok(upload) => Ok(upload),
        Err((writer, error)) => {
            forget(app, &blob, writer).await;
            Err(error)
        }
    }
}

type Failed = (Option<Writer>, Error<Refusal>);

/// Writes all bytes and makes the file whole; on a failure also gives back what is to be aborted.
async fn receive<S>(
    app: &App,
    blob: &BlobRef,
    claimed_name: &str,
    bytes: S,
) -> Result<Upload, Failed>
where
    S: Stream<Item = Result<Bytes, String>> + Send + Unpin,
{
    let mut writer = match app.blobs.writer(blob) {
        Ok(writer) => writer,
        Err(fault) => return Err((None, fault.into())),
    };
    let outcome = async {
        let whole = copy(&mut writer, claimed_name, bytes).await?;
        let upload = app.store.upload_complete(blob, &whole).await?;
        upload.ok_or_else(|| {
            let gone = "the sweep took the row of a file that was still arriving";
            Error::Fault(crate::store::Error::Unavailable(gone.into()))
        })
    };
    match outcome.await {
        Ok(upload) => Ok(upload),
        Err(error) => Err((Some(writer), error)),
    }
}

async fn copy<S>(
    writer: &mut Writer,
    claimed_name: &str,
    mut bytes: S,
) -> Result<Whole, Error<Refusal>>
where
    S: Stream<Item = Result<Bytes, String>> + Send + Unpin,
{
    let mut head = Vec::with_capacity(media::HEAD_BYTES);
    let mut sha256 = Sha256::new();
    let mut byte_size: u64 = 0;
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|how| Error::Refused(Refusal::Broken(how)))?;
        byte_size += piece.len() as u64;
        if byte_size > MAX_UPLOAD {
            return Err(Error::Refused(Refusal::TooLarge));
        }
        let lacks = media::HEAD_BYTES - head.len();
        head.extend_from_slice(&piece[..lacks.min(piece.len())]);
        sha256.update(&piece);
        writer.write(piece).await?;
    }
    writer.finish().await?;
    Ok(Whole {
        filename: media::filename(claimed_name, &head),
        content_type: media::detect(&head),
        byte_size,
        sha256: sha256.finalize().into(),
    })
}

/// Takes away a file that is marked as reclaimed: bytes first, so that no bytes are without a row.
/// Repeatable, from wherever an earlier try ended.
///
/// # Errors
/// A fault; the row stays, and with it the mark.
pub async fn reclaim(app: &App, blob: &BlobRef) -> Result<(), crate::store::Error> {
    app.blobs.delete(blob).await?;
    app.store.upload_reclaimed(blob).await
}

/// Takes away what was begun: bytes first, so that no bytes are without a row.
async fn forget(app: &App, blob: &BlobRef, writer: Option<Writer>) {
    let forgetting = async {
        if let Some(writer) = writer {
            writer.abort().await?;
        }
        app.store.upload_forget(blob).await
    };
    if let Err(fault) = forgetting.await {
        tracing::warn!(%fault, "an upload that broke off is left to the sweep");
    }
}
