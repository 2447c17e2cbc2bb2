//! A client that costs little: one HTTP/1.1 connection, one call at a time, no parsing but what a
//! scenario asks for. The generator shares its machine with what it measures, so what it spends is
//! missing there.
//!
//! Does not know: TLS. `https` targets are refused; measure behind the balancer that ends TLS.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::error::Error;

/// One connection with one bearer. Connects again when the server closed it.
pub struct Conn {
    authority: String,
    host: HeaderValue,
    bearer: HeaderValue,
    sender: Option<SendRequest<Full<Bytes>>>,
}

/// An answer.
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
    what: String,
}

/// `host:port` of a base URL.
///
/// # Errors
/// [`Error::Setup`] for anything but `http://host[:port]`.
pub fn authority(base_url: &str) -> Result<String, Error> {
    let rest = base_url.trim_end_matches('/').strip_prefix("http://");
    match rest {
        Some(host) if !host.is_empty() && !host.contains('/') => Ok(if host.contains(':') {
            host.to_owned()
        } else {
            format!("{host}:80")
        }),
        _ => Err(Error::Setup(format!(
            "the base URL `{base_url}` cannot be driven: it looks like http://127.0.0.1:8080"
        ))),
    }
}

impl Conn {
    /// A connection to that server with that bearer; it connects at the first call.
    ///
    /// # Errors
    /// [`Error::Setup`] when the URL or the token cannot be used.
    pub fn new(base_url: &str, token: &str) -> Result<Self, Error> {
        let authority = authority(base_url)?;
        let unusable = |_| Error::Setup("the token holds unusable characters".to_owned());
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(unusable)?;
        bearer.set_sensitive(true);
        Ok(Self {
            host: HeaderValue::from_str(&authority).map_err(unusable)?,
            authority,
            bearer,
            sender: None,
        })
    }

    /// Sends one call and reads its answer.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Reply, Error> {
        let what = format!("{method} {path}");
        let lost = |e: &dyn std::error::Error| Error::Connection {
            what: what.clone(),
            why: e.to_string(),
        };
        if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
            self.sender = Some(self.connect().await.map_err(|e| lost(&*e))?);
        }
        let sender = self.sender.as_mut().expect("it was just made");
        sender.ready().await.map_err(|e| lost(&e))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.host)
            .header(AUTHORIZATION, &self.bearer)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))
            .map_err(|e| lost(&e))?;
        let answer = sender.send_request(request).await.map_err(|e| lost(&e))?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|e| lost(&e))?;
        Ok(Reply {
            status,
            body: body.to_bytes(),
            what,
        })
    }

    /// POST.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Result<Reply, Error> {
        self.send(Method::POST, path, body).await
    }

    /// GET.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn get(&mut self, path: &str) -> Result<Reply, Error> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    async fn connect(
        &self,
    ) -> Result<SendRequest<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

impl Reply {
    /// The body of a success, as `T`.
    ///
    /// # Errors
    /// [`Error::Answer`] for every other status, or another form.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if self.status.is_success()
            && let Ok(value) = serde_json::from_slice(&self.body)
        {
            return Ok(value);
        }
        Err(self.fault())
    }

    /// That this answer is of no use.
    pub fn fault(&self) -> Error {
        let text = String::from_utf8_lossy(&self.body);
        Error::Answer {
            what: self.what.clone(),
            status: self.status.as_u16(),
            body: text.chars().take(300).collect(),
        }
    }

    /// The error code, when the server answered one.
    pub fn code(&self) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        Some(body.get("error")?.get("code")?.as_str()?.to_owned())
    }
}
