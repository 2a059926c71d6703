//! Labels that selectors of webhooks are matched with.

use crate::attributes::Attributes;
use api_meta::{ApiError, Selector};
use apiserver_request::{GroupResource, Objects, Operation};
use serde_json::{Map, Value};

type Labels = Map<String, Value>;

fn labels_of(object: &Value) -> Option<&Labels> {
    object.pointer("/metadata/labels")?.as_object()
}

/// Returns whether the object or the old object matches. A deletion has no object, and a creation
/// no old one.
pub fn matches_objects(selector: &Selector, object: &Value, old: Option<&Value>) -> bool {
    // Both count, so that removing a label does not take an object out of the reach of a webhook.
    let matches = |object: &Value| object.is_object() && selector.matches_map(labels_of(object));
    matches(object) || old.is_some_and(matches)
}

/// The labels of a request's namespace, looked up once for all webhooks.
#[derive(Default)]
pub struct NamespaceLabels(Option<Labels>);

impl NamespaceLabels {
    /// Returns whether the namespace matches. Cluster-scoped objects always do.
    ///
    /// # Errors
    /// 404 if the namespace does not exist.
    pub async fn matches(
        &mut self,
        selector: &Selector,
        attributes: &Attributes<'_>,
        object: &Value,
        objects: &dyn Objects,
    ) -> Result<bool, ApiError> {
        if attributes.is_namespace()
            && attributes.subresource.is_empty()
            && matches!(attributes.operation, Operation::Create | Operation::Update)
        {
            // The labels that the namespace will have. Webhooks may change them, so that they are
            // not kept.
            return Ok(selector.matches_map(labels_of(object)));
        }
        // As upstream, no selector can exempt cluster-scoped objects other than namespaces.
        if attributes.namespace.is_empty() {
            return Ok(true);
        }
        if self.0.is_none() {
            let found = read_namespace(attributes.namespace, objects).await?;
            self.0 = Some(labels_of(&found).cloned().unwrap_or_default());
        }
        Ok(selector.matches_map(self.0.as_ref()))
    }
}

/// Reads a namespace from the cache, or from the store if the cache does not have it.
///
/// # Errors
/// 404 if it does not exist.
pub async fn read_namespace(name: &str, objects: &dyn Objects) -> Result<Value, ApiError> {
    let resource = GroupResource::new("", "namespaces");
    if let Some(found) = objects.cached_object(&resource, "", name) {
        return Ok((*found).clone());
    }
    // The cache may lag behind a namespace that the client has just created.
    let found = objects.read_live(&resource, "", name).await?;
    found.ok_or_else(|| ApiError::not_found("", "namespaces", name))
}
