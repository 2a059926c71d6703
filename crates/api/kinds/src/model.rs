//! Types of the table.

use api_schema::Message;

/// A resource in one version (REST mapping).
#[derive(Debug)]
pub struct Resource {
    /// API group; empty for core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Kind of its list.
    pub list_kind: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Short names.
    pub short_names: Vec<&'static str>,
    /// Categories, such as `all`.
    pub categories: Vec<&'static str>,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// Verbs in the order of discovery.
    pub verbs: Vec<&'static str>,
    /// Schema of the object.
    pub message: &'static Message,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Fields for field selectors, including `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<&'static str>,
    /// Storage of the objects; `None` for reviews and other kinds that are not stored.
    pub storage: Option<Storage>,
    /// True if v1.36 serves this version by default (stable, or beta enabled by default).
    pub served: bool,
}

impl Resource {
    /// Returns `group/version`, or the version alone for core.
    pub fn api_version(&self) -> String {
        // The core group has no name, and its version stands alone in objects.
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns `plural.group`, or the plural alone for core, like upstream's `GroupResource`.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
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
#[derive(Debug)]
pub struct Storage {
    /// Path below the server's prefix (`/registry`): `/pods`, `/services/specs`,
    /// `/apiregistration.k8s.io/apiservices`. An object's key appends `/NAMESPACE/NAME` or `/NAME`.
    pub prefix: &'static str,
    /// Group and version in which objects are stored (`apps/v1`), which may differ from the served
    /// one.
    pub api_version: &'static str,
    /// Schema of the stored version.
    pub message: &'static Message,
}

/// A subresource.
#[derive(Debug)]
pub struct Subresource {
    /// Name in the path, such as `status`.
    pub name: &'static str,
    /// Group of its kind.
    pub group: &'static str,
    /// Version of its kind.
    pub version: &'static str,
    /// Kind of its body, such as `Scale`.
    pub kind: &'static str,
    /// Verbs in the order of discovery.
    pub verbs: Vec<&'static str>,
    /// Schema of its body, if it has one.
    pub message: Option<&'static Message>,
}

/// An API group.
#[derive(Debug)]
pub struct Group {
    /// Name; empty for core.
    pub name: &'static str,
    /// Versions served by default, the preferred one first.
    pub versions: Vec<&'static str>,
}

/// A group and version as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupVersion {
    /// API group; empty for core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
}
