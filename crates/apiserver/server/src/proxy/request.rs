//! The object that a proxied request names.

use crate::server::Server;
use api_meta::ApiError;
use apiserver_request::{GroupResource, Objects};
use serde_json::Value;
use std::sync::Arc;

/// Returns an object from the watch cache, or 404.
pub fn cached_object(
    server: &Server,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Arc<Value>, ApiError> {
    let found = server
        .caches
        .cached_object(&GroupResource::new("", resource), namespace, name);
    found.ok_or_else(|| ApiError::not_found("", resource, name))
}
