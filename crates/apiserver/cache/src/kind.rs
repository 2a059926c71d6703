//! A kind in all its versions, stored under one prefix.

use api_kinds::Resource;
use std::collections::BTreeMap;

/// A stored kind.
#[derive(Debug)]
pub struct StoredKind {
    /// Prefix below the server's: `/pods`, `/apiregistration.k8s.io/apiservices`.
    pub prefix: &'static str,
    /// The storage version.
    pub resource: &'static Resource,
    /// All served versions.
    pub rows: Vec<&'static Resource>,
}

impl StoredKind {
    /// Returns all kinds that are stored and served, one for each prefix.
    pub fn stored_kinds() -> Vec<StoredKind> {
        let mut by_prefix: BTreeMap<&'static str, StoredKind> = BTreeMap::new();
        for resource in api_kinds::resources().iter().filter(|r| r.served) {
            let Some(storage) = &resource.storage else {
                continue;
            };
            // Resources of several groups may share a prefix: `events` are served by core and by
            // `events.k8s.io`, and stored once.
            let kind = by_prefix
                .entry(storage.prefix)
                .or_insert_with(|| StoredKind {
                    prefix: storage.prefix,
                    resource: apiserver_convert::storage_resource(resource),
                    rows: Vec::new(),
                });
            kind.rows.push(resource);
        }
        by_prefix.into_values().collect()
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
