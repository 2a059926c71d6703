//! Accessors of every built-in object: kind, metadata, and paths in the API.
//!
//! [`Object`] is a blanket trait over k8s-openapi's types, so that controllers need no lists of
//! bounds. [`Target`] names an object of the API without its type: actions carry it, so that one
//! executor serves every kind.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A typed API object with ordinary metadata.
pub trait Object:
    Resource
    + Metadata<Ty = ObjectMeta>
    + Serialize
    + DeserializeOwned
    + client::Decode
    + client::Encode
    + Clone
    + Send
    + Sync
    + std::fmt::Debug
    + 'static
{
}

impl<K> Object for K where
    K: Resource
        + Metadata<Ty = ObjectMeta>
        + Serialize
        + DeserializeOwned
        + client::Decode
        + client::Encode
        + Clone
        + Send
        + Sync
        + std::fmt::Debug
        + 'static
{
}

/// Accessors of metadata; an absent string is returned as an empty one.
pub trait Meta {
    /// Returns the object's metadata.
    fn meta(&self) -> &ObjectMeta;

    /// Returns `metadata.name`.
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// Returns `metadata.namespace`.
    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    /// Returns `metadata.uid`.
    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// Returns `metadata.generation`, 0 if absent.
    fn generation(&self) -> i64 {
        self.meta().generation.unwrap_or_default()
    }

    /// Returns whether deletion was requested.
    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// Returns a label's value.
    fn label(&self, key: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns an annotation's value.
    fn annotation(&self, key: &str) -> Option<&str> {
        self.meta()
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// Returns whether the finalizer is present.
    fn has_finalizer(&self, name: &str) -> bool {
        self.meta().finalizers.iter().flatten().any(|f| f == name)
    }

    /// Returns the controller owner reference.
    fn controller(&self) -> Option<&OwnerReference> {
        api_semantics::owners::controller_of(self.meta())
    }

    /// Returns whether `uid` is this object's controller.
    fn is_controlled_by(&self, uid: &str) -> bool {
        api_semantics::owners::is_controlled_by(self.meta(), uid)
    }

    /// Returns the creation time in whole seconds since the epoch, 0 if absent.
    fn created_at(&self) -> i64 {
        self.meta()
            .creation_timestamp
            .as_ref()
            .map_or(0, |t| t.0.as_second())
    }

    /// Returns the queue key: `namespace/name`, or `name` for a cluster-scoped object.
    fn key(&self) -> String {
        match self.meta().namespace.as_deref() {
            Some(ns) if !ns.is_empty() => format!("{ns}/{}", self.name()),
            _ => self.name().to_owned(),
        }
    }
}

impl<K: client::Object> Meta for K {
    fn meta(&self) -> &ObjectMeta {
        client::Object::meta(self)
    }
}

/// Splits a queue key into namespace and name.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// An object of the API, without its Rust type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind, as in TypeMeta.
    pub kind: String,
    /// Plural resource name in paths.
    pub plural: String,
    /// Namespace; None for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Object name; empty for a create with `generateName`.
    pub name: String,
    /// UID, if known.
    pub uid: Option<String>,
}

impl Target {
    /// Returns the target of a typed object.
    pub fn of<K: Object>(object: &K) -> Self {
        Self {
            uid: object.meta().uid.clone(),
            ..Self::with_name::<K>(object.meta().namespace.as_deref(), object.name())
        }
    }

    /// Returns a target by name alone.
    pub fn with_name<K: Object>(namespace: Option<&str>, name: &str) -> Self {
        Self {
            group: K::GROUP.to_owned(),
            version: K::VERSION.to_owned(),
            kind: K::KIND.to_owned(),
            plural: K::URL_PATH_SEGMENT.to_owned(),
            // An empty namespace would become an empty segment of the path.
            namespace: namespace.filter(|ns| !ns.is_empty()).map(str::to_owned),
            name: name.to_owned(),
            uid: None,
        }
    }

    /// Returns `group/version`, or the version alone for core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the collection's path.
    pub fn collection(&self) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match &self.namespace {
            Some(ns) => format!("{root}/namespaces/{ns}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    /// Returns the object's path.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// Returns the queue key.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(ns) => format!("{ns}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Returns an object reference for events.
pub fn object_reference<K: Object>(object: &K) -> ObjectReference {
    let meta = object.meta();
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

/// Returns the object as a JSON tree, with kind and apiVersion.
pub fn to_tree<K: Object>(object: &K) -> Value {
    serde_json::to_value(object).unwrap_or(Value::Null)
}

/// Drops nulls, empty maps and empty lists, so that two trees compare as Go's semantic equality
/// does.
pub fn normalize_tree(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(k, v)| (k, normalize_tree(v)))
                .filter(|(_, v)| !is_empty(v))
                .collect(),
        ),
        // Empty elements of a list stay, because their position has a meaning.
        Value::Array(list) => Value::Array(list.into_iter().map(normalize_tree).collect()),
        other => other,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Returns whether two values are semantically equal: absent, null and empty are the same.
/// Serializes only values that differ.
pub fn semantically_equal<T: Serialize + PartialEq>(a: &T, b: &T) -> bool {
    if a == b {
        return true;
    }
    let tree = |v: &T| serde_json::to_value(v).map(normalize_tree).ok();
    tree(a) == tree(b)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::json;

    #[test]
    fn paths_follow_group_version_and_scope() {
        let pod = Target::with_name::<Pod>(Some("n"), "p");
        assert_eq!(pod.path(), "/api/v1/namespaces/n/pods/p");
        let node = Target::with_name::<Node>(None, "a");
        assert_eq!(
            (node.path(), node.key()),
            ("/api/v1/nodes/a".to_owned(), "a".to_owned())
        );
        let deployment = Target::with_name::<Deployment>(Some("n"), "d");
        assert_eq!(
            deployment.collection(),
            "/apis/apps/v1/namespaces/n/deployments"
        );
        assert_eq!(deployment.api_version(), "apps/v1");
    }

    #[test]
    fn absent_null_and_empty_fields_are_semantically_equal() {
        let full = json!({"a": {"b": null, "c": [], "d": {}}, "e": 0});
        assert!(semantically_equal(&full, &json!({"e": 0})));
        assert!(!semantically_equal(&full, &json!({"e": 1})));
    }

    #[test]
    fn keys_are_split_into_namespace_and_name() {
        assert_eq!(split_key("n/p"), ("n", "p"));
        assert_eq!(split_key("node"), ("", "node"));
    }
}
