use axum::Router;
use axum::extract::Path;
use axum::http::HeaderName;
use axum::routing::{get, post};
use futures_util::stream;
use tower::ServiceExt as _;

use super::*;

fn limits() -> Limits {
    Limits {
        url: 64,
        headers: 128,
        body: Duration::from_millis(50),
        upload: Duration::from_millis(400),
        handler: Duration::from_millis(150),
    }
}

fn router(draining: &CancellationToken) -> Router {
    Router::new()
        .route("/quick/{id}", get(async |Path(id): Path<String>| id))
        .route("/slow", get(std::future::pending::<()>))
        .route(
            "/panics",
            get(async || -> &'static str { panic!("a secret detail") }),
        )
        .route(
            "/reads",
            post(async |body: Bytes| format!("{}", body.len())),
        )
        .route("/keeps", post(keeps))
        .layer(axum::middleware::from_fn_with_state(
            Guard::with_limits(limits(), draining.clone()),
            layer,
        ))
        .layer(axum::middleware::from_fn(request_id::layer))
}

/// Neither reads its body nor lets go of it.
async fn keeps(request: Request) -> &'static str {
    std::future::pending::<()>().await;
    drop(request);
    "never"
}

fn request(method: &str, uri: &str, body: Body) -> axum::http::request::Request<Body> {
    Request::builder()
        .method(method)
        .uri(uri)
        .body(body)
        .unwrap()
}

async fn answered(request: Request) -> (StatusCode, HeaderMap, String) {
    let draining = CancellationToken::new();
    answered_by(router(&draining), request).await
}

async fn answered_by(router: Router, request: Request) -> (StatusCode, HeaderMap, String) {
    let response = router.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    (parts.status, parts.headers, text)
}

fn trickle(pieces: usize, every: Duration) -> Body {
    Body::from_stream(stream::unfold(0, move |n| async move {
        if n == pieces {
            return None;
        }
        tokio::time::sleep(every).await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), n + 1))
    }))
}

#[tokio::test]
async fn a_handler_that_panics_is_answered_500_without_detail() {
    let (status, headers, text) = answered(request("GET", "/panics", Body::empty())).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        text.contains("internal_error") && !text.contains("secret"),
        "{text}"
    );
    // The envelope carries the id that the header carries.
    let id = headers[&HeaderName::from_static("x-request-id")]
        .to_str()
        .unwrap();
    assert!(text.contains(id), "{text}");
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_answered_503() {
    let (status, headers, text) = answered(request("GET", "/slow", Body::empty())).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("unavailable"), "{text}");
    assert_eq!(headers[header::RETRY_AFTER], "1");
    let body = trickle(1, Duration::ZERO);
    let (status, ..) = answered(request("POST", "/keeps", body)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_answered_408() {
    let body = trickle(100, Duration::from_millis(10));
    let (status, headers, text) = answered(request("POST", "/reads", body)).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT, "{text}");
    assert!(text.contains("request_timeout"), "{text}");
    assert_eq!(headers[header::CONNECTION], "close");
}

#[tokio::test]
async fn an_upload_may_take_longer_than_other_bodies_and_than_a_handler() {
    let mut upload = request("POST", "/reads", trickle(20, Duration::from_millis(10)));
    upload.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("multipart/form-data; boundary=x"),
    );
    let (status, _, text) = answered(upload).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "20"));
}

#[tokio::test]
async fn what_is_too_long_is_refused_in_words() {
    let uri = format!("/quick/{}", "a".repeat(64));
    let (status, _, text) = answered(request("GET", &uri, Body::empty())).await;
    assert_eq!(status, StatusCode::URI_TOO_LONG);
    assert!(text.contains("at most 64 bytes"), "{text}");
    let mut long = request("GET", "/quick/1", Body::empty());
    let value = HeaderValue::from_str(&"a".repeat(128)).unwrap();
    long.headers_mut().insert("x-much", value);
    let (status, _, text) = answered(long).await;
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert!(text.contains("at most 128 bytes"), "{text}");
}

#[tokio::test]
async fn while_draining_answers_close_and_upgrades_are_refused() {
    let draining = CancellationToken::new();
    let quick = || request("GET", "/quick/1", Body::empty());
    let (status, headers, _) = answered_by(router(&draining), quick()).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!headers.contains_key(header::CONNECTION));
    draining.cancel();
    let (status, headers, _) = answered_by(router(&draining), quick()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers[header::CONNECTION], "close");
    let mut upgrade = quick();
    upgrade
        .headers_mut()
        .insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    let (status, _, text) = answered_by(router(&draining), upgrade).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("\"draining\""), "{text}");
}

#[tokio::test]
async fn measurements_name_the_route_template_and_no_id() {
    let handle = telemetry::metrics();
    let (status, ..) = answered(request("GET", "/quick/0199c0de", Body::empty())).await;
    assert_eq!(status, StatusCode::OK);
    answered(request("BREW", "/teapot/0199c0de", Body::empty())).await;
    let text = handle.render();
    assert!(text.contains("route=\"/quick/{id}\""), "{text}");
    assert!(
        text.contains("method=\"other\",route=\"unmatched\""),
        "{text}"
    );
    assert!(!text.contains("0199c0de"), "{text}");
}

#[test]
fn planes_follow_the_path() {
    assert_eq!(plane("/operator_api/v1/sweeper"), "operator");
    assert_eq!(plane("/agent_api/v1/executor/inbox"), "executor_transport");
    assert_eq!(plane("/agent_api/v1/runs/{run}"), "member");
    assert_eq!(plane("/livez"), "none");
}
