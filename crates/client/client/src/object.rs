//! API objects: anything with metadata that JSON can represent.
//!
//! Typed objects are `k8s_openapi` structs. [`DynamicObject`] is an unstructured object of any
//! kind, [`PartialObject`] metadata only. Both work with the same [`crate::Api`] and informers.

use crate::decode::{Decode, Encode};
use crate::object_key::format_key;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// An API object.
pub trait Object:
    Serialize + DeserializeOwned + Decode + Encode + Clone + Send + Sync + 'static
{
    /// Returns the metadata.
    fn meta(&self) -> &ObjectMeta;
    /// Returns the metadata for modification.
    fn meta_mut(&mut self) -> &mut ObjectMeta;
}

impl<K> Object for K
where
    K: k8s_openapi::Metadata<Ty = ObjectMeta>
        + Serialize
        + DeserializeOwned
        + Decode
        + Encode
        + Clone
        + Send
        + Sync
        + 'static,
{
    fn meta(&self) -> &ObjectMeta {
        self.metadata()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.metadata_mut()
    }
}

/// Accessors of an object's metadata.
pub trait ObjectExt: Object {
    /// Returns the name; empty if it is not set.
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace; empty for cluster-scoped objects.
    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    /// Returns the key in stores and queues: `namespace/name`, or `name` for cluster-scoped
    /// objects.
    fn key(&self) -> String {
        format_key(self.namespace(), self.name())
    }

    /// Returns the UID; empty if it is not set.
    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// Returns the resource version; empty if it is not set.
    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    /// Returns the value of a label.
    fn label(&self, key: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str> {
        self.meta()
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// Returns whether deletion was requested.
    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// Returns the owner references.
    fn owners(&self) -> &[OwnerReference] {
        api_semantics::owners::owner_references(self.meta())
    }

    /// Returns the controller owner reference.
    fn controller(&self) -> Option<&OwnerReference> {
        api_semantics::owners::controller_of(self.meta())
    }
}

impl<K: Object> ObjectExt for K {}

/// Returns a reference to a typed object, for events.
pub fn object_reference<K>(object: &K) -> ObjectReference
where
    K: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta>,
{
    let meta = object.metadata();
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// REST mapping of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApiResource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural name, as in URLs.
    pub plural: String,
    /// True if the kind is namespaced.
    pub namespaced: bool,
}

impl ApiResource {
    /// Returns the mapping of a typed kind.
    pub fn of_kind<K: k8s_openapi::Resource>() -> Self {
        Self {
            group: K::GROUP.to_owned(),
            version: K::VERSION.to_owned(),
            kind: K::KIND.to_owned(),
            plural: K::URL_PATH_SEGMENT.to_owned(),
            // k8s-openapi expresses the scope as a type only, without a constant to read.
            namespaced: std::any::type_name::<K::Scope>().contains("Namespace"),
        }
    }

    /// Returns `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns `/api/v1` or `/apis/group/version`.
    pub fn root_path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}

/// An unstructured object of any kind, with typed metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DynamicObject {
    /// API version; empty inside lists.
    pub api_version: String,
    /// Kind; empty inside lists.
    pub kind: String,
    /// The metadata.
    pub metadata: ObjectMeta,
    /// All other fields: `spec`, `status`, `data` and so on.
    pub rest: Map<String, Value>,
}

impl<'de> Deserialize<'de> for DynamicObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = DynamicObject;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DynamicObject, A::Error> {
                let mut object = DynamicObject::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "metadata" {
                        object.metadata = map.next_value::<Option<_>>()?.unwrap_or_default();
                        continue;
                    }
                    match (key.as_str(), map.next_value()?) {
                        ("apiVersion", Value::String(text)) => object.api_version = text,
                        ("kind", Value::String(text)) => object.kind = text,
                        ("apiVersion" | "kind", _) => {}
                        (_, value) => drop(object.rest.insert(key, value)),
                    }
                }
                Ok(object)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl Serialize for DynamicObject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
            if !value.is_empty() {
                map.serialize_entry(key, value)?;
            }
        }
        map.serialize_entry("metadata", &self.metadata)?;
        for (key, value) in &self.rest {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl Object for DynamicObject {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// An object with metadata only (`PartialObjectMetadata`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialObject {
    /// Always `meta.k8s.io/v1`.
    pub api_version: String,
    /// Always `PartialObjectMetadata`.
    pub kind: String,
    /// The metadata.
    pub metadata: ObjectMeta,
}

impl Object for PartialObject {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::object_key::identify;
    use k8s_openapi::api::core::v1::{Namespace, Pod};
    use serde_json::json;

    #[test]
    fn dynamic_objects_round_trip() {
        let value =
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}, "spec": {"b": 1}});
        let object: DynamicObject = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(object.name(), "a");
        assert_eq!(object.rest["spec"]["b"], 1);
        assert_eq!(serde_json::to_value(&object).unwrap(), value);
    }

    #[test]
    fn scope_of_a_typed_kind_is_known() {
        assert!(ApiResource::of_kind::<Pod>().namespaced);
        assert!(!ApiResource::of_kind::<Namespace>().namespaced);
    }

    #[test]
    fn paths_of_the_core_group_and_of_others_differ() {
        let pods = ApiResource::of_kind::<Pod>();
        assert_eq!(
            (pods.root_path().as_str(), pods.api_version().as_str()),
            ("/api/v1", "v1")
        );
        let sets = ApiResource::of_kind::<k8s_openapi::api::apps::v1::ReplicaSet>();
        assert_eq!(sets.root_path(), "/apis/apps/v1");
        assert_eq!(sets.api_version(), "apps/v1");
    }

    #[test]
    fn controller_is_the_owner_that_is_marked_as_such() {
        let owner = |name: &str, controller: Value| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": name, "controller": controller});
        let owners = json!([
            owner("a", Value::Null),
            owner("b", json!(true)),
            owner("c", json!(false))
        ]);
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"ownerReferences": owners}})).unwrap();
        assert_eq!(pod.controller().map(|owner| owner.name.as_str()), Some("b"));
        assert_eq!(pod.owners().len(), 3);
        assert!(Pod::default().controller().is_none());
    }

    #[test]
    fn key_has_a_namespace_only_if_the_object_has_one() {
        for (metadata, want) in [
            (json!({"name": "a", "namespace": "n"}), "n/a"),
            (json!({"name": "a"}), "a"),
            (json!({}), ""),
        ] {
            let tree = json!({"metadata": metadata});
            assert_eq!(identify(tree.to_string().as_bytes()).0, want);
            let object: DynamicObject = serde_json::from_value(tree).unwrap();
            assert_eq!(object.key(), want);
        }
    }
}
