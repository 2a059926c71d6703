//! The context and helpers that plugins share.

use crate::quota_store::QuotaStore;
use api_meta::{ApiError, tree};
use apiserver_request::{Admission, AdmissionRequest, Authorizer, GroupResource, Objects};
use serde_json::Value;
use std::sync::Arc;

/// The parts of the server that plugins can access.
#[derive(Clone)]
pub struct Context {
    /// The watch caches.
    pub objects: Arc<dyn Objects>,
    /// The authorizer.
    pub authorizer: Arc<dyn Authorizer>,
    /// Writes quota usage.
    pub quotas: Arc<dyn QuotaStore>,
    /// The plugins that call webhooks.
    pub webhooks: WebhookPlugins,
    /// The plugins that evaluate policies.
    pub policies: PolicyPlugins,
    /// Minor version of the release that is emulated.
    pub emulated_minor: u32,
}

/// The plugins that evaluate policies. The server builds them, because they read all its kinds.
#[derive(Clone)]
pub struct PolicyPlugins {
    /// `MutatingAdmissionPolicy`
    pub mutating: Arc<dyn Admission>,
    /// `ValidatingAdmissionPolicy`
    pub validating: Arc<dyn Admission>,
}

/// The plugins that call webhooks. The server builds them, because they have connections.
#[derive(Clone)]
pub struct WebhookPlugins {
    /// `MutatingAdmissionWebhook`
    pub mutating: Arc<dyn Admission>,
    /// `ValidatingAdmissionWebhook`
    pub validating: Arc<dyn Admission>,
}

impl Context {
    /// Returns an object from the watch cache, or from the store if the cache does not have it.
    pub async fn find_object(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Value>>, ApiError> {
        // A miss is not proof of absence: the cache may lag behind an object that the client just
        // created.
        let resource = GroupResource::new(group, resource);
        if let Some(object) = self.objects.cached_object(&resource, namespace, name) {
            return Ok(Some(object));
        }
        Ok(self
            .objects
            .read_live(&resource, namespace, name)
            .await?
            .map(Arc::new))
    }

    /// Lists the cached objects of a resource in a namespace (empty: in all).
    pub fn list_objects(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        self.objects.cached_list(
            &GroupResource::new(group, resource),
            (!namespace.is_empty()).then_some(namespace),
        )
    }
}

/// Builds a 403 with the message `pods "x" is forbidden: why`.
pub fn forbidden_error(request: &AdmissionRequest<'_>, why: impl AsRef<str>) -> ApiError {
    let generated = || {
        request
            .object
            .pointer("/metadata/generateName")
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    // A create with generateName has no name before the registry generates one.
    let name = if request.name.is_empty() {
        generated()
    } else {
        request.name
    };
    // Clients and tests match this message, which upstream builds in the same form.
    ApiError::forbidden(request.group, request.resource, name, why.as_ref())
}

/// Returns whether the request is for `resource` of `group` itself, not for a subresource.
pub fn is_for(request: &AdmissionRequest<'_>, group: &str, resource: &str) -> bool {
    request.group == group && request.resource == resource && request.subresource.is_empty()
}

/// Returns the string at a JSON pointer without escapes, empty if absent.
pub fn string_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = tree::find(value, pointer);
    found.and_then(Value::as_str).unwrap_or_default()
}

/// Returns the elements of the list at a JSON pointer without escapes.
pub fn list_at<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let found = tree::find(value, pointer).and_then(Value::as_array);
    found.map(Vec::as_slice).unwrap_or_default()
}

/// Appends to a list field, creating it if absent.
pub fn push_item(object: &mut Value, field: &str, item: Value) {
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(list) => list.push(item),
        None => object[field] = Value::Array(vec![item]),
    }
}
