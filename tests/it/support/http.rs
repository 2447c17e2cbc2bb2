//! A plain HTTP client whose answers say what was expected of them.

use std::fmt::Write as _;

use nexus::domain::json::{self, Value};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};

use super::contract;

/// One replica's door. Cheap to clone.
#[derive(Clone)]
pub struct Door {
    client: reqwest::Client,
    /// `http://127.0.0.1:port`.
    pub base: String,
}

/// What a request carries as JSON: a text that is sent as it stands, or a value.
pub trait IntoJson {
    /// The exact bytes.
    fn into_json(self) -> Vec<u8>;
}

impl IntoJson for &str {
    fn into_json(self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl IntoJson for String {
    fn into_json(self) -> Vec<u8> {
        self.into_bytes()
    }
}

impl IntoJson for serde_json::Value {
    fn into_json(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

impl IntoJson for &serde_json::Value {
    fn into_json(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

impl IntoJson for Value {
    fn into_json(self) -> Vec<u8> {
        serde_json::to_vec(&self).expect("a value is JSON")
    }
}

impl Door {
    /// A door at that base URL.
    pub fn new(base: String) -> Self {
        // The process has one TLS provider; tests speak plain HTTP, yet reqwest wants it named.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("a client without options");
        Self { client, base }
    }

    /// A request of any shape; an empty token sends no `Authorization`.
    pub fn request(&self, method: Method, path: &str, token: &str) -> Call {
        let mut headers = HeaderMap::new();
        if !token.is_empty() {
            let bearer = format!("Bearer {token}");
            let value = HeaderValue::from_str(&bearer).expect("a token is visible ASCII");
            headers.insert(header::AUTHORIZATION, value);
        }
        Call {
            client: self.client.clone(),
            url: format!("{}{path}", self.base),
            path: path.to_owned(),
            method,
            headers,
            body: None,
        }
    }

    /// GET.
    pub async fn get(&self, path: &str, token: &str) -> Answer {
        self.request(Method::GET, path, token).send().await
    }

    /// POST with a JSON body.
    pub async fn post(&self, path: &str, token: &str, body: impl IntoJson) -> Answer {
        self.request(Method::POST, path, token)
            .json(body)
            .send()
            .await
    }

    /// POST without a body.
    pub async fn command(&self, path: &str, token: &str) -> Answer {
        self.request(Method::POST, path, token).send().await
    }

    /// PUT with a JSON body.
    pub async fn put(&self, path: &str, token: &str, body: impl IntoJson) -> Answer {
        self.request(Method::PUT, path, token)
            .json(body)
            .send()
            .await
    }

    /// PATCH with a JSON body.
    pub async fn patch(&self, path: &str, token: &str, body: impl IntoJson) -> Answer {
        self.request(Method::PATCH, path, token)
            .json(body)
            .send()
            .await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str, token: &str) -> Answer {
        self.request(Method::DELETE, path, token).send().await
    }
}

/// A request under construction.
pub struct Call {
    client: reqwest::Client,
    url: String,
    path: String,
    method: Method,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
}

impl Call {
    /// Sets a header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header value");
        self.headers.insert(HeaderName::from_static(name), value);
        self
    }

    /// A JSON body, with its media type.
    pub fn json(self, body: impl IntoJson) -> Self {
        self.header("content-type", "application/json")
            .bytes(body.into_json())
    }

    /// A body of any bytes, without a media type.
    pub fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sends it.
    pub async fn send(self) -> Answer {
        let what = format!("{} {}", self.method, self.url);
        let (method, path) = (self.method.clone(), self.path);
        let mut request = self
            .client
            .request(self.method, &self.url)
            .headers(self.headers);
        if let Some(body) = self.body {
            request = request.body(body);
        }
        let response = request
            .send()
            .await
            .unwrap_or_else(|e| panic!("{what}: no answer: {e:?}"));
        let answer = Answer {
            status: response.status(),
            headers: response.headers().clone(),
            body: response
                .bytes()
                .await
                .unwrap_or_else(|e| panic!("{what}: the answer broke off: {e:?}"))
                .to_vec(),
            what,
        };
        contract::hold(&method, &path, &answer);
        answer
    }
}

/// What came back.
#[derive(Clone)]
pub struct Answer {
    what: String,
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The exact bytes.
    pub body: Vec<u8>,
}

impl Answer {
    /// Of something that was done without a door: 200 and no body.
    pub fn empty() -> Self {
        Self {
            what: "no door".to_owned(),
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: Vec::new(),
        }
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The exact JSON of the body.
    #[track_caller]
    pub fn json(&self) -> Value {
        json::parse(&self.body).unwrap_or_else(|e| panic!("{self:?}: no JSON: {e}"))
    }

    /// A header's text; empty when it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    }

    /// Asserts the status; gives the body (`null` when there is none).
    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        if self.body.is_empty() {
            Value::Null
        } else {
            self.json()
        }
    }

    /// Asserts a refusal of that status and code in the error envelope; gives its `error` member.
    #[track_caller]
    pub fn expect(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        let body = self.json();
        let error = at(&body, "error").clone();
        assert_eq!(text(&error, "code"), code, "{self:?}");
        assert!(!text(&error, "message").is_empty(), "{self:?}");
        assert_eq!(
            text(&error, "request_id"),
            self.header("x-request-id"),
            "{self:?}"
        );
        error
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} -> {}", self.what, self.status)?;
        f.write_char('\n')?;
        f.write_str(&self.text())
    }
}

/// The value at a dotted path: `executor.public_id`, `tools.0.name`.
#[track_caller]
pub fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    find(value, path).unwrap_or_else(|| panic!("no `{path}` in {value:?}"))
}

/// The value at a dotted path, if there is one.
pub fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        Value::Object(members) => members.get(step),
        _ => None,
    })
}

/// The text at a dotted path.
#[track_caller]
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path)
        .as_str()
        .unwrap_or_else(|| panic!("`{path}` is no text in {value:?}"))
}

/// The items at a dotted path.
#[track_caller]
pub fn items<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path)
        .as_array()
        .unwrap_or_else(|| panic!("`{path}` is no array in {value:?}"))
}
