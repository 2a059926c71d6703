//! Namespaces: kept by `spec.finalizers` until their content is deleted.

use crate::registry::Registry;
use crate::update::{Mode, Update};
use crate::write::Write;
use api_kinds::Resource;
use api_meta::{ApiError, meta};
use serde_json::{Map, Value};

fn is_namespace(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// Returns whether a namespace still has finalizers in its spec.
pub(crate) fn is_held(resource: &Resource, object: &Value) -> bool {
    let finalizers = object.pointer("/spec/finalizers").and_then(Value::as_array);
    is_namespace(resource) && finalizers.is_some_and(|f| !f.is_empty())
}

/// Sets the phase Terminating of a namespace whose deletion was requested.
pub(crate) fn mark_terminating(resource: &Resource, object: &mut Value) {
    if is_namespace(resource) {
        meta::object_at(object, "status").insert("phase".into(), "Terminating".into());
    }
}

impl Registry {
    /// Handles PUT of `namespaces/NAME/finalize`: takes only `spec.finalizers` from `body`.
    pub async fn finalize_namespace(
        &self,
        write: &mut Write,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let finalizers = body
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let version = api_meta::Meta::resource_version(body).to_owned();
        let change = move |old: &Value| {
            let mut new = old.clone();
            // The precondition of the client: the namespace controller decided on this version's
            // content.
            api_meta::Meta::set_meta_str(&mut new, "resourceVersion", &version);
            let spec = meta::object_at(&mut new, "spec");
            if finalizers.is_empty() {
                *spec = Map::new();
            } else {
                spec.insert("finalizers".into(), finalizers.clone().into());
            }
            Ok(new)
        };
        self.update(
            write,
            &Update {
                change: &change,
                replaces: true,
                mode: Mode::Full,
            },
        )
        .await
    }
}
