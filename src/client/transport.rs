//! The client itself: how one call is built, sent, repeated and read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RANGE, USER_AGENT,
};
use reqwest::{Method, multipart};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::answers::{self, Answer, EventPage, Page};
use super::error::Error;
use super::retry::{self, RetryPolicy};
use super::tls;
use crate::domain::json::{self, Value};

/// How long an ordinary call may take: the server's own bound is 30 s (`conventions.md` §3).
const CALL_TIMEOUT: Duration = Duration::from_secs(35);
/// How long a file may take.
pub(super) const FILE_TIMEOUT: Duration = Duration::from_secs(300);

/// A base URL and a bearer. Cheap to clone; clones share connections.
///
/// Proxies of the environment are not used: HTTP and cable take the same way.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Arc<str>,
    bearer: Option<HeaderValue>,
    retry: Option<RetryPolicy>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.base)
    }
}

impl Client {
    /// A client of the server at `base_url` (`http://host:port[/path]`), with `token` as bearer.
    ///
    /// # Errors
    /// [`Error::Setup`] when the URL or the token cannot be used, or TLS has no roots.
    pub fn new(base_url: &str, token: &str) -> Result<Self, Error> {
        Self::anonymous(base_url)?.with_token(token)
    }

    /// A client without a bearer: for health.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn anonymous(base_url: &str) -> Result<Self, Error> {
        let url = reqwest::Url::parse(base_url).map_err(|e| {
            Error::Setup(format!(
                "the base URL `{base_url}` is no URL ({e}): it looks like http://127.0.0.1:8080"
            ))
        })?;
        let tls = match url.scheme() {
            "http" => tls::none()?,
            "https" => tls::native()?,
            other => {
                return Err(Error::Setup(format!(
                    "the base URL `{base_url}` has scheme `{other}`: http and https are allowed"
                )));
            }
        };
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .timeout(CALL_TIMEOUT)
            .build()
            .map_err(|e| Error::Setup(format!("the HTTP client cannot be set up: {e}")))?;
        Ok(Self {
            http,
            base: base_url.trim_end_matches('/').into(),
            bearer: None,
            retry: None,
        })
    }

    /// The same server, another bearer.
    ///
    /// # Errors
    /// [`Error::Setup`] when the token is empty or no header value.
    pub fn with_token(&self, token: &str) -> Result<Self, Error> {
        let unusable =
            || Error::Setup("the token is empty or holds unusable characters".to_owned());
        if token.is_empty() {
            return Err(unusable());
        }
        let mut bearer =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| unusable())?;
        bearer.set_sensitive(true);
        Ok(Self {
            bearer: Some(bearer),
            ..self.clone()
        })
    }

    /// The same client, with permission to repeat calls that are safe to repeat: reads, announce,
    /// extend, an exact commit, and creates and claims that carry an `Idempotency-Key`.
    #[must_use]
    pub fn with_retry(&self, policy: RetryPolicy) -> Self {
        Self {
            retry: Some(policy),
            ..self.clone()
        }
    }

    /// The same client, sending every call once.
    #[must_use]
    pub fn without_retry(&self) -> Self {
        Self {
            retry: None,
            ..self.clone()
        }
    }

    /// The base URL, without a slash at its end.
    pub fn base_url(&self) -> &str {
        &self.base
    }

    /// The `Authorization` header's value (marked sensitive).
    pub(super) fn bearer(&self) -> Option<&HeaderValue> {
        self.bearer.as_ref()
    }

    /// Any call, for doors this client has no method for. `path` begins with `/` and may carry a
    /// query; it is sent once.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer<Value>, Error> {
        let mut call = Call::new(method, path.to_owned());
        if let Some(body) = body {
            call = call.json(body)?;
        }
        let raw = self.send(call).await?;
        raw.answer(|body| {
            if body.is_empty() {
                return Ok(Value::Null);
            }
            json::parse(body).map_err(|e| e.to_string())
        })
    }

    /// Sends `call`, again when it may be; answers a success or an error.
    pub(super) async fn send(&self, call: Call) -> Result<Raw, Error> {
        let first_at = Instant::now();
        let mut made = 0;
        loop {
            let outcome = self.once(&call).await;
            made += 1;
            let Err(error) = outcome else {
                return outcome;
            };
            let policy = self.retry.filter(|_| call.repeatable);
            match policy.and_then(|p| p.next_wait(&error, made, first_at.elapsed())) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    async fn once(&self, call: &Call) -> Result<Raw, Error> {
        let response = self.request(call)?.send().await;
        let response = response.map_err(|e| call.transport(e))?;
        let status = response.status();
        let headers = response.headers().clone();
        let body = response.bytes().await.map_err(|e| call.transport(e))?;
        if status.is_success() {
            return Ok(Raw {
                what: call.what(),
                status: status.as_u16(),
                headers,
                body,
            });
        }
        let wait = retry::retry_after(&headers);
        Err(Error::from_answer(status.as_u16(), wait, &body))
    }

    fn request(&self, call: &Call) -> Result<reqwest::RequestBuilder, Error> {
        let url = format!("{}{}", self.base, call.path);
        let mut request = self
            .http
            .request(call.method.clone(), url)
            .header(USER_AGENT, concat!("nexus/", env!("CARGO_PKG_VERSION")));
        if let Some(timeout) = call.timeout {
            request = request.timeout(timeout);
        }
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer.clone());
        }
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        Ok(match &call.body {
            Body::None => request,
            Body::Json(bytes) => request
                .header(CONTENT_TYPE, "application/json")
                .body(bytes.clone()),
            Body::File { filename, bytes } => {
                let part = multipart::Part::stream_with_length(
                    reqwest::Body::from(bytes.clone()),
                    bytes.len() as u64,
                )
                .file_name(filename.clone());
                request.multipart(multipart::Form::new().part("upload[file]", part))
            }
        })
    }
}

