//! DELETE of one object and of collections.

use super::options;
use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::list_body::Encodings;
use crate::lists;
use crate::respond;
use crate::server::Server;
use api_codec::list::ListMeta;
use api_kinds::Resource;
use api_meta::{ApiError, Details, Meta, Status};
use api_schema::schema;
use apiserver_registry::{DeleteOptions, DeleteOutcome, warn_about_orphans};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use std::sync::Arc;

const OPTIONS: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Kinds whose DELETE returns the last state instead of a Status.
const RETURNED: [(&str, &str); 18] = [
    ("", "pods"),
    ("", "podtemplates"),
    ("", "serviceaccounts"),
    ("", "resourcequotas"),
    ("", "persistentvolumes"),
    ("", "persistentvolumeclaims"),
    ("", "services"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattributesclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "devicetaintrules"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("resource.k8s.io", "resourcepoolstatusrequests"),
    ("resource.k8s.io", "resourceslices"),
];

/// Handles DELETE of an object.
pub async fn handle_delete(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    // Checked first: after the delete it would be too late for a 406.
    context.object_media_type(resource)?;
    let mut write = options::parse_write(context, resource, "DeleteOptions")?;
    let options = read_options(context, &body)?;
    let warning = warn_about_orphans(resource, &options);
    let deleted = server.registry.delete(&mut write, &options).await;
    let deleted = deleted.map_err(|error| add_warning(error, warning))?;
    write.warnings.extend(warning.map(str::to_owned));
    // An object that finalizers keep is returned, so that the client sees its deletionTimestamp.
    let response =
        match deleted.removed && !RETURNED.contains(&(&*resource.group, &*resource.plural)) {
            true => respond::audited_status_response(context, &success_status(resource, &deleted))?,
            false => {
                // Other deletes that take time keep the 200, as upstream: a 202 would break
                // existing clients.
                let accepted = !deleted.removed && options.cascades_explicitly;
                respond::object_response(
                    context,
                    if accepted { 202 } else { 200 },
                    Some(resource),
                    &resource.schema,
                    &deleted.object,
                )?
            }
        };
    Ok(respond::with_warnings(response, &write.warnings))
}

/// Adds a warning to an error: as upstream, a delete that fails warns as well.
fn add_warning(mut error: ApiError, warning: Option<&str>) -> ApiError {
    error.warnings.extend(warning.map(str::to_owned));
    error
}

fn success_status(resource: &Resource, deleted: &DeleteOutcome) -> Status {
    Status::success(Some(Details {
        name: deleted.object.name().to_owned(),
        group: resource.group.clone().into_owned(),
        kind: resource.plural.clone().into_owned(),
        uid: deleted.object.uid().to_owned(),
        ..Details::default()
    }))
}

/// Handles DELETE of a collection.
pub async fn delete_collection(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    // Checked first: after the deletes it would be too late for a 406.
    context.list_media_type(resource)?;
    let write = options::parse_write(context, resource, "DeleteOptions")?;
    let options = read_options(context, &body)?;
    let query = options::list_query(context, resource)?;
    let warning = warn_about_orphans(resource, &options);
    let registry = &server.registry;
    let done = registry.delete_collection(&write, &query, &options).await;
    let done = done.map_err(|error| add_warning(error, warning))?;
    let meta = ListMeta {
        resource_version: done.revision.to_string(),
        ..ListMeta::default()
    };
    // The objects are no longer in the cache, so that no later reader needs their encodings.
    let response =
        lists::list_response(context, resource, done.entries, &meta, Encodings::Dropped).await?;
    let warnings: Vec<String> = warning.map(str::to_owned).into_iter().collect();
    Ok(respond::with_warnings(response, &warnings))
}

/// Reads the options from the body, or from the query if there is no body.
fn read_options(context: &Context, body: &[u8]) -> Result<DeleteOptions, ApiError> {
    // kubectl sends a body, curl users the query. A body replaces the query, except for dryRun.
    let mut raw = if body.is_empty() {
        from_query(context)?
    } else {
        from_body(context, body)?
    };
    if context.query.dry_run("DeleteOptions")? {
        raw["dryRun"] = json!(["All"]);
    }
    DeleteOptions::parse(raw)
}

fn from_body(context: &Context, body: &[u8]) -> Result<Value, ApiError> {
    let message = schema()
        .message(OPTIONS)
        .ok_or_else(|| ApiError::internal("the schema has no DeleteOptions"))?;
    decode::decode_options(context, "DeleteOptions", message, body)
}

fn from_query(context: &Context) -> Result<Value, ApiError> {
    let mut raw = json!({});
    if let Some(seconds) = context.query.number("gracePeriodSeconds")? {
        raw["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(policy) = context.query.first("propagationPolicy") {
        raw["propagationPolicy"] = policy.into();
    }
    if let Some(orphan) = context.query.switch("orphanDependents") {
        raw["orphanDependents"] = orphan.into();
    }
    Ok(raw)
}
