//! Bodies of requests.

use bytes::Bytes;
use std::fmt::Display;
use tower::BoxError;

/// Body of a request, from a real or a simulated connection.
pub trait RequestBody:
    http_body::Body<Data = Bytes, Error: Into<BoxError> + Display> + Send + Unpin + 'static
{
}

impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError> + Display> + Send + Unpin + 'static>
    RequestBody for B
{
}