/// What a call sends.
pub(super) enum Body {
    /// Nothing.
    None,
    /// JSON, serialised once.
    Json(Bytes),
    /// One file as `upload[file]`.
    File {
        /// Its name.
        filename: String,
        /// Its bytes.
        bytes: Bytes,
    },
}

/// One call, ready to be sent as often as needed.
pub(super) struct Call {
    method: Method,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Body,
    repeatable: bool,
    timeout: Option<Duration>,
}

impl Call {
    fn new(method: Method, path: String) -> Self {
        let repeatable = method == Method::GET;
        Self {
            method,
            path,
            headers: Vec::new(),
            body: Body::None,
            repeatable,
            timeout: None,
        }
    }

    pub(super) fn get(path: String) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn post(path: String) -> Self {
        Self::new(Method::POST, path)
    }

    pub(super) fn put(path: String) -> Self {
        Self::new(Method::PUT, path)
    }

    pub(super) fn delete(path: String) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// Adds `?name=value` when there is a value.
    pub(super) fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let glue = if self.path.contains('?') { '&' } else { '?' };
            self.path.push(glue);
            self.path.push_str(name);
            self.path.push('=');
            push_encoded(&value.to_string(), &mut self.path);
        }
        self
    }

    /// Adds a header.
    pub(super) fn header(mut self, name: &'static str, value: &str) -> Result<Self, Error> {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| Error::Setup(format!("the value of `{name}` is no header value")))?;
        value.set_sensitive(true);
        self.headers.push((HeaderName::from_static(name), value));
        Ok(self)
    }

    /// Adds `Range`.
    pub(super) fn range(mut self, range: Option<&str>) -> Result<Self, Error> {
        if let Some(range) = range {
            let value = HeaderValue::from_str(range)
                .map_err(|_| Error::Setup(format!("the range `{range}` is no header value")))?;
            self.headers.push((RANGE, value));
        }
        Ok(self)
    }

    /// Adds an `Idempotency-Key`, which makes the call repeatable.
    pub(super) fn idempotency_key(self, key: Option<&str>) -> Result<Self, Error> {
        match key {
            Some(key) => Ok(self.header("idempotency-key", key)?.repeatable()),
            None => Ok(self),
        }
    }

    /// Sends this as JSON.
    pub(super) fn json(self, body: &impl Serialize) -> Result<Self, Error> {
        let bytes = serde_json::to_vec(body)
            .map_err(|e| Error::Setup(format!("the body cannot be written as JSON: {e}")))?;
        Ok(self.json_bytes(bytes.into()))
    }

    /// Sends these bytes as JSON.
    pub(super) fn json_bytes(mut self, bytes: Bytes) -> Self {
        self.body = Body::Json(bytes);
        self
    }

    /// Sends a file.
    pub(super) fn file(mut self, filename: &str, bytes: Bytes) -> Self {
        self.body = Body::File {
            filename: filename.to_owned(),
            bytes,
        };
        self.timeout = Some(FILE_TIMEOUT);
        self
    }

    /// Says that sending it twice does what sending it once does.
    pub(super) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Gives it more time than an ordinary call: a wait on the server's side.
    pub(super) fn waiting(mut self, wait_ms: u64) -> Self {
        self.timeout = Some(CALL_TIMEOUT + Duration::from_millis(wait_ms));
        self
    }

    /// Gives it another bound.
    pub(super) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn what(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }

    fn transport(&self, e: reqwest::Error) -> Error {
        Error::Transport {
            what: self.what(),
            source: Box::new(e.without_url()),
        }
    }
}

