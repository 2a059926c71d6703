//! The namespace of a request, as expressions see it.

use api_meta::ApiError;
use api_meta::tree::{entries, get};
use apiserver_request::Objects;
use apiserver_webhook::{Attributes, GroupVersionResource, Kinds, read_namespace};
use serde_json::{Map, Value};

/// Managed fields and owners are left out, as upstream.
const METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
];

/// Returns `namespaceObject`; null for cluster-scoped objects and namespaces.
///
/// # Errors
/// The namespace does not exist.
pub async fn find_namespace_object(
    attributes: &Attributes<'_>,
    kinds: &dyn Kinds,
    objects: &dyn Objects,
) -> Result<Value, ApiError> {
    // A namespace has itself as its namespace. Upstream unsets that as well.
    if attributes.is_namespace() || attributes.namespace.is_empty() {
        return Ok(Value::Null);
    }
    let found = read_namespace(attributes.namespace, objects).await?;
    let resource = GroupVersionResource::new("", "v1", "namespaces");
    // As for the object, fields that Go always writes are present.
    let found = kinds.explicit_object(&resource, "", &found);
    Ok(select_fields(&found))
}

fn select_fields(namespace: &Value) -> Value {
    let known =
        entries(namespace, "metadata").filter(|(name, _)| METADATA.contains(&name.as_str()));
    let metadata: Map<String, Value> = known
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut object = Map::new();
    object.insert("metadata".to_owned(), Value::Object(metadata));
    for field in ["spec", "status"] {
        object.insert(field.to_owned(), get(namespace, field).clone());
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_see_no_owners_of_a_namespace() {
        let namespace = json!({"kind": "Namespace", "spec": {"finalizers": ["kubernetes"]},
            "metadata": {"name": "n", "labels": {"a": "b"}, "managedFields": [{}],
                "ownerReferences": [{}]}});
        let expect = json!({"spec": {"finalizers": ["kubernetes"]}, "status": null,
            "metadata": {"name": "n", "labels": {"a": "b"}}});
        assert_eq!(select_fields(&namespace), expect);
    }
}
