//! The upgrade: who asks, in which dialect, from where (`cable.md` §1).

use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::connection;
use super::frames::Reason;
use super::socket::Caller;
use crate::app::App;
use crate::domain::credential::Bearer;
use crate::http::rate::{self, Credential};
use crate::http::{ApiError, auth};
use crate::store::{Error, credentials};

/// The dialect spoken here.
const DIALECT: &str = "actioncable-v1-json";
/// What stock clients offer beside it, to be told that it is not spoken.
const UNSUPPORTED: &str = "actioncable-unsupported";
/// How a browser, which cannot set headers, offers its bearer.
const BEARER: &str = "nexus.bearer.";
/// How long a handshake waits for its turn at the database.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Buffers of one socket: a frame of a client is small, and what goes out is written at once.
const READ_BUFFER: usize = 1024;
const WRITE_BUFFER: usize = 4096;
/// A longer frame is not even read; between this and the limit it is read, and answered.
const UNREADABLE: usize = 4 * connection::LONGEST_FRAME;

/// Which dialect a client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offer {
    /// None: it speaks ours.
    Nothing,
    /// Ours among others.
    Ours,
    /// Only others; whether "unsupported" is one of them.
    Others { unsupported: bool },
}

/// What a handshake says.
#[derive(Debug, PartialEq, Eq)]
struct Hello<'a> {
    offer: Offer,
    /// A bearer by subprotocol.
    bearer: Option<&'a str>,
}

fn hello(headers: &HeaderMap) -> Hello<'_> {
    let offered: Vec<&str> = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|one| !one.is_empty())
        .collect();
    let offer = if offered.contains(&DIALECT) {
        Offer::Ours
    } else if offered.is_empty() {
        Offer::Nothing
    } else {
        Offer::Others {
            unsupported: offered.contains(&UNSUPPORTED),
        }
    };
    Hello {
        offer,
        bearer: offered.iter().find_map(|one| one.strip_prefix(BEARER)),
    }
}

/// Whether a page of this origin may use the bearer it holds. Only browsers send an `Origin` that
/// means anything, and they always do.
fn origin_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    headers.get(header::ORIGIN).is_none_or(|origin| {
        allowed
            .iter()
            .any(|one| one.as_bytes() == origin.as_bytes())
    })
}

fn bearer(headers: &HeaderMap, hello: &Hello<'_>, allowed: &[String]) -> Option<Bearer> {
    if headers.contains_key(header::AUTHORIZATION) {
        return auth::bearer(headers);
    }
    let text = hello.bearer?;
    origin_allowed(headers, allowed)
        .then(|| Bearer::parse(text))
        .flatten()
}

async fn caller(app: &App, bearer: &Bearer) -> Result<Option<Caller>, Error> {
    // The row's plane decides, not the letter in the token.
    if let Some(executor) = credentials::executor(&app.store, bearer).await? {
        return Ok(Some(Caller::Executor(executor)));
    }
    let member = credentials::member(&app.store, bearer).await?;
    Ok(member.map(Caller::Member))
}

/// `GET /agent_api/v1/cable`.
pub(super) async fn upgrade(State(app): State<App>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &app).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => return upgrade_required(&rejection).into_response(),
    };
    if app.draining.is_cancelled() {
        return ApiError::unavailable("draining").into_response();
    }
    let hello = hello(&parts.headers);
    let upgrade = sized(upgrade);
    if let Offer::Others { unsupported } = hello.offer {
        let upgrade = if unsupported {
            speaking(upgrade, UNSUPPORTED)
        } else {
            upgrade
        };
        return upgrade.on_upgrade(|ws| connection::close(ws, 1002));
    }
    let found = match bearer(&parts.headers, &hello, &app.config.http.cors_origins) {
        None => None,
        Some(bearer) => match charged(&app, &parts.extensions, &bearer).await {
            Ok(found) => found,
            Err(refusal) => return refusal.into_response(),
        },
    };
    let upgrade = if hello.offer == Offer::Ours {
        speaking(upgrade, DIALECT)
    } else {
        upgrade
    };
    let Some(caller) = found else {
        return upgrade.on_upgrade(|ws| connection::refuse(ws, Reason::Unauthorized));
    };
    let registry = app.cable.started(&app);
    upgrade.on_upgrade(move |ws| connection::serve(app, registry, ws, caller))
}

