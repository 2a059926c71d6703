//! Applies a webhook's JSON patch, and bounds what it may change.

use crate::kinds::{GroupVersionResource, Kinds};
use crate::outcome::HookError;
use crate::response::Response;
use api_meta::{ApiError, Meta};
use api_patch::json_patch;
use apiserver_fields::check_managed_fields;
use serde_json::Value;

/// Metadata that only the server sets; a webhook's values are dropped.
const SYSTEM_FIELDS: [&str; 6] = [
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "selfLink",
];

const MANAGED_FIELDS: &str = "managedFields";

/// The object before and after a patch.
pub struct Patched {
    pub object: Value,
    /// A warning for the client.
    pub warning: Option<String>,
}

/// The place of an object.
pub struct PatchTarget<'a> {
    pub hook: &'a str,
    pub resource: &'a GroupVersionResource,
    pub subresource: &'a str,
}

/// Applies the patch of a response to an object in canonical form; None if there is no operation.
///
/// # Errors
/// A patch that can't be decoded or applied, or that changes the identity of the object.
pub fn apply_response(
    target: &PatchTarget<'_>,
    kinds: &dyn Kinds,
    object: &Value,
    response: &Response,
) -> Result<Option<Patched>, HookError> {
    let operations: Vec<Value> = match serde_json::from_slice(&response.patch) {
        Ok(operations) => operations,
        // No patch at all is valid, although it is no JSON.
        Err(_) if response.patch.is_empty() => return Ok(None),
        Err(error) => {
            return Err(HookError::Calling {
                code: 503,
                why: format!("received undecodable patch in webhook response: {error}"),
            });
        }
    };
    // As upstream, before the type is checked: an empty list needs none.
    if operations.is_empty() {
        return Ok(None);
    }
    if response.patch_type != "JSONPatch" {
        return Err(HookError::Calling {
            code: 400,
            why: format!("unsupported patch type {:?}", response.patch_type),
        });
    }
    // Upstream fails the request for a patch that does not apply, whatever the failure policy.
    let internal = |why: String| HookError::Internal(ApiError::internal(why));
    if !object.is_object() {
        return Err(internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            target.hook
        )));
    }
    // The paths refer to the form that the webhook has received.
    let explicit = kinds.explicit_object(target.resource, target.subresource, object);
    let patched = json_patch(explicit, &response.patch).map_err(|e| internal(e.to_string()))?;
    // Upstream decodes the result into the Go type, which rejects wrong types.
    let mut patched = kinds
        .decode_object(target.resource, target.subresource, patched)
        .map_err(internal)?;
    let warning = bound_mutation(object, &mut patched).map_err(|field| {
        internal(format!(
            "admission webhook {:?} attempted to change {field}, which is not allowed",
            target.hook
        ))
    })?;
    Ok(Some(Patched {
        object: patched,
        warning,
    }))
}

/// Restores the metadata that only the server sets, and managed fields that are broken. Returns the
/// warning for the client.
///
/// # Errors
/// The field of the object's identity that was changed.
pub fn bound_mutation(before: &Value, after: &mut Value) -> Result<Option<String>, &'static str> {
    if let Some(field) = changed_identity(before, after) {
        return Err(field);
    }
    restore_system_fields(before, after);
    Ok(restore_managed_fields(before, after))
}

/// Returns the first field of the object's identity that differs. The store's key is made of the
/// name that was authorized. A create without a name was authorized for any, so that a webhook may
/// set one, as upstream.
fn changed_identity(before: &Value, after: &Value) -> Option<&'static str> {
    let at = |object: &Value, pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let has_name = !at(before, "/metadata/name").is_empty();
    [
        ("apiVersion", "/apiVersion"),
        ("kind", "/kind"),
        ("metadata.name", "/metadata/name"),
        ("metadata.namespace", "/metadata/namespace"),
        ("metadata.uid", "/metadata/uid"),
    ]
    .into_iter()
    .filter(|(field, _)| has_name || *field != "metadata.name")
    .find(|(_, pointer)| at(before, pointer) != at(after, pointer))
    .map(|(field, _)| field)
}

fn restore_system_fields(before: &Value, after: &mut Value) {
    SYSTEM_FIELDS
        .iter()
        .for_each(|field| restore_field(before, after, field));
}

fn restore_field(before: &Value, after: &mut Value, field: &str) {
    let value = before.metadata().and_then(|metadata| metadata.get(field));
    match value.cloned() {
        Some(value) => {
            after.metadata_mut().insert(field.to_owned(), value);
        }
        // Only if present: bodies of subresources may have no metadata, and must not get any.
        None if after.metadata().is_some_and(|m| m.contains_key(field)) => {
            after.metadata_mut().remove(field);
        }
        None => {}
    }
}

/// Restores managed fields that a webhook has broken; returns the warning.
fn restore_managed_fields(before: &Value, after: &mut Value) -> Option<String> {
    let list = |object: &Value| object.metadata()?.get(MANAGED_FIELDS).cloned();
    let changed = list(after);
    if changed == list(before) {
        return None;
    }
    match check_managed_fields(after) {
        Err(problem) => {
            restore_field(before, after, MANAGED_FIELDS);
            Some(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {problem}"
            ))
        }
        Ok(()) => {
            // An empty list and none are the same in the store.
            if changed
                .as_ref()
                .and_then(Value::as_array)
                .is_some_and(Vec::is_empty)
            {
                after.metadata_mut().remove(MANAGED_FIELDS);
            }
            None
        }
    }
}
