//! The resources that the server serves at one time, and their caches.

use crate::kind::StoredKind;
use crate::resource::ResourceCache;
use api_kinds::{Name, Resource, ResourceSet};
use indexmap::{Equivalent, IndexMap};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Group and plural of a resource, borrowed, so that a lookup allocates nothing.
#[derive(Hash)]
struct ResourceKey<'a>(&'a str, &'a str);

impl Equivalent<(Name, Name)> for ResourceKey<'_> {
    fn equivalent(&self, (group, plural): &(Name, Name)) -> bool {
        self.0 == group && self.1 == plural
    }
}

/// The served resources with their caches. Immutable: installing or removing a resource publishes
/// a new set, and a request works on the set with which it began.
pub struct ServedResources {
    resources: ResourceSet,
    built_in_rows: Arc<[Arc<Resource>]>,
    built_in: Vec<Arc<ResourceCache>>,
    custom: BTreeMap<Name, Arc<ResourceCache>>,
    by_prefix: HashMap<Name, Arc<ResourceCache>>,
    /// By group and plural.
    by_resource: IndexMap<(Name, Name), Arc<ResourceCache>>,
}

impl ServedResources {
    /// Creates the set of the built-in resources with empty caches.
    pub(crate) fn built_in(rows: Arc<[Arc<Resource>]>) -> Self {
        let caches = StoredKind::from_built_in(&rows)
            .into_iter()
            .map(|kind| Arc::new(ResourceCache::new(kind)))
            .collect();
        Self::new(rows, caches, BTreeMap::new())
    }

    fn new(
        built_in_rows: Arc<[Arc<Resource>]>,
        built_in: Vec<Arc<ResourceCache>>,
        custom: BTreeMap<Name, Arc<ResourceCache>>,
    ) -> Self {
        let all = || built_in.iter().chain(custom.values());
        let mut by_resource = IndexMap::new();
        for cache in all() {
            // Several versions, and sometimes two groups, share one cache.
            for row in &cache.kind().rows {
                let key = (row.group.clone(), row.plural.clone());
                by_resource.entry(key).or_insert_with(|| cache.clone());
            }
        }
        let by_prefix = all()
            .map(|cache| (cache.kind().prefix.clone(), cache.clone()))
            .collect();
        let rows = custom.values().flat_map(|cache| cache.kind().rows.clone());
        ServedResources {
            resources: ResourceSet::with_built_in(&built_in_rows, rows),
            built_in_rows,
            by_prefix,
            by_resource,
            built_in,
            custom,
        }
    }

    /// Returns the set with other caches of custom resources.
    pub(crate) fn with_custom(&self, custom: BTreeMap<Name, Arc<ResourceCache>>) -> Self {
        Self::new(self.built_in_rows.clone(), self.built_in.clone(), custom)
    }

    /// Returns the caches of custom resources by storage prefix.
    pub(crate) fn custom(&self) -> &BTreeMap<Name, Arc<ResourceCache>> {
        &self.custom
    }

    /// Returns the resources, served or not, and their groups.
    pub fn resources(&self) -> &ResourceSet {
        &self.resources
    }

    /// Returns the cache of a resource in any of its versions.
    pub fn find_cache(&self, group: &str, plural: &str) -> Option<&Arc<ResourceCache>> {
        self.by_resource.get(&ResourceKey(group, plural))
    }

    /// Returns every cache.
    pub fn iter_caches(&self) -> impl Iterator<Item = &Arc<ResourceCache>> {
        self.built_in.iter().chain(self.custom.values())
    }

    /// Returns the cache of a key below the server's prefix (`/pods/NAMESPACE/NAME`), and the key
    /// within it.
    pub(crate) fn locate_cache<'a, 'k>(
        &'a self,
        path: &'k str,
    ) -> Option<(&'a Arc<ResourceCache>, &'k str)> {
        let (prefix, name) = split_key(path, |prefix| self.by_prefix.contains_key(prefix))?;
        Some((self.by_prefix.get(prefix)?, name))
    }
}

/// Splits a key into a known prefix and the rest.
pub(crate) fn split_key(path: &str, is_known: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
    // Most prefixes have one segment (`/pods`), some two (`/services/specs`). The longer one is
    // tried first, because `/services` alone is no kind.
    let mut slashes = path.match_indices('/').map(|(at, _)| at).skip(1);
    let (one, two) = (slashes.next()?, slashes.next());
    two.into_iter().chain([one]).find_map(|end| {
        let prefix = path.get(..end).filter(|prefix| is_known(prefix))?;
        Some((prefix, path.get(end + 1..)?))
    })
}