/// Who a bearer proves, once the handshake is charged to it.
async fn charged(
    app: &App,
    extensions: &Extensions,
    bearer: &Bearer,
) -> Result<Option<Caller>, ApiError> {
    let found = proven(app, bearer).await?;
    if let Some(caller) = &found {
        let (account, token) = match caller {
            Caller::Executor(executor) => (executor.account, executor.token_id),
            Caller::Member(member) => (member.account, member.token_id),
        };
        rate::charge(extensions, Credential::Token(account, token)).await?;
    }
    Ok(found)
}

/// Who a bearer proves. A database that is away is no refusal: the client must come back.
async fn proven(app: &App, bearer: &Bearer) -> Result<Option<Caller>, ApiError> {
    let registry = app.cable.started(app);
    let turn = tokio::time::timeout(TURN_WITHIN, registry.gate.acquire())
        .await
        .map_err(|_| ApiError::unavailable("unavailable"))?;
    let found = caller(app, bearer).await;
    drop(turn);
    Ok(found?)
}

fn sized(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_frame_size(UNREADABLE)
        .max_message_size(UNREADABLE)
}

fn speaking(mut upgrade: WebSocketUpgrade, dialect: &'static str) -> WebSocketUpgrade {
    upgrade.set_selected_protocol(HeaderValue::from_static(dialect));
    upgrade
}

fn upgrade_required(rejection: &WebSocketUpgradeRejection) -> ApiError {
    tracing::debug!(reason = %rejection, "cable: no upgrade");
    ApiError::new(
        StatusCode::UPGRADE_REQUIRED,
        "upgrade_required",
        "this resource speaks WebSocket, version 13, over HTTP/1.1",
    )
    .header(header::UPGRADE, "websocket")
    .header(header::CONNECTION, "Upgrade")
    .header(header::SEC_WEBSOCKET_VERSION, "13")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    fn offering(offer: &'static str) -> HeaderMap {
        headers(&[(header::SEC_WEBSOCKET_PROTOCOL, offer)])
    }

    #[test]
    fn ours_is_spoken_when_offered_or_when_nothing_is() {
        assert_eq!(hello(&HeaderMap::new()).offer, Offer::Nothing);
        let stock = offering("actioncable-v1-json, actioncable-unsupported");
        assert_eq!(hello(&stock).offer, Offer::Ours);
        let reversed = offering("actioncable-unsupported,actioncable-v1-json");
        assert_eq!(hello(&reversed).offer, Offer::Ours);
        let others = offering("graphql-ws, actioncable-unsupported");
        assert_eq!(hello(&others).offer, Offer::Others { unsupported: true });
        let alone = offering("nexus.bearer.x");
        assert_eq!(hello(&alone).offer, Offer::Others { unsupported: false });
    }

    const TOKEN: &str = "sk-nexus-m1-0123456789abcdef-0123456789abcdef0123456789abcdef0123456789a";

    #[test]
    fn a_bearer_by_subprotocol_needs_an_allowed_origin_and_one_by_header_none() {
        let allowed = ["https://app.example".to_owned()];
        let offer = "actioncable-v1-json, nexus.bearer.sk-nexus-m1-0123456789abcdef-0123456789abcdef0123456789abcdef0123456789a";
        let found = |headers: &HeaderMap| bearer(headers, &hello(headers), &allowed);
        let proto = (header::SEC_WEBSOCKET_PROTOCOL, offer);
        assert_eq!(
            found(&headers(&[
                proto.clone(),
                (header::ORIGIN, "https://app.example")
            ])),
            Bearer::parse(TOKEN)
        );
        assert!(found(&headers(std::slice::from_ref(&proto))).is_some());
        assert!(
            found(&headers(&[
                proto.clone(),
                (header::ORIGIN, "https://evil.example")
            ]))
            .is_none()
        );
        let by_header = (
            header::AUTHORIZATION,
            "Bearer sk-nexus-m1-0123456789abcdef-0123456789abcdef0123456789abcdef0123456789a",
        );
        assert!(
            found(&headers(&[
                by_header,
                (header::ORIGIN, "https://evil.example")
            ]))
            .is_some()
        );
        // A bad header is not made good by a subprotocol.
        let bad = (header::AUTHORIZATION, "Bearer nonsense");
        assert!(found(&headers(&[bad, proto])).is_none());
    }
}
