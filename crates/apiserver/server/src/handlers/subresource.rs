//! Routes subresources to their handlers.

use super::{apply, options, patch::Patch, read, write};
use crate::body::Body;
use crate::context::Context;
use crate::decode::{self, Expected};
use crate::method::method_not_allowed;
use crate::respond;
use crate::server::Server;
use api_kinds::{ObjectSchema, Resource, Subresource};
use api_meta::{ApiError, Status};
use apiserver_registry::{Eviction, Write, check_scalable, scale_of};
use bytes::Bytes;
use http::Response;
use serde_json::Value;
use std::sync::Arc;

/// Responds to a request for a subresource.
pub async fn handle_subresource(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let Some(subresource) = resource.subresource(&context.info.subresource) else {
        return Err(ApiError::no_such_path());
    };
    if !subresource
        .verbs
        .iter()
        .any(|verb| *verb == context.info.verb)
    {
        return Err(method_not_allowed());
    }
    match (&*subresource.name, context.info.verb.as_str()) {
        // Bodies of these five have their own kinds or rules; other subresources take the object
        // itself.
        ("scale", _) => handle_scale(server, context, resource, subresource, body).await,
        ("binding", "create") => handle_bind(server, context, resource, subresource, body).await,
        ("eviction", "create") => handle_evict(server, context, resource, subresource, body).await,
        ("token", "create") => handle_token(server, context, resource, subresource, body).await,
        ("finalize", "update") => handle_finalize(server, context, resource, body).await,
        (_, "get") => read::handle_get(server, context, resource).await,
        (_, "update") => write::handle_update(server, context, resource, body).await,
        (_, "patch") => super::patch::handle_patch(server, context, resource, body).await,
        _ => Err(method_not_allowed()),
    }
}

/// Decodes the body of a subresource with a kind of its own.
fn read_body(
    context: &Context,
    subresource: &Subresource,
    body: &[u8],
    write: &mut Write,
) -> Result<Value, ApiError> {
    let strictness = decode::parse_strictness(context, "CreateOptions")?;
    let api_version = group_version(subresource);
    let expected = Expected {
        api_version: &api_version,
        kind: &subresource.kind,
        schema: body_schema(subresource)?,
    };
    decode::decode_object(context, expected, body, strictness, &mut write.warnings)
}

fn body_schema(subresource: &Subresource) -> Result<&ObjectSchema, ApiError> {
    subresource
        .schema
        .as_ref()
        .ok_or_else(ApiError::no_such_path)
}

fn group_version(subresource: &Subresource) -> String {
    let Subresource { group, version, .. } = subresource;
    if group.is_empty() {
        version.clone().into_owned()
    } else {
        format!("{group}/{version}")
    }
}

async fn handle_scale(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    subresource: &Subresource,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let schema = body_schema(subresource)?;
    // Computed on each read: a Scale has no key of its own in the store.
    if context.info.verb == "get" {
        let version = context.query.text("resourceVersion");
        let entry = server
            .registry
            .get(
                resource,
                &context.info.namespace,
                &context.info.name,
                version,
            )
            .await?;
        let object = entry.tree_as(resource)?;
        check_scalable(resource, &object)?;
        let scale = scale_of(resource, &object);
        return respond::object_response(context, 200, None, schema, &scale);
    }
    if context.info.verb == "patch" && apply::is_apply(context) {
        return apply::handle_apply_scale(server, context, resource, schema, body).await;
    }
    let mut write = options::parse_write(context, resource, "UpdateOptions")?;
    let scale = if context.info.verb == "patch" {
        // Patched as a Scale, so that a patch through this path reaches only the replicas.
        let patch = Patch::parse(context, resource, body)?;
        let change = |old: &Value| patch.apply_to(schema, old);
        server
            .registry
            .update_scale(&mut write, &change, false)
            .await?
    } else {
        let body = read_body(context, subresource, &body, &mut write)?;
        let change = move |_: &Value| Ok(body.clone());
        server
            .registry
            .update_scale(&mut write, &change, true)
            .await?
    };
    Ok(respond::with_warnings(
        respond::object_response(context, 200, None, schema, &scale)?,
        &write.warnings,
    ))
}

async fn handle_bind(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    subresource: &Subresource,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let mut write = options::parse_write(context, resource, "CreateOptions")?;
    let binding = read_body(context, subresource, &body, &mut write)?;
    server.registry.bind_pod(&mut write, binding).await?;
    created_response(context)
}

async fn handle_evict(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    subresource: &Subresource,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let mut write = options::parse_write(context, resource, "CreateOptions")?;
    let body = read_body(context, subresource, &body, &mut write)?;
    server
        .registry
        .evict_pod(&mut write, Eviction { body })
        .await?;
    created_response(context)
}

fn created_response(context: &Context) -> Result<Response<Body>, ApiError> {
    // Bindings and evictions have no state to return; upstream responds with a Status of code 201.
    let status = Status {
        code: 201,
        ..Status::success(None)
    };
    respond::audited_status_response(context, &status)
}

async fn handle_token(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    subresource: &Subresource,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let mut write = options::parse_write(context, resource, "CreateOptions")?;
    let request = read_body(context, subresource, &body, &mut write)?;
    let issued = server.registry.request_token(&mut write, request).await?;
    respond::object_response(context, 201, None, body_schema(subresource)?, &issued)
}

async fn handle_finalize(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let mut write = options::parse_write(context, resource, "UpdateOptions")?;
    let expected = Expected {
        api_version: &resource.api_version(),
        kind: &resource.kind,
        schema: &resource.schema,
    };
    let strictness = decode::parse_strictness(context, "UpdateOptions")?;
    let namespace =
        decode::decode_object(context, expected, &body, strictness, &mut write.warnings)?;
    // The namespace controller removes the finalizer `kubernetes` here once the content is deleted.
    let updated = server
        .registry
        .finalize_namespace(&mut write, &namespace)
        .await?;
    respond::object_response(context, 200, Some(resource), &resource.schema, &updated)
}
