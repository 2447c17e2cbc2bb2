//! `Accept`: an API that answers JSON says so to a client that excludes it (`conventions.md` §4,
//! 406) before anything happens.
//!
//! Doors that serve bytes judge for themselves, and an upgrade has no body to accept.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;

/// Refuses a request whose `Accept` excludes JSON.
pub async fn layer(request: Request, next: Next) -> Response {
    let serves_bytes = request.uri().path().ends_with("/bytes");
    let upgrades = request.headers().contains_key(header::UPGRADE);
    if serves_bytes || upgrades || accepts_json(request.headers()) {
        return next.run(request).await;
    }
    ApiError::new(
        StatusCode::NOT_ACCEPTABLE,
        "not_acceptable",
        "answers are application/json; Accept must allow it",
    )
    .into_response()
}

/// Whether JSON is allowed: of the ranges that match it, the most specific one decides, and its
/// quality is not zero. No `Accept` allows everything.
fn accepts_json(headers: &HeaderMap) -> bool {
    let mut named = false;
    let mut best: Option<(u8, bool)> = None;
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            named |= !kind.is_empty();
            let specificity = match kind.as_str() {
                "application/json" => 3,
                "application/*" => 2,
                "*/*" => 1,
                _ => continue,
            };
            let allowed = !parts.any(is_quality_zero);
            if best.is_none_or(|(known, _)| specificity > known) {
                best = Some((specificity, allowed));
            }
        }
    }
    !named || best.is_some_and(|(_, allowed)| allowed)
}

fn is_quality_zero(parameter: &str) -> bool {
    parameter
        .split_once('=')
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .is_some_and(|(_, q)| q.trim().parse::<f32>().is_ok_and(|q| q == 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(values: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT, (*value).parse().unwrap());
        }
        accepts_json(&headers)
    }

    #[test]
    fn the_most_specific_range_decides() {
        for allowed in [
            &[][..],
            &[""],
            &["application/json"],
            &["text/html, */*;q=0.1"],
            &["APPLICATION/JSON; q=0.5"],
            &["application/*"],
            &["*/*;q=0, application/json"],
            &["text/html", "application/json"],
            &["application/json;charset=utf-8"],
        ] {
            assert!(accepts(allowed), "{allowed:?}");
        }
        for refused in [
            &["text/html"][..],
            &["text/*, image/png"],
            &["application/json;q=0, */*"],
            &["application/json; Q=0.000"],
            &["*/*;q=0"],
            &["application/xml"],
        ] {
            assert!(!accepts(refused), "{refused:?}");
        }
    }
}
