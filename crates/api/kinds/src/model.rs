//! Types of resources.

use std::borrow::Cow;

use crate::ObjectSchema;

/// A name: borrowed from the table for built-in kinds, owned for custom resources.
pub type Name = Cow<'static, str>;

/// A resource in one version (REST mapping).
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group; empty for core.
    pub group: Name,
    /// Version.
    pub version: Name,
    /// Kind.
    pub kind: Name,
    /// Kind of its list.
    pub list_kind: Name,
    /// Name in paths.
    pub plural: Name,
    /// Singular name.
    pub singular: Name,
    /// Short names.
    pub short_names: Vec<Name>,
    /// Categories, such as `all`.
    pub categories: Vec<Name>,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// Verbs in the order of discovery.
    pub verbs: Vec<&'static str>,
    /// Schema of the object.
    pub schema: ObjectSchema,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Fields for field selectors, including `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<Name>,
    /// Storage of the objects; `None` for reviews and other kinds that are not stored.
    pub storage: Option<Storage>,
    /// True if this version is served: of a built-in kind, if v1.36 serves it by default.
    pub served: bool,
}

impl Resource {
    /// Returns `group/version`, or the version alone for core.
    pub fn api_version(&self) -> String {
        // The core group has no name, and its version stands alone in objects.
        if self.group.is_empty() {
            self.version.clone().into_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns `plural.group`, or the plural alone for core, like upstream's `GroupResource`.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone().into_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Returns whether this is a custom resource.
    pub fn is_custom(&self) -> bool {
        matches!(self.schema, ObjectSchema::Custom(_))
    }

    /// Returns whether both are the same version of one resource, even if one was replaced by a
    /// newer description.
    pub fn is_same_version(&self, other: &Resource) -> bool {
        std::ptr::eq(self, other)
            || self.plural == other.plural
                && self.version == other.version
                && self.group == other.group
    }

    /// Returns whether the resource supports a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// Returns the subresource with that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }
}

/// Storage of a resource.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Path below the server's prefix (`/registry`): `/pods`, `/services/specs`,
    /// `/apiregistration.k8s.io/apiservices`. An object's key appends `/NAMESPACE/NAME` or `/NAME`.
    pub prefix: Name,
    /// Group and version in which objects are stored (`apps/v1`), which may differ from the served
    /// one.
    pub api_version: Name,
    /// Schema of the stored version.
    pub schema: ObjectSchema,
    /// Encoding in which objects are written. All are read.
    pub format: StorageFormat,
}

/// The encoding of stored objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageFormat {
    /// Protobuf in upstream's envelope; built-in kinds only.
    Protobuf,
    /// JSON.
    Json,
    /// CBOR; custom resources only.
    Cbor,
}

/// A subresource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// Name in the path, such as `status`.
    pub name: Name,
    /// Group of its kind.
    pub group: Name,
    /// Version of its kind.
    pub version: Name,
    /// Kind of its body, such as `Scale`.
    pub kind: Name,
    /// Verbs in the order of discovery.
    pub verbs: Vec<&'static str>,
    /// Schema of its body, if it has one.
    pub schema: Option<ObjectSchema>,
}

/// An API group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Name; empty for core.
    pub name: Name,
    /// Served versions, the preferred one first.
    pub versions: Vec<Name>,
}

/// A group and version as one value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupVersion {
    /// API group; empty for core.
    pub group: Name,
    /// Version.
    pub version: Name,
}
