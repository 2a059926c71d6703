//! POST and PUT.

use super::options;
use crate::body::Body;
use crate::context::Context;
use crate::decode::{self, Expected};
use crate::respond;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::ApiError;
use apiserver_registry::{Mode, Update};
use bytes::Bytes;
use http::Response;
use serde_json::Value;

/// Handles POST of an object to a collection.
pub async fn handle_create(
    server: &Server,
    context: &Context,
    resource: &'static Resource,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    context.object_media_type(resource.kind)?;
    let mut write = options::parse_write(context, resource, "CreateOptions")?;
    let object = read_object(
        context,
        resource,
        &body,
        "CreateOptions",
        &mut write.warnings,
    )?;
    let created = server.registry.create(&mut write, object).await?;
    Ok(respond::with_warnings(
        respond::object_response(context, 201, Some(resource), resource.message, &created)?,
        &write.warnings,
    ))
}

/// Handles PUT of an object, or of a subresource whose body is the object.
pub async fn handle_update(
    server: &Server,
    context: &Context,
    resource: &'static Resource,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    context.object_media_type(resource.kind)?;
    let mut write = options::parse_write(context, resource, "UpdateOptions")?;
    // The update clears the warnings of the write at each attempt; those of decoding must stay.
    let mut warnings = Vec::new();
    let object = read_object(context, resource, &body, "UpdateOptions", &mut warnings)?;
    let change = move |_: &Value| Ok(object.clone());
    let updated = server
        .registry
        .update(
            &mut write,
            &Update {
                change: &change,
                replaces: true,
                mode: Mode::Full,
            },
        )
        .await?;
    warnings.append(&mut write.warnings);
    Ok(respond::with_warnings(
        respond::object_response(context, 200, Some(resource), resource.message, &updated)?,
        &warnings,
    ))
}

fn read_object(
    context: &Context,
    resource: &'static Resource,
    body: &[u8],
    options: &str,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let strictness = decode::parse_strictness(context, options)?;
    let expected = Expected {
        api_version: &resource.api_version(),
        kind: resource.kind,
        message: resource.message,
    };
    decode::decode_object(context, expected, body, strictness, warnings)
}
