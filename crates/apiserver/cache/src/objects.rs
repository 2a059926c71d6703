//! Read access to the caches for authentication, authorization and admission.

use crate::caches::Caches;
use crate::entry::Entry;
use api_meta::ApiError;
use apiserver_request::{GroupResource, Objects, Observer};
use serde_json::Value;
use std::sync::Arc;

#[async_trait::async_trait]
impl Objects for Caches {
    fn cached_object(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        let cache = self.find_cache(&resource.group, &resource.resource)?;
        let entry = cache.get(&cache.kind().object_key(namespace, name))?;
        entry.shared_tree().ok()
    }

    fn cached_list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Some(cache) = self.find_cache(&resource.group, &resource.resource) else {
            return Vec::new();
        };
        let prefix = namespace.map(|n| format!("{n}/")).unwrap_or_default();
        // The revision of the snapshot is not used, so that any number will do.
        let snapshot = cache.snapshot(0);
        snapshot
            .range_entries(&prefix, "")
            .filter_map(|entry| entry.shared_tree().ok())
            .collect()
    }

    async fn read_live(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        let Some(cache) = self.find_cache(&resource.group, &resource.resource) else {
            return Ok(None);
        };
        let key = self.store_key(cache.kind(), namespace, name);
        let stored = self
            .store
            .read_key(&key)
            .await
            .map_err(ApiError::internal)?;
        let Some(stored) = stored else {
            return Ok(None);
        };
        let key = cache.kind().object_key(namespace, name);
        let entry = Entry::new(cache.kind(), &key, &stored.value, stored.revision);
        Ok(entry.decode_tree().ok())
    }

    fn observe(&self, resource: &GroupResource, observer: Arc<dyn Observer>) {
        self.add_observer(resource, observer);
    }

    fn caches_ready(&self) -> bool {
        self.is_ready()
    }
}
