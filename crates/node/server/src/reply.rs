//! Responses.

use crate::backend::Failure;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use std::error::Error;

pub(crate) type Body = BoxBody<Bytes, Box<dyn Error + Send + Sync>>;
pub(crate) type Reply = Response<Body>;

pub(crate) fn full_body(data: impl Into<Bytes>) -> Body {
    Full::new(data.into())
        .map_err(|never| match never {})
        .boxed()
}

pub(crate) fn build_reply(status: StatusCode, kind: &'static str, data: impl Into<Bytes>) -> Reply {
    let mut response = Response::new(full_body(data));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub(crate) fn text_reply(data: impl Into<Bytes>) -> Reply {
    build_reply(StatusCode::OK, "text/plain; charset=utf-8", data)
}

pub(crate) fn json_reply(value: &serde_json::Value) -> Reply {
    build_reply(StatusCode::OK, "application/json", value.to_string())
}

pub(crate) fn bytes_reply(response: Response<Vec<u8>>) -> Reply {
    response.map(full_body)
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        build_reply(failure.status, "text/plain; charset=utf-8", failure.message)
    }
}
