//! A request to a webhook and its response, whatever the protocol.

use super::error::{DialError, describe_error, describe_io};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;

/// Maximum size of a webhook's response. An object has at most 3 MiB; a patch that replaces it as
/// base64 takes 4 MiB.
pub const MAX_RESPONSE: usize = 8 * 1024 * 1024;

/// A request.
pub struct Call<'a> {
    pub method: Method,
    pub uri: &'a Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Maximum size of the response's body.
    pub max_response: usize,
}

/// A complete response.
pub struct Reply {
    pub status: StatusCode,
    pub body: Bytes,
}

/// A request without a complete response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No connection could be opened.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// Nothing was sent, because the connection had ended.
    #[error("the connection has ended")]
    Unsent,
    /// The request can't be built.
    #[error(transparent)]
    Invalid(#[from] http::Error),
    /// A connection of HTTP/1.1 failed.
    #[error(transparent)]
    Http1(#[from] hyper::Error),
    /// A connection of HTTP/2 failed.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// The response ended early.
    #[error("the response is not complete")]
    BrokenBody,
    /// The response has more bytes than this.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
}

impl SendError {
    /// Returns the error in the words of Go's client.
    pub fn describe(&self) -> String {
        match self {
            SendError::Dial(error) => error.to_string(),
            SendError::Invalid(error) => error.to_string(),
            SendError::Http1(error) => describe_error(error),
            SendError::Http2(error) => match error.get_io() {
                Some(error) => describe_io(error),
                None => error.to_string(),
            },
            SendError::Unsent => "EOF".to_owned(),
            SendError::BrokenBody => "unexpected EOF".to_owned(),
            SendError::TooLarge(_) => self.to_string(),
        }
    }
}

impl Call<'_> {
    /// Builds the request with the path as its target and a `Host`.
    pub fn build_http1(&self) -> Result<Request<Full<Bytes>>, http::Error> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(path)
            .body(Full::new(self.body.clone()))?;
        *request.headers_mut() = self.headers.clone();
        let host = self.uri.host().unwrap_or_default();
        let host = match self.uri.port_u16() {
            // The normal form of an authority has no default port (RFC 9110, section 4.2.3).
            None | Some(443) => HeaderValue::from_str(host)?,
            Some(port) => HeaderValue::from_str(&format!("{host}:{port}"))?,
        };
        request.headers_mut().insert(HOST, host);
        Ok(request)
    }

    /// Builds the head of the request with the whole URL as its target.
    pub fn build_http2(&self) -> Result<Request<()>, http::Error> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.uri.clone())
            .version(http::Version::HTTP_2)
            .body(())?;
        *request.headers_mut() = self.headers.clone();
        // A GET has no content (RFC 9110, section 8.6).
        if !self.body.is_empty() {
            let length = HeaderValue::from(self.body.len());
            request.headers_mut().insert(CONTENT_LENGTH, length);
        }
        Ok(request)
    }
}

/// Reads a body of HTTP/1.1.
pub async fn collect_body(body: Incoming, limit: usize) -> Result<Bytes, SendError> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        // A webhook must not be able to fill the memory of the server.
        Err(error) if error.is::<LengthLimitError>() => Err(SendError::TooLarge(limit)),
        Err(_) => Err(SendError::BrokenBody),
    }
}
