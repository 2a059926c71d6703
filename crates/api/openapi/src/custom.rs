//! The resources that documents describe.

use std::sync::Arc;

use api_kinds::{Group, Resource, ResourceSet};
use serde_json::Value;

/// A CustomResourceDefinition. Only the build of a document reads it: the index would be slow if it
/// decoded every definition.
pub trait Definition: Send + Sync {
    /// Returns the revision of the definition in the store.
    fn revision(&self) -> i64;
    /// Decodes the definition; `None` if it can't be read.
    fn load(&self) -> Option<Value>;
}

/// The served versions of custom resources with their definitions, sorted, beside the built-in
/// resources that are served. A document is built from the definition, because the model of a
/// schema keeps no descriptions.
#[derive(Clone)]
pub struct CustomResources {
    versions: Vec<CustomVersion>,
    // `--runtime-config` decides which ones, so that the static table is not enough.
    built_in: Vec<Arc<Resource>>,
    built_in_groups: Vec<Group>,
    serves_cbor: bool,
}

/// A served version of a custom resource.
#[derive(Clone)]
pub(crate) struct CustomVersion {
    pub(crate) resource: Arc<Resource>,
    pub(crate) definition: Arc<dyn Definition>,
}

impl Default for CustomResources {
    /// Returns no custom resources beside the built-in ones that are served by default.
    fn default() -> Self {
        Self::new(&ResourceSet::new([]), |_| None)
    }
}

impl CustomResources {
    /// Collects the served resources of a set. `find` returns a definition by its name; a
    /// custom resource without one is left out.
    pub fn new(set: &ResourceSet, find: impl Fn(&str) -> Option<Arc<dyn Definition>>) -> Self {
        let (custom, built_in): (Vec<_>, Vec<_>) =
            set.served().partition(|resource| resource.is_custom());
        let mut versions: Vec<CustomVersion> = custom
            .into_iter()
            .filter_map(|resource| {
                Some(CustomVersion {
                    definition: find(&resource.group_resource())?,
                    resource: resource.clone(),
                })
            })
            .collect();
        versions.sort_by(|a, b| a.key().cmp(&b.key()));
        CustomResources {
            versions,
            built_in: built_in.into_iter().cloned().collect(),
            built_in_groups: set.built_in_groups().to_vec(),
            serves_cbor: false,
        }
    }

    /// Lists the media types of CBOR at the built-in resources, if the server has them (gate
    /// `CBORServingAndStorage`).
    #[must_use]
    pub fn with_cbor(self, serves_cbor: bool) -> Self {
        CustomResources {
            serves_cbor,
            ..self
        }
    }

    pub(crate) fn serves_cbor(&self) -> bool {
        self.serves_cbor
    }

    /// Returns the groups and versions with served built-in resources.
    pub(crate) fn built_in_groups(&self) -> &[Group] {
        &self.built_in_groups
    }

    /// Returns the served built-in resources of a group and version.
    pub(crate) fn built_in_of<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        let of_version = move |row: &&Arc<Resource>| row.group == group && row.version == version;
        self.built_in.iter().filter(of_version)
    }

    /// Returns all of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CustomVersion> {
        self.versions.iter()
    }

    /// Returns each group and version once.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.versions
            .chunk_by(|a, b| a.group_version() == b.group_version())
            .filter_map(|chunk| chunk.first().map(CustomVersion::group_version))
    }

    /// Returns the resources of a group and version.
    pub(crate) fn of_version(&self, group: &str, version: &str) -> &[CustomVersion] {
        let key = (group, version);
        let start = self.versions.partition_point(|v| v.group_version() < key);
        let end = self.versions.partition_point(|v| v.group_version() <= key);
        self.versions.get(start..end).unwrap_or_default()
    }
}

impl CustomVersion {
    fn group_version(&self) -> (&str, &str) {
        (&self.resource.group, &self.resource.version)
    }

    fn key(&self) -> (&str, &str, &str) {
        let (group, version) = self.group_version();
        (group, version, &self.resource.plural)
    }
}