/// A success as it came.
pub(super) struct Raw {
    what: String,
    status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Raw {
    /// Reads the body with `read`.
    pub(super) fn answer<T>(
        self,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Answer<T>, Error> {
        let value = read(&self.body).map_err(|why| Error::Decode {
            what: self.what,
            why,
        })?;
        let text = |name: &str| {
            let value = self.headers.get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        Ok(Answer {
            status: self.status,
            request_id: text("x-request-id"),
            replayed: text("idempotency-replayed").and_then(|t| t.parse().ok()),
            body: self.body,
            value,
        })
    }

    /// Reads `{"<name>": T}`.
    pub(super) fn wrapped<T: DeserializeOwned>(self, name: &str) -> Result<Answer<T>, Error> {
        self.answer(|body| answers::wrapped(body, name))
    }

    /// Reads the whole body.
    pub(super) fn whole<T: DeserializeOwned>(self) -> Result<Answer<T>, Error> {
        self.answer(|body| answers::read(body))
    }

    /// Reads a page.
    pub(super) fn page<T: DeserializeOwned>(self, plural: &str) -> Result<Answer<Page<T>>, Error> {
        self.answer(|body| answers::page(body, plural))
    }

    /// Reads a page of a feed.
    pub(super) fn events(self) -> Result<Answer<EventPage>, Error> {
        self.answer(EventPage::read)
    }

    /// Ignores the body.
    pub(super) fn empty(self) -> Result<Answer<()>, Error> {
        self.answer(|_| Ok(()))
    }

    /// The status.
    pub(super) fn status(&self) -> u16 {
        self.status
    }
}

/// A path from its segments, each encoded.
pub(super) fn path(segments: &[&str]) -> String {
    let mut out = String::new();
    for segment in segments {
        out.push('/');
        push_encoded(segment, &mut out);
    }
    out
}

/// Keeps RFC 3986 unreserved characters; everything else as `%XX`. A segment of dots, encoded or
/// not, would be resolved away by URL parsers, so it is encoded twice: the server finds no such id.
fn push_encoded(text: &str, out: &mut String) {
    if text == "." || text == ".." {
        out.push_str(&text.replace('.', "%252E"));
        return;
    }
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~' | b'.') {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_queries_cannot_leave_their_place() {
        assert_eq!(path(&["a", "b/../c?d#e"]), "/a/b%2F..%2Fc%3Fd%23e");
        assert_eq!(path(&["a", "..", "b"]), "/a/%252E%252E/b");
        let call = Call::get(path(&["inbox"]))
            .query("after", Some("a&b=c"))
            .query("limit", None::<u32>)
            .query("wait_ms", Some(5));
        assert_eq!(call.path, "/inbox?after=a%26b%3Dc&wait_ms=5");
    }

    #[test]
    fn only_reads_and_keyed_calls_are_repeatable() {
        assert!(Call::get(String::new()).repeatable);
        assert!(!Call::post(String::new()).repeatable);
        let keyed = |key| Call::post(String::new()).idempotency_key(key).unwrap();
        assert!(!keyed(None).repeatable);
        assert!(keyed(Some("k")).repeatable);
    }

    #[test]
    fn a_base_url_that_cannot_be_used_is_named() {
        let error = Client::anonymous("ftp://x").unwrap_err().to_string();
        assert!(error.contains("`ftp`") && error.contains("http and https"));
        assert!(Client::anonymous("127.0.0.1:80").is_err());
        let error = Client::new("http://127.0.0.1:1", "").unwrap_err();
        assert!(error.to_string().contains("token is empty"));
    }
}
