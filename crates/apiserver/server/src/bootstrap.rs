//! Bootstrap objects: created if missing, updated if outdated, left alone where a user changed
//! them.

mod cluster_authentication_trust;
mod endpoints;
pub mod identity;
pub mod legacy_tokens;
mod objects;
mod rbac;
mod run;
mod service;

pub use run::run_bootstrap;

use crate::server::Server;
use api_kinds::Resource;
use api_meta::{ApiError, Meta, Reason};
use apiserver_registry::Write;
use serde_json::Value;
use std::sync::Arc;

/// Returns the resource of a built-in kind.
fn find_resource(group: &str, plural: &str) -> Result<&'static Arc<Resource>, ApiError> {
    api_kinds::find(group, "v1", plural).ok_or_else(ApiError::no_such_path)
}

/// Returns the object from the watch cache.
fn find_object(
    server: &Server,
    resource: &Arc<Resource>,
    namespace: &str,
    name: &str,
) -> Option<Value> {
    let cache = server
        .caches
        .find_cache(&resource.group, &resource.plural)?;
    cache
        .get(&cache.kind().object_key(namespace, name))?
        .tree_as(resource)
        .ok()
}

/// Creates the object unless one of that name exists.
async fn create_missing(
    server: &Server,
    resource: &Arc<Resource>,
    object: Value,
) -> Result<(), ApiError> {
    let namespace = if resource.namespaced {
        object.namespace().to_owned()
    } else {
        String::new()
    };
    if find_object(server, resource, &namespace, object.name()).is_some() {
        return Ok(());
    }
    create_object(server, resource, &namespace, object).await
}

/// Creates the object; it is no error if another server created it first.
async fn create_object(
    server: &Server,
    resource: &Arc<Resource>,
    namespace: &str,
    object: Value,
) -> Result<(), ApiError> {
    let mut write = Write::internal(resource, namespace, "");
    match server.registry.create(&mut write, object).await {
        // Several servers start at once, and each creates the same objects.
        Err(error) if error.reason == Reason::AlreadyExists => Ok(()),
        Err(error) if error.reason == Reason::Invalid => {
            // A retry would fail again, and the rest of the cluster works without this object.
            tracing::error!(%error, "failed to create bootstrap object");
            Ok(())
        }
        other => other.map(|_| ()),
    }
}
