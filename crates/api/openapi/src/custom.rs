//! The custom resources that documents describe.

use std::sync::Arc;

use api_kinds::{Resource, ResourceSet};
use serde_json::Value;

/// A CustomResourceDefinition. Only the build of a document reads it: the index would be slow if it
/// decoded every definition.
pub trait Definition: Send + Sync {
    /// Returns the revision of the definition in the store.
    fn revision(&self) -> i64;
    /// Decodes the definition; `None` if it can't be read.
    fn load(&self) -> Option<Value>;
}

/// The served versions of custom resources with their definitions, sorted. A document is built
/// from the definition, because the model of a schema keeps no descriptions.
#[derive(Clone, Default)]
pub struct CustomResources(Vec<CustomVersion>);

/// A served version of a custom resource.
#[derive(Clone)]
pub(crate) struct CustomVersion {
    pub(crate) resource: Arc<Resource>,
    pub(crate) definition: Arc<dyn Definition>,
}

impl CustomResources {
    /// Collects the served custom resources of a set. `find` returns a definition by its name; a
    /// resource without one is left out.
    pub fn new(set: &ResourceSet, find: impl Fn(&str) -> Option<Arc<dyn Definition>>) -> Self {
        let served = set.served().filter(|resource| resource.is_custom());
        let mut versions: Vec<CustomVersion> = served
            .filter_map(|resource| {
                Some(CustomVersion {
                    definition: find(&resource.group_resource())?,
                    resource: resource.clone(),
                })
            })
            .collect();
        versions.sort_by(|a, b| a.key().cmp(&b.key()));
        CustomResources(versions)
    }

    /// Returns all of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CustomVersion> {
        self.0.iter()
    }

    /// Returns each group and version once.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.0
            .chunk_by(|a, b| a.group_version() == b.group_version())
            .filter_map(|chunk| chunk.first().map(CustomVersion::group_version))
    }

    /// Returns the resources of a group and version.
    pub(crate) fn of_version(&self, group: &str, version: &str) -> &[CustomVersion] {
        let key = (group, version);
        let start = self.0.partition_point(|v| v.group_version() < key);
        let end = self.0.partition_point(|v| v.group_version() <= key);
        self.0.get(start..end).unwrap_or_default()
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
