//! GET of one object and of collections.

use super::options::{list_meta, list_query};
use super::watch_rules;
use crate::body::{Body, run_sized};
use crate::context::Context;
use crate::list_body::Encodings;
use crate::lists;
use crate::respond;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::ApiError;
use http::Response;
use std::sync::Arc;

/// Handles GET of an object.
pub async fn handle_get(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
) -> Result<Response<Body>, ApiError> {
    // Before the lookup, as upstream: for an object that does not exist, 406 wins over 404.
    context.object_media_type(resource)?;
    // The path of a namespace names itself as its namespace.
    let namespace = if resource.namespaced {
        context.info.namespace.as_str()
    } else {
        ""
    };
    let version = context.query.text("resourceVersion");
    let entry = server
        .registry
        .get(resource, namespace, &context.info.name, version)
        .await?;
    let respond = || respond::entry_response(context, resource, &entry);
    run_sized(&context.user, entry.stored_size(), respond).await
}

/// Handles GET of a collection.
pub async fn handle_list(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
) -> Result<Response<Body>, ApiError> {
    context.list_media_type(resource)?;
    // Streaming lists are watches: on a list, the option would silently do nothing.
    watch_rules::check_list(context)?;
    let result = server
        .registry
        .list(resource, &list_query(context, resource)?)
        .await?;
    let meta = list_meta(&result);
    lists::list_response(context, resource, result.entries, &meta, Encodings::Kept).await
}
