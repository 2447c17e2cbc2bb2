//! Rate limits (`conventions.md` §9): who asked how often in this minute, by family of resources.
//!
//! Every request is charged to its address (a hundred times the family's budget) and to its
//! credential, both in one round trip to Redis, behind the authentication that names the
//! credential. A request that proved nobody is charged to its address alone, once it is answered.
//! An address that is over its budget is remembered here until its window ends, and refused before
//! anything is read.
//!
//! Knows families and budgets. Does not know: tokens (a credential is an id), what a request does.
//!
//! Invariants:
//! - a request that is refused here has had no effect;
//! - at most one round trip to Redis and none to the database; with Redis away each replica counts
//!   by itself, and nobody is refused for that.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use super::error::ApiError;
use crate::app::App;
use crate::bus::{Bus, Charge};
use crate::config::RateLimits;
use crate::domain::AccountId;

/// How long a window lasts; it begins with its first request.
const WINDOW: Duration = Duration::from_secs(60);
/// What an address may do, in budgets of one credential.
const ADDRESS_BUDGETS: u64 = 100;

static LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Who is charged, behind the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// A member's or an executor's token.
    Token(AccountId, i64),
    /// An operator's token; none is the bootstrap bearer.
    Operator(Option<i64>),
}

impl std::fmt::Display for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token(account, token) => write!(f, "token:{}:{token}", account.0),
            Self::Operator(Some(token)) => write!(f, "operator:{token}"),
            Self::Operator(None) => f.write_str("operator:bootstrap"),
        }
    }
}

/// The state of [`layer`].
#[derive(Debug, Clone)]
pub struct Limiter(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    bus: Bus,
    limits: Option<RateLimits>,
    /// Addresses that are over their budget, until when.
    refused: Mutex<HashMap<String, Instant>>,
}

impl Limiter {
    /// The configured budgets, counted over this replica's bus.
    pub fn new(app: &App) -> Self {
        Self(Arc::new(Parts {
            bus: app.bus.clone(),
            limits: app.config.http.rate_limits.clone(),
            refused: Mutex::default(),
        }))
    }

    fn meter(&self, request: &Request) -> Option<Meter> {
        let limits = self.0.limits.as_ref()?;
        let route = request.extensions().get::<MatchedPath>();
        let route = route.map_or_else(|| request.uri().path(), MatchedPath::as_str);
        let family = family(request.method(), route)?;
        let address = request
            .extensions()
            .get::<ConnectInfo<SocketAddr>>()
            .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
        Some(Meter(Arc::new(Metered {
            limiter: self.clone(),
            family,
            budget: limits.budget(family),
            address: format!("{family}:address:{}", address.to_canonical()),
            standing: OnceLock::new(),
        })))
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.0
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, address: &str, standing: Standing) {
        let now = Instant::now();
        let mut refused = self.refused();
        refused.retain(|_, until| *until > now);
        refused.insert(address.to_owned(), now + standing.charge.resets_in);
    }

    /// How long an address is refused yet.
    fn refuses(&self, address: &str) -> Option<Duration> {
        let until = *self.refused().get(address)?;
        until
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }
}

/// The family of a request; none for what is not counted: health.
fn family(method: &Method, route: &str) -> Option<&'static str> {
    const CLAIM: &str = "/agent_api/v1/executor/inbox/{run}/{task}/claim";
    if matches!(route, "/livez" | "/readyz") {
        return None;
    }
    if route.starts_with("/operator_api/") {
        return Some("operator");
    }
    let rest = match route.strip_prefix("/agent_api/v1/") {
        None => return Some(RateLimits::DEFAULT),
        Some(rest) => rest,
    };
    if route == CLAIM && matches!(*method, Method::GET | Method::HEAD) {
        return Some("claim_status");
    }
    if rest == "executor/progress" {
        return Some("progress");
    }
    if rest.ends_with("/thumbnail") || rest.ends_with("/preview") {
        return Some("preview");
    }
    let mut segments = rest.split('/');
    let first = segments.next().unwrap_or_default();
    // What is in a workspace is a resource of its own: `workspaces/{workspace}/runs/…`.
    let resource = match first {
        "workspaces" => segments.nth(1).unwrap_or(first),
        _ => first,
    };
    Some(RateLimits::family(resource).unwrap_or(RateLimits::DEFAULT))
}

/// How much of a budget is used.
#[derive(Debug, Clone, Copy)]
struct Standing {
    limit: u64,
    charge: Charge,
}

impl Standing {
    fn is_over(&self) -> bool {
        self.charge.count > self.limit
    }

    /// Whole seconds to the end of the window, rounded up: a client that waits so long is served.
    fn resets_in(&self) -> u64 {
        let left = self.charge.resets_in;
        (left.as_secs() + u64::from(left.subsec_nanos() > 0)).max(1)
    }

    fn refusal(&self) -> ApiError {
        let mut refusal = ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "too many requests; try again when Retry-After is over",
        );
        let seconds = HeaderValue::from(self.resets_in());
        refusal.headers.push((header::RETRY_AFTER, seconds));
        refusal
    }

    fn show(&self, headers: &mut HeaderMap) {
        let remaining = self.limit.saturating_sub(self.charge.count);
        headers.insert(LIMIT.clone(), self.limit.into());
        headers.insert(REMAINING.clone(), remaining.into());
        headers.insert(RESET.clone(), self.resets_in().into());
    }
}

