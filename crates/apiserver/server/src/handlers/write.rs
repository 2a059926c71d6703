//! POST and PUT.

use super::options;
use crate::authorize::authorize_verb;
use crate::body::{Body, run_sized};
use crate::context::Context;
use crate::decode::{self, Expected};
use crate::respond;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::{ApiError, Meta as _, Reason};
use apiserver_registry::{Mode, Update, Write};
use bytes::Bytes;
use http::Response;
use serde_json::Value;
use std::sync::Arc;

/// Handles POST of an object to a collection.
pub async fn handle_create(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    context.object_media_type(resource)?;
    let mut write = options::parse_write(context, resource, "CreateOptions")?;
    let object = read_object(
        context,
        resource,
        &body,
        "CreateOptions",
        &mut write.warnings,
    )
    .await?;
    let created = server.registry.create(&mut write, object).await?;
    Ok(respond::with_warnings(
        respond::object_response(context, 201, Some(resource), &resource.schema, &created)?,
        &write.warnings,
    ))
}

/// Handles PUT of an object, or of a subresource whose body is the object.
pub async fn handle_update(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    // Checked first, as everywhere: a write whose response fails would look like a failed write.
    context.object_media_type(resource)?;
    let mut write = options::parse_write(context, resource, "UpdateOptions")?;
    // The update clears the warnings of the write at each attempt; those of decoding must stay.
    let mut warnings = Vec::new();
    let object = read_object(context, resource, &body, "UpdateOptions", &mut warnings).await?;
    let replacement = object.clone();
    // The registry compares resourceVersion with the stored object, so that the old one is not
    // needed.
    let change = move |_: &Value| Ok(replacement.clone());
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
        .await;
    let (code, object) = match updated {
        Err(error)
            if error.reason == Reason::NotFound
                && write.subresource.is_empty()
                && allows_create_on_update(resource) =>
        {
            // The request is authorized as `update` only, which must not suffice to create.
            authorize_verb(server, context, "create").await?;
            (201, create_on_update(server, &mut write, object).await?)
        }
        updated => (200, updated?),
    };
    warnings.append(&mut write.warnings);
    Ok(respond::with_warnings(
        respond::object_response(context, code, Some(resource), &resource.schema, &object)?,
        &warnings,
    ))
}

/// Returns whether a PUT of an object that does not exist creates it.
fn allows_create_on_update(resource: &Resource) -> bool {
    if resource.is_custom() {
        return false;
    }
    match &*resource.group {
        "" => ["endpoints", "events", "limitranges", "services"].contains(&&*resource.plural),
        "coordination.k8s.io" | "events.k8s.io" | "node.k8s.io" | "rbac.authorization.k8s.io" => {
            true
        }
        _ => false,
    }
}

async fn create_on_update(
    server: &Server,
    write: &mut Write,
    mut object: Value,
) -> Result<Value, ApiError> {
    // A uid names a certain object, which does not exist: a new object would be another one.
    if !object.uid().is_empty() {
        let uid = object.uid();
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
        return Err(write.conflict_error(&why));
    }
    // The path names the object; a body with another name is a mistake of the client.
    if object.name().is_empty() {
        object.set_meta_str("name", &write.name);
    } else if object.name() != write.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object.name(),
            write.name
        )));
    }
    // Upstream compares the version of an update with that of an existing object only.
    object.metadata_mut().remove("resourceVersion");
    write.name.clear();
    server.registry.create(write, object).await
}

async fn read_object(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
    options: &str,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let strictness = decode::parse_strictness(context, options)?;
    let expected = Expected {
        api_version: &resource.api_version(),
        kind: &resource.kind,
        schema: &resource.schema,
    };
    let decode = || decode::decode_object(context, expected, body, strictness, warnings);
    run_sized(&context.user, body.len(), decode).await
}
