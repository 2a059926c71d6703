//! A client of one API server: credentials, retries, timeouts, decoding.
//!
//! There is no client-side rate limit: the server's fair queuing decides, and 429 with
//! `Retry-After` is obeyed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, BodyStream, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::de::DeserializeOwned;

use crate::config::{Config, Source};
use crate::decode::Encode;
use crate::error::{Cause, Error, Result};
use crate::json::from_slice;
use crate::tls::ConnectionTls;
use crate::token::BearerToken;
use crate::transport::Transport;

const JSON: &str = "application/json";
/// Maximum size of a response, which may come from an extension server: a page of objects of the
/// maximum size.
const MAX_BODY: usize = 800 * 1024 * 1024;
/// Maximum size of the body of an error.
const MAX_FAILURE: usize = 16 * 1024 * 1024;
const RETRIES: u32 = 10;

/// Body of a request.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Media type; empty without a body.
    pub content_type: &'static str,
    /// The bytes.
    pub bytes: Bytes,
}

impl Body {
    /// Encodes a JSON body.
    pub fn json<T: serde::Serialize>(value: &T) -> Result<Self> {
        Self::encode_as(JSON, value)
    }

    /// Encodes an object.
    pub(crate) fn object<K: Encode>(object: &K) -> Result<Self> {
        let bytes = object.encode_object().map_err(Error::Encode)?;
        Ok(Self {
            content_type: JSON,
            bytes: bytes.into(),
        })
    }

    pub(crate) fn encode_as<T: serde::Serialize>(
        content_type: &'static str,
        value: &T,
    ) -> Result<Self> {
        let bytes = serde_json::to_vec(value).map_err(Error::Encode)?;
        Ok(Self {
            content_type,
            bytes: bytes.into(),
        })
    }
}

/// A request to a path of the API server.
#[derive(Clone, Debug)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Body.
    pub body: Body,
    /// Media types to accept.
    pub accept: &'static str,
    /// Timeout until the response headers are received, and for the body unless it is streamed.
    /// `None`: no timeout.
    pub timeout: Option<Duration>,
}

impl Request {
    /// Creates a request without a body.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: Body::default(),
            accept: JSON,
            timeout: None,
        }
    }

    /// Creates a GET request.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// Creates a POST request with a JSON body.
    pub fn post<T: serde::Serialize>(path: impl Into<String>, value: &T) -> Result<Self> {
        Ok(Self::new(Method::POST, path).with_body(Body::json(value)?))
    }

    /// Sets the body.
    pub fn with_body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// Sets the media types to accept.
    pub fn with_accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    /// Returns `METHOD path`, for messages.
    pub(crate) fn describe_request(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

struct Inner {
    config: Arc<Config>,
    transport: Arc<Transport>,
    token: BearerToken,
}

/// Handle of a client; clones share the connection.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.inner.config.server)
            .finish()
    }
}

impl Client {
    /// Creates a client. The connection is opened with the first request.
    pub fn new(config: Config) -> Self {
        let config = Arc::new(config);
        Self::with_transport(config.clone(), Arc::new(Transport::new(config)))
    }

    /// Returns a client with the same connection and another bearer token. Only for clients without
    /// a certificate, which would take precedence over any token.
    pub fn with_token(&self, token: Source) -> Self {
        let config = Arc::new(Config {
            token: Some(token),
            ..self.config().clone()
        });
        // One connection serves all identities: the token is a header of each request. Certificates
        // belong to the connection.
        Self::with_transport(config, self.inner.transport.clone())
    }

    fn with_transport(config: Arc<Config>, transport: Arc<Transport>) -> Self {
        let token = BearerToken::new(config.token.clone());
        Self {
            inner: Arc::new(Inner {
                config,
                transport,
                token,
            }),
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Makes the next request open a new connection, with the certificate that the configured files
    /// have by then. Requests and watches in progress end on the old one.
    pub async fn reconnect(&self) {
        self.inner.transport.forget_connection().await;
    }

    /// Reads the CA and the client certificate now instead of at the first connection, for a
    /// process that drops the right to read them. See also [`Config::check_files`].
    ///
    /// # Errors
    /// A file can't be used.
    pub fn load_credentials(&self) -> Result<()> {
        base_task::blocking(|| self.inner.transport.load_tls())
    }

    /// Returns the client certificate of new connections in PEM; `None` before the first
    /// connection.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        let tls = self.inner.transport.current_tls()?;
        tls.certificate().map(<[u8]>::to_vec)
    }

    /// Returns whether the certificate files have changed since `used` was read.
    pub(crate) fn has_new_tls(&self, used: Option<&ConnectionTls>) -> bool {
        self.inner.transport.has_new_tls(used)
    }

    /// Subscribes to new connections: callers that back off may retry at once.
    pub(crate) fn subscribe_connections(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.transport.subscribe_connections()
    }

    /// Sends a request and decodes the JSON response.
    pub async fn request<T: DeserializeOwned>(&self, request: Request) -> Result<T> {
        let what = request.describe_request();
        let bytes = self.bytes(request).await?;
        from_slice(&bytes).map_err(|source| Error::Decode { what, source })
    }

    /// Sends a request and returns the body of the response.
    pub fn bytes(&self, request: Request) -> BoxFuture<'_, Result<Bytes>> {
        // Boxed: the code of an `async fn` is compiled in every crate that awaits it, and this one
        // holds the HTTP client.
        Box::pin(async move {
            let limit = request.timeout.unwrap_or(self.inner.config.timeout);
            let what = request.describe_request();
            let body = async {
                let response = self.send(request).await?;
                collect_body(response.into_body(), MAX_BODY, &what).await
            };
            match tokio::time::timeout(limit, body).await {
                Ok(body) => body,
                Err(_) => Err(Error::Timeout { what, after: limit }),
            }
        })
    }

