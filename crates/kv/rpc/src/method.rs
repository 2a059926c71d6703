//! The methods of the fast path.

use http::Request;
use kv_transport::is_compressed;

/// The methods of the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Range,
    Put,
    Txn,
    DeleteRange,
}

/// Returns the method of a request, if the fast path handles it.
pub(crate) fn unary_method<B>(request: &Request<B>) -> Option<Method> {
    if is_compressed(request.headers()) {
        return None;
    }
    Some(match request.uri().path() {
        "/etcdserverpb.KV/Range" => Method::Range,
        "/etcdserverpb.KV/Put" => Method::Put,
        "/etcdserverpb.KV/Txn" => Method::Txn,
        "/etcdserverpb.KV/DeleteRange" => Method::DeleteRange,
        _ => return None,
    })
}
