//! Rewrites objects: an empty server-side apply changes nothing, and lets the server store the
//! object in the storage version.

use client::{Api, ApiResource, Client, Error, ListParams, PartialObject, Patch};
use controllers_runtime::Meta;
use serde_json::{Value, json};

use crate::plan::needs_rewrite;

/// Owner of the applied fields, of which there are none.
const MANAGER: &str = "storage-version-migrator-controller";
/// Objects of a page, of which only the metadata is read.
const PAGE: u32 = 500;

/// Rewrites all objects of a resource that were last written at or before the checkpoint. Returns
/// the cause of a failed migration, `None` after a success.
///
/// # Errors
/// An error that may pass. Objects that were rewritten before are skipped the next time.
pub(crate) async fn rewrite_objects(
    client: &Client,
    resource: &ApiResource,
    checkpoint: &str,
) -> Result<Option<String>, Error> {
    let objects = client.metadata(resource, None);
    let params = ListParams::new().with_limit(PAGE);
    let mut token: Option<String> = None;
    loop {
        let page = objects.page(&params, token.as_deref()).await?;
        for object in &page.items {
            let version = object
                .meta()
                .resource_version
                .as_deref()
                .unwrap_or_default();
            match needs_rewrite(version, checkpoint) {
                None => {
                    return Ok(Some(format!(
                        "resource version is not well formed: {version}"
                    )));
                }
                Some(false) => continue,
                Some(true) => {}
            }
            let namespace = object.meta().namespace.as_deref();
            let patch = Patch::Apply {
                manager: MANAGER.to_owned(),
                force: false,
                object: empty_intent(resource, object.uid(), version),
            };
            let api = client.metadata(resource, namespace);
            match api.patch(object.name(), &patch).await {
                // It has been written since, and so migrated, or deleted.
                Err(error) if error.is_conflict() => {}
                // A webhook may deny with any code, so that the object may exist.
                Err(error) if error.is_not_found() && !is_listed(&api, object).await? => {}
                Err(error) if may_pass(&error) => return Err(error),
                Err(error) => return Ok(Some(error.to_string())),
                Ok(_) => {}
            }
        }
        token = page.metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(None);
        }
    }
}

/// Returns whether an object exists. A list fails if its version is no longer served; a GET would
/// not find the object.
async fn is_listed(api: &Api<PartialObject>, object: &PartialObject) -> Result<bool, Error> {
    let name = format!("metadata.name={}", object.name());
    let found = api.page(&ListParams::new().with_fields(name), None).await?;
    Ok(found.items.iter().any(|other| other.uid() == object.uid()))
}

/// Returns an intent without fields. The UID makes an apply to a deleted object fail instead of
/// creating one.
fn empty_intent(resource: &ApiResource, uid: &str, version: &str) -> Value {
    json!({"apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": {"uid": uid, "resourceVersion": version}})
}

/// Returns whether a request may succeed later, by upstream's list.
fn may_pass(error: &Error) -> bool {
    match error.code() {
        Some(code) => matches!(code, 408 | 429 | 500 | 503 | 504),
        // The connection failed; other errors without a status would return with each try.
        None => error.is_unavailable(),
    }
}