/// What one request is charged to; an extension of the request.
#[derive(Debug, Clone)]
struct Meter(Arc<Metered>);

#[derive(Debug)]
struct Metered {
    limiter: Limiter,
    family: &'static str,
    budget: u64,
    /// The counter of the address.
    address: String,
    /// Once charged.
    standing: OnceLock<Standing>,
}

impl Meter {
    /// Charges, unless that has happened.
    async fn charge(&self, credential: Option<Credential>) -> Standing {
        let metered = &self.0;
        if let Some(standing) = metered.standing.get() {
            return *standing;
        }
        let standing = self.count(credential).await;
        *metered.standing.get_or_init(|| standing)
    }

    async fn count(&self, credential: Option<Credential>) -> Standing {
        let metered = &self.0;
        let bus = &metered.limiter.0.bus;
        let of_address = |charge| Standing {
            limit: metered.budget.saturating_mul(ADDRESS_BUDGETS),
            charge,
        };
        let address = metered.address.as_str();
        let (address, credential) = match credential {
            None => {
                let [address] = bus.charge([address], WINDOW).await;
                (of_address(address), None)
            }
            Some(credential) => {
                let key = format!("{}:{credential}", metered.family);
                let [address, charge] = bus.charge([address, &key], WINDOW).await;
                let limit = metered.budget;
                (of_address(address), Some(Standing { limit, charge }))
            }
        };
        if address.is_over() {
            metered.limiter.refuse(&metered.address, address);
            return address;
        }
        credential.unwrap_or(address)
    }

    /// The standing of an address that is known to be over its budget.
    fn refused(&self) -> Option<Standing> {
        let metered = &self.0;
        let resets_in = metered.limiter.refuses(&metered.address)?;
        let limit = metered.budget.saturating_mul(ADDRESS_BUDGETS);
        let count = limit.saturating_add(1);
        Some(Standing {
            limit,
            charge: Charge { count, resets_in },
        })
    }
}

/// The layer: within the guard, around everything that may authenticate.
pub async fn layer(State(limiter): State<Limiter>, mut request: Request, next: Next) -> Response {
    let Some(meter) = limiter.meter(&request) else {
        return next.run(request).await;
    };
    let (mut response, standing) = match meter.refused() {
        Some(standing) => (standing.refusal().into_response(), standing),
        None => {
            request.extensions_mut().insert(meter.clone());
            let response = next.run(request).await;
            // Whoever proved nobody is charged now.
            (response, meter.charge(None).await)
        }
    };
    if standing.is_over() && response.status() != StatusCode::TOO_MANY_REQUESTS {
        response = standing.refusal().into_response();
    }
    standing.show(response.headers_mut());
    response
}

/// Charges a request to the credential that it proved, and to its address.
///
/// # Errors
/// 429 `rate_limited`.
pub async fn charge(extensions: &Extensions, credential: Credential) -> Result<(), ApiError> {
    let Some(meter) = extensions.get::<Meter>() else {
        return Ok(());
    };
    let standing = meter.charge(Some(credential)).await;
    if standing.is_over() {
        Err(standing.refusal())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_a_kind_of_resource() {
        for (method, route, named) in [
            (Method::GET, "/livez", None),
            (Method::GET, "/readyz", None),
            (Method::GET, "/openapi.json", Some("default")),
            (Method::GET, "/operator_api/v1/accounts", Some("operator")),
            (Method::GET, "/agent_api/v1/executor", Some("executor")),
            (
                Method::GET,
                "/agent_api/v1/executor/inbox",
                Some("executor"),
            ),
            (
                Method::POST,
                "/agent_api/v1/executor/inbox/{run}/{task}/claim",
                Some("executor"),
            ),
            (
                Method::GET,
                "/agent_api/v1/executor/inbox/{run}/{task}/claim",
                Some("claim_status"),
            ),
            (
                Method::POST,
                "/agent_api/v1/executor/progress",
                Some("progress"),
            ),
            (Method::GET, "/agent_api/v1/executors", Some("executors")),
            (Method::GET, "/agent_api/v1/workspaces", Some("workspaces")),
            (
                Method::GET,
                "/agent_api/v1/workspaces/{workspace}",
                Some("workspaces"),
            ),
            (
                Method::POST,
                "/agent_api/v1/workspaces/{workspace}/runs/{run}/start",
                Some("runs"),
            ),
            (
                Method::GET,
                "/agent_api/v1/workspaces/{workspace}/uploads/{upload}/preview",
                Some("preview"),
            ),
            (Method::GET, "/agent_api/v1/cable", Some("cable")),
            (Method::GET, "/agent_api/v1/anything", Some("default")),
            (Method::GET, "/", Some("default")),
        ] {
            assert_eq!(family(&method, route), named, "{method} {route}");
        }
    }

    #[test]
    fn a_wait_is_whole_seconds_and_long_enough() {
        let standing = |millis| Standing {
            limit: 1,
            charge: Charge {
                count: 2,
                resets_in: Duration::from_millis(millis),
            },
        };
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(standing(millis).resets_in(), seconds);
        }
    }

    #[test]
    fn keys_hold_ids() {
        assert_eq!(
            Credential::Token(AccountId(3), 14).to_string(),
            "token:3:14"
        );
        assert_eq!(Credential::Operator(Some(15)).to_string(), "operator:15");
        let bootstrap = Credential::Operator(None).to_string();
        assert_eq!(bootstrap, "operator:bootstrap");
    }
}
