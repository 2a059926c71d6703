//! A kind in all its versions, stored under one prefix.

use crate::kept_tree::TreeBudget;
use api_kinds::{Name, ObjectSchema, Resource};
use apiserver_convert::Part;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A stored kind.
#[derive(Clone, Debug)]
pub struct StoredKind {
    /// Prefix below the server's: `/pods`, `/apiregistration.k8s.io/apiservices`.
    pub prefix: Name,
    /// The storage version.
    pub resource: Arc<Resource>,
    /// All served versions; of a built-in kind, the stable ones too.
    pub rows: Vec<Arc<Resource>>,
    /// The versions in which fields may have owners: all, because objects are converted to those
    /// that are not served as well.
    pub owner_versions: Vec<Arc<Resource>>,
    /// Selectable fields of custom resources that only other versions declare, each with one of
    /// these versions.
    pub other_fields: Vec<(Name, Arc<Resource>)>,
    /// The parts of a stored message that single readers need.
    pub(crate) parts: MessageParts,
    /// The memory of the trees that entries keep.
    pub(crate) trees: TreeBudget,
}

/// Parts of the messages of a built-in kind.
#[derive(Clone, Debug)]
pub(crate) struct MessageParts {
    /// Labels and selectable fields.
    pub(crate) selected: Part,
    /// The object without managedFields, for observers.
    pub(crate) observed: Part,
}

impl MessageParts {
    fn new(resource: &Resource) -> Self {
        let ObjectSchema::BuiltIn(message) = &resource.schema else {
            return MessageParts {
                selected: Part::Whole,
                observed: Part::Whole,
            };
        };
        let fields = resource.selectable_fields.iter();
        let fields = fields.flat_map(|field| api_kinds::selectable_paths(resource, field));
        MessageParts {
            selected: Part::of_paths(message, fields.chain(["metadata.labels"])),
            observed: Part::without_managed_fields(message),
        }
    }
}

impl StoredKind {
    /// Returns the built-in kinds that are stored and served by default, one for each prefix.
    pub fn stored_kinds() -> Vec<StoredKind> {
        Self::from_built_in(api_kinds::resources())
    }

    /// Groups built-in resources by storage prefix. Stable ones that are disabled stay: the server
    /// itself reads roles, namespaces and webhooks, whether clients can or not.
    pub(crate) fn from_built_in(resources: &[Arc<Resource>]) -> Vec<StoredKind> {
        group_by_prefix(resources, |r| r.served || api_kinds::is_stable(&r.version))
    }

    /// Groups resources in all their versions by storage prefix. Kinds without a served version are
    /// left out.
    pub(crate) fn from_resources(resources: &[Arc<Resource>]) -> Vec<StoredKind> {
        group_by_prefix(resources, |r| r.served)
    }

    fn add_row(&mut self, row: &Arc<Resource>) {
        self.rows.push(row.clone());
        // Built-in kinds name the fields of all their versions in each of them. Those of a version
        // that a converter builds are read from the converted object.
        if !row.is_custom() || row.schema.converter().is_some() {
            return;
        }
        for field in &row.selectable_fields {
            if !self.selectable_names().any(|known| known == field) {
                self.other_fields.push((field.clone(), row.clone()));
            }
        }
    }

    /// Returns the selectable fields of all versions.
    pub(crate) fn selectable_names(&self) -> impl Iterator<Item = &Name> {
        let others = self.other_fields.iter().map(|(field, _)| field);
        self.resource.selectable_fields.iter().chain(others)
    }

    /// Returns whether watchers and encodings of this kind remain valid for `newer`.
    pub(crate) fn serves_watchers_of(&self, newer: &StoredKind) -> bool {
        let still_served = |row: &Arc<Resource>| {
            let mut newer = newer.rows.iter();
            newer.any(|new| {
                new.is_same_version(row) && new.selectable_fields == row.selectable_fields
            })
        };
        self.resource.namespaced == newer.resource.namespaced
            && self.selectable_names().eq(newer.selectable_names())
            && self.rows.iter().all(still_served)
    }

    /// Returns the object's key below the prefix: `NAMESPACE/NAME`, or `NAME`.
    pub fn object_key(&self, namespace: &str, name: &str) -> String {
        if self.resource.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }
}

fn group_by_prefix(
    resources: &[Arc<Resource>],
    is_cached: impl Fn(&Resource) -> bool,
) -> Vec<StoredKind> {
    let mut by_prefix: BTreeMap<Name, StoredKind> = BTreeMap::new();
    for resource in resources.iter().filter(|r| is_cached(r)) {
        let Some(storage) = &resource.storage else {
            continue;
        };
        // Resources of several groups may share a prefix: `events` are served by core and by
        // `events.k8s.io`, and stored once.
        let kind = by_prefix.entry(storage.prefix.clone()).or_insert_with(|| {
            let stored = find_storage_version(resources, resource);
            StoredKind {
                prefix: storage.prefix.clone(),
                resource: stored.clone(),
                rows: Vec::new(),
                owner_versions: Vec::new(),
                other_fields: Vec::new(),
                parts: MessageParts::new(stored),
                trees: TreeBudget::default(),
            }
        });
        kind.add_row(resource);
    }
    for resource in resources {
        let prefix = resource.storage.as_ref().map(|storage| &storage.prefix);
        if let Some(kind) = prefix.and_then(|prefix| by_prefix.get_mut(prefix)) {
            kind.owner_versions.push(resource.clone());
        }
    }
    by_prefix.into_values().collect()
}

/// Returns the version of a resource in which it is stored.
fn find_storage_version<'a>(
    resources: &'a [Arc<Resource>],
    resource: &'a Arc<Resource>,
) -> &'a Arc<Resource> {
    let is_stored = |other: &&Arc<Resource>| {
        let storage = resource.storage.as_ref();
        // Without the prefix: two groups may share one, and each of them has such a version.
        other.plural == resource.plural
            && storage.is_some_and(|storage| other.api_version() == storage.api_version)
    };
    resources.iter().find(is_stored).unwrap_or(resource)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn owner_versions_include_disabled_built_in_versions() {
        let disable = |resource: &Arc<Resource>| {
            let mut resource = Resource::clone(resource);
            resource.served &= (&*resource.group, &*resource.version) != ("autoscaling", "v1");
            Arc::new(resource)
        };
        let resources: Vec<_> = api_kinds::resources().iter().map(disable).collect();
        let kinds = StoredKind::from_built_in(&resources);
        for (group, plural, version) in [
            ("autoscaling", "horizontalpodautoscalers", "autoscaling/v1"),
            ("autoscaling", "horizontalpodautoscalers", "autoscaling/v2"),
            ("apps", "deployments", "apps/v1"),
            // Not served by default.
            (
                "storage.k8s.io",
                "volumeattributesclasses",
                "storage.k8s.io/v1beta1",
            ),
        ] {
            let is_kind =
                |kind: &&StoredKind| kind.resource.group == group && kind.resource.plural == plural;
            let kind = kinds.iter().find(is_kind).unwrap();
            let mut versions = kind.owner_versions.iter().map(|row| row.api_version());
            assert!(versions.any(|known| known == version), "{version}");
        }
    }
}
