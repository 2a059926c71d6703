//! Responses that the gateway makes itself.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

use crate::idle::BodyError;

/// Body of a response to a client.
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// Reason for which no backend responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request can't be forwarded; the text says why.
    BadRequest(&'static str),
    /// The method CONNECT.
    MethodNotAllowed,
    /// The host is not the one of the TLS connection.
    Misdirected,
    /// No rule matches.
    NoRoute,
    /// The rule has no backend that can be resolved.
    NoBackend,
    /// The backend has no endpoints, or the gateway has too many requests.
    Unavailable,
    /// The request passed this gateway before.
    Loop,
    /// The endpoint can't be reached, or does not speak HTTP.
    BadGateway,
    /// The endpoint does not respond in time.
    Timeout,
    /// The body of the request is too large.
    TooLarge,
}

impl Refusal {
    /// Returns the status and the text.
    pub(crate) fn describe(self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest(why) => (StatusCode::BAD_REQUEST, why),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not supported"),
            Self::Misdirected => (
                StatusCode::MISDIRECTED_REQUEST,
                "the host is not that of the TLS connection",
            ),
            Self::NoRoute => (StatusCode::NOT_FOUND, "no route"),
            Self::NoBackend => (StatusCode::INTERNAL_SERVER_ERROR, "no backend"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "no endpoint is available"),
            Self::Loop => (
                StatusCode::LOOP_DETECTED,
                "the backend sends requests back to the gateway",
            ),
            Self::BadGateway => (StatusCode::BAD_GATEWAY, "the endpoint failed"),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body of the request is too large",
            ),
            Self::Timeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "the endpoint did not respond in time",
            ),
        }
    }

    /// Returns the response.
    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        let (status, text) = self.describe();
        plain_response(status, text)
    }
}

/// Returns a redirect.
pub(crate) fn redirect_response(
    status: StatusCode,
    location: HeaderValue,
) -> Response<ResponseBody> {
    let mut response = plain_response(status, "");
    response.headers_mut().insert(LOCATION, location);
    response
}

fn plain_response(status: StatusCode, text: &'static str) -> Response<ResponseBody> {
    let line = match text {
        "" => Bytes::new(),
        text => Bytes::from(format!("{text}\n")),
    };
    let body = Full::new(line).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    // Some statuses may be cached by default, and a route may exist a moment later.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
