//! A kind in all its versions, stored under one prefix.

use api_kinds::{Name, Resource};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A stored kind.
#[derive(Debug)]
pub struct StoredKind {
    /// Prefix below the server's: `/pods`, `/apiregistration.k8s.io/apiservices`.
    pub prefix: Name,
    /// The storage version.
    pub resource: Arc<Resource>,
    /// All served versions.
    pub rows: Vec<Arc<Resource>>,
}

impl StoredKind {
    /// Returns all kinds that are stored and served, one for each prefix.
    pub fn stored_kinds() -> Vec<StoredKind> {
        let mut by_prefix: BTreeMap<Name, StoredKind> = BTreeMap::new();
        for resource in api_kinds::resources().iter().filter(|r| r.served) {
            let Some(storage) = &resource.storage else {
                continue;
            };
            // Resources of several groups may share a prefix: `events` are served by core and by
            // `events.k8s.io`, and stored once.
            let kind = by_prefix
                .entry(storage.prefix.clone())
                .or_insert_with(|| StoredKind {
                    prefix: storage.prefix.clone(),
                    resource: apiserver_convert::storage_resource(resource).clone(),
                    rows: Vec::new(),
                });
            kind.rows.push(resource.clone());
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
