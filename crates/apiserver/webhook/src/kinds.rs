//! Kinds and resources, and what admission has to know about them.

use api_meta::ApiError;
use serde_json::{Value, json};
use std::fmt;

/// A resource in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionResource {
    /// API group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural name.
    pub resource: String,
}

/// A kind in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionKind {
    /// API group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// The resource and kind of a review.
pub type ReviewTarget = (GroupVersionResource, GroupVersionKind);

impl GroupVersionResource {
    /// Creates a resource of `group` (empty for core).
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        GroupVersionResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"group": self.group, "version": self.version, "resource": self.resource})
    }
}

impl GroupVersionKind {
    /// Creates a kind of `group` (empty for core).
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
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

    pub(crate) fn to_json(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

/// The served kinds: versions, conversion, encoding and defaulting. The server implements it over
/// its table of resources.
#[async_trait::async_trait]
pub trait Kinds: Send + Sync {
    /// Returns the kind of the body of a resource or subresource.
    fn find_kind(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
    ) -> Option<GroupVersionKind>;
    /// Returns the other resources that serve the same stored objects, such as `events` of core and
    /// of `events.k8s.io`.
    fn equivalent_resources(&self, resource: &GroupVersionResource) -> Vec<GroupVersionResource>;
    /// Converts an object to another of its equivalent resources. A custom resource is converted by
    /// the strategy of its definition, and is neither pruned nor defaulted.
    ///
    /// # Errors
    /// The object has no form there, or the conversion webhook fails.
    async fn convert_object(
        &self,
        object: Value,
        from: &GroupVersionResource,
        to: &GroupVersionResource,
    ) -> Result<Value, ApiError>;
    /// Returns the object in the form of the API, with the empty fields that Go's encoder writes.
    fn explicit_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: &Value,
    ) -> Value;
    /// Appends the JSON of the object in the form of [`Kinds::explicit_object`].
    fn encode_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: &Value,
        out: &mut Vec<u8>,
    );
    /// Checks a changed object against its type and makes it canonical.
    ///
    /// # Errors
    /// A field of the wrong type.
    fn decode_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: Value,
    ) -> Result<Value, String>;
    /// Sets the defaults of absent fields.
    fn default_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: &mut Value,
    );
}
