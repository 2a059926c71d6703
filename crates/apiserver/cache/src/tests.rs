//! One cache fed by hand, and all caches fed by an etcd in memory.
#![allow(clippy::unwrap_used)]

mod caches;
mod custom;
mod indexes;
mod resource;
mod watchers;

use crate::{Entry, ResourceCache, Selection, Snapshot, StoredKind};
use api_kinds::Resource;
use api_meta::Selector;
use api_meta::fields::FieldSelector;
use serde_json::{Value, json};
use std::sync::Arc;

fn config_maps() -> &'static Arc<Resource> {
    api_kinds::find("", "v1", "configmaps").unwrap()
}

/// Returns an empty cache of a core kind.
fn new_cache(plural: &str) -> ResourceCache {
    let mut kinds = StoredKind::stored_kinds().into_iter();
    let core = |kind: &StoredKind| kind.resource.group.is_empty() && kind.resource.plural == plural;
    ResourceCache::new(kinds.find(core).unwrap())
}

/// Returns the stored bytes of a ConfigMap `NAMESPACE/NAME`.
fn config_map(key: &str, labels: Value) -> Vec<u8> {
    let (namespace, name) = key.split_once('/').unwrap();
    let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
    apiserver_convert::encode_stored(config_maps(), &json!({"metadata": metadata}))
}

fn put(cache: &ResourceCache, key: &str, labels: Value, revision: i64) {
    cache.apply_put(key, &config_map(key, labels), revision);
}

fn select(snapshot: &Snapshot, selection: &Selection) -> Vec<Arc<Entry>> {
    snapshot.select_entries(selection, "").cloned().collect()
}

fn selection(namespace: &str, labels: &str, fields: &str) -> Selection {
    Selection {
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        name: None,
        labels: Selector::parse(labels).unwrap(),
        fields: FieldSelector::parse(fields).unwrap(),
        converted_fields: FieldSelector::default(),
    }
}
