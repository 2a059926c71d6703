//! What is stored under one prefix: a kind in all its versions.

use api_kinds::Resource;
use std::collections::BTreeMap;

/// A stored kind.
#[derive(Debug)]
pub struct StoredKind {
    /// Below the server's prefix: `/pods`, `/apiregistration.k8s.io/apiservices`.
    pub prefix: &'static str,
    /// The version in which objects are written.
    pub row: &'static Resource,
    /// Every version that is served.
    pub rows: Vec<&'static Resource>,
}

impl StoredKind {
    /// All kinds of the table that are stored and served, one for each prefix.
    pub fn all() -> Vec<StoredKind> {
        let mut by_prefix: BTreeMap<&'static str, StoredKind> = BTreeMap::new();
        for row in api_kinds::resources().iter().filter(|r| r.served) {
            let Some(storage) = &row.storage else { continue };
            let kind = by_prefix.entry(storage.prefix).or_insert_with(|| StoredKind {
                prefix: storage.prefix,
                row: apiserver_convert::storage_row(row),
                rows: Vec::new(),
            });
            kind.rows.push(row);
        }
        by_prefix.into_values().collect()
    }

    /// The object's key below the prefix: `NAMESPACE/NAME`, or `NAME`.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.row.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}
