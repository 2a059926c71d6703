//! Read access to the watch caches for authenticators, authorizers and admission.

use serde_json::Value;
use std::sync::Arc;

/// A resource without its version: caches are per group and resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group, empty for core.
    pub group: String,
    /// Plural name.
    pub resource: String,
}

impl GroupResource {
    /// Creates a resource of `group` (empty for core).
    pub fn new(group: &str, resource: &str) -> Self {
        GroupResource {
            group: group.into(),
            resource: resource.into(),
        }
    }
}

/// A change of one cached object, in the storage version's form.
#[derive(Clone, Debug)]
pub enum ObjectEvent {
    /// Created or changed.
    Applied(Arc<Value>),
    /// Deleted; the last state.
    Deleted(Arc<Value>),
}

/// Receives changes in the cache's order. Runs on the cache's task, so it must be quick and must
/// not block.
pub trait Observer: Send + Sync {
    /// Handles one change.
    fn object_changed(&self, resource: &GroupResource, event: &ObjectEvent);
}

/// Read access to the caches.
#[async_trait::async_trait]
pub trait Objects: Send + Sync {
    /// Returns the object from the cache, which may lag behind the store.
    fn cached_object(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>>;
    /// Lists the cached objects of a namespace (`None`: of all namespaces).
    fn cached_list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>>;
    /// Reads the object from the store.
    async fn read_live(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, api_meta::ApiError>;
    /// Replays the existing objects to `observer`, then every change.
    fn observe(&self, resource: &GroupResource, observer: Arc<dyn Observer>);
    /// Returns whether every cache has its first list.
    fn caches_ready(&self) -> bool;
}