    /// Sends a request and streams the body of the response, for instance logs.
    pub async fn stream(
        &self,
        request: Request,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + Unpin + use<>> {
        use futures::StreamExt;
        let what = request.describe_request();
        let body = self.send(request).await?.into_body();
        Ok(BodyStream::new(body).filter_map(move |frame| {
            let item = match frame {
                Ok(frame) => frame.into_data().ok().map(Ok),
                Err(error) => Some(Err(connection_lost(&what, error))),
            };
            std::future::ready(item)
        }))
    }

    /// Sends a request. A failure `Status` becomes an error; the caller reads the body of a
    /// success.
    pub fn send(&self, request: Request) -> BoxFuture<'_, Result<http::Response<Incoming>>> {
        Box::pin(self.send_with_retries(request))
    }

    async fn send_with_retries(&self, request: Request) -> Result<http::Response<Incoming>> {
        let what = request.describe_request();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let built = self.build_request(&request)?;
            match self.inner.transport.send_request(built, &what).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => {
                    // Obeyed for every method, as in client-go: the server has not executed the
                    // request.
                    let wait = retry_after(&response).filter(|_| attempt <= RETRIES);
                    if response.status() == StatusCode::UNAUTHORIZED {
                        // The token may have been rotated less than a minute ago. The next request
                        // reads the file.
                        self.inner.token.forget();
                    }
                    let error = read_failure(response, &what).await;
                    let Some(wait) = wait else { return Err(error) };
                    tracing::debug!(%what, ?wait, "the server requests a retry later");
                    tokio::time::sleep(wait).await;
                }
                Err(failed) => {
                    let connecting =
                        matches!(failed.error, Error::Connect { .. } | Error::Config(_));
                    // A request that may have reached the server is not repeated: a create would be
                    // executed twice. A server that cannot be reached is the caller's decision.
                    if !failed.unsent || connecting || attempt > 3 {
                        return Err(failed.error);
                    }
                }
            }
        }
    }

    fn build_request(&self, request: &Request) -> Result<http::Request<Full<Bytes>>> {
        let config = &self.inner.config;
        let invalid = |error: &dyn std::fmt::Display| {
            Error::Config(format!("{}: {error}", request.describe_request()))
        };
        let mut builder = http::Request::builder()
            .method(request.method.clone())
            // The connection adds the address of its server.
            .uri(&request.path)
            .header(ACCEPT, request.accept)
            .header(USER_AGENT, &config.user_agent);
        if !request.body.content_type.is_empty() {
            builder = builder.header(CONTENT_TYPE, request.body.content_type);
        }
        if let Some(token) = self.inner.token.read_header()? {
            builder = builder.header(AUTHORIZATION, token);
        }
        if let Some(user) = &config.impersonate {
            builder = builder.header(HeaderName::from_static("impersonate-user"), user);
        }
        builder
            .body(Full::new(request.body.bytes.clone()))
            .map_err(|error| invalid(&error))
    }
}

fn connection_lost(what: &str, error: hyper::Error) -> Error {
    Error::Connection {
        what: what.to_owned(),
        source: error.into(),
    }
}

async fn collect_body<B>(body: B, limit: usize, what: &str) -> Result<Bytes>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Cause>,
{
    let collected = Limited::new(body, limit).collect().await;
    let body = collected.map_err(|source| {
        let what = what.to_owned();
        if source.is::<LengthLimitError>() {
            Error::TooLarge { what, limit }
        } else {
            Error::Connection { what, source }
        }
    })?;
    Ok(body.to_bytes())
}

fn retry_after(response: &http::Response<Incoming>) -> Option<Duration> {
    let code = response.status();
    // client-go retries on 429 and 5xx, and only with the header.
    if code != StatusCode::TOO_MANY_REQUESTS && !code.is_server_error() {
        return None;
    }
    let seconds = response
        .headers()
        .get(http::header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

async fn read_failure(response: http::Response<Incoming>, what: &str) -> Error {
    let code = i32::from(response.status().as_u16());
    let bytes = match collect_body(response.into_body(), MAX_FAILURE, what).await {
        Ok(bytes) => bytes,
        Err(error) => return error,
    };
    // Proxies in front of an API server send HTML. Their text is better than no message.
    let mut status = serde_json::from_slice::<Status>(&bytes).unwrap_or_else(|_| Status {
        message: Some(format!(
            "{what}: {}",
            String::from_utf8_lossy(&bytes).trim()
        )),
        ..Status::default()
    });
    status.code.get_or_insert(code);
    Error::Api(Box::new(status))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn body_over_the_limit_is_an_error() {
        let body = || Full::new(Bytes::from_static(b"12345"));
        assert_eq!(collect_body(body(), 5, "GET /").await.unwrap(), "12345");
        let rejected = collect_body(body(), 4, "GET /").await;
        assert!(matches!(rejected, Err(Error::TooLarge { .. })));
    }
}
