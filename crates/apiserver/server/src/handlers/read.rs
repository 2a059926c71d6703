//! GET of one object and of collections.

use super::options::{list_meta, list_query};
use super::watch_rules;
use crate::body::Body;
use crate::context::Context;
use crate::respond;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::ApiError;
use http::Response;

/// Handles GET of an object.
pub async fn handle_get(
    server: &Server,
    context: &Context,
    row: &'static Resource,
) -> Result<Response<Body>, ApiError> {
    context.wanted_of_one(row.kind)?;
    let namespace = if row.namespaced {
        context.info.namespace.as_str()
    } else {
        ""
    };
    let version = context.query.text("resourceVersion");
    let entry = server
        .registry
        .get(row, namespace, &context.info.name, version)
        .await?;
    respond::entry_response(context, row, &entry)
}

/// Handles GET of a collection.
pub async fn handle_list(
    server: &Server,
    context: &Context,
    row: &'static Resource,
) -> Result<Response<Body>, ApiError> {
    context.wanted_of_list(row.list_kind)?;
    watch_rules::check_list(context)?;
    let result = server
        .registry
        .list(row, &list_query(context, row)?)
        .await?;
    respond::list_response(context, row, &result.entries, &list_meta(&result))
}
