//! The types of the table.

use api_schema::Message;

/// A resource in one version.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Kind of a list of them.
    pub list_kind: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Short names.
    pub short_names: Vec<&'static str>,
    /// Categories, such as `all`.
    pub categories: Vec<&'static str>,
    /// True when objects live in namespaces.
    pub namespaced: bool,
    /// Verbs as discovery lists them.
    pub verbs: Vec<&'static str>,
    /// Schema of the object.
    pub message: &'static Message,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Fields that field selectors may name, `metadata.name` and `metadata.namespace` included.
    pub selectable_fields: Vec<&'static str>,
    /// How and where objects are stored; `None` for reviews and other kinds that are only answered.
    pub storage: Option<Storage>,
    /// True when v1.36 serves this version without being asked (stable, or beta on by default).
    pub served: bool,
}

impl Resource {
    /// `group/version`, or the version alone for core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `plural.group`, or the plural alone for core: `GroupResource` as texts name it.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// True when the verb is served.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }
}

/// How a resource is stored.
#[derive(Debug)]
pub struct Storage {
    /// What follows the server's prefix (`/registry`): `/pods`, `/services/specs`, `/apiregistration.k8s.io/apiservices`.
    /// The object's key appends `/NAMESPACE/NAME` or `/NAME`.
    pub prefix: &'static str,
    /// Group and version in which objects are written (`apps/v1`), which may be another than the served one.
    pub api_version: &'static str,
    /// Schema of the stored version.
    pub message: &'static Message,
}

/// A subresource.
#[derive(Debug)]
pub struct Subresource {
    /// Name after the slash: `status`.
    pub name: &'static str,
    /// Group of its kind.
    pub group: &'static str,
    /// Version of its kind.
    pub version: &'static str,
    /// Kind of its body: `Scale`.
    pub kind: &'static str,
    /// Verbs as discovery lists them.
    pub verbs: Vec<&'static str>,
    /// Schema of its body, where it has one.
    pub message: Option<&'static Message>,
}

/// An API group.
#[derive(Debug)]
pub struct Group {
    /// Name, empty for core.
    pub name: &'static str,
    /// Versions that are served by default, preferred first.
    pub versions: Vec<&'static str>,
}

/// A group and version as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupVersion {
    /// Group, empty for core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
}
