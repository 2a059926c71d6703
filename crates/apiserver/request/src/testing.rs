//! Objects for tests of the stages.

use crate::{GroupResource, Objects, Observer};
use api_meta::{ApiError, Meta};
use serde_json::Value;
use std::sync::Arc;

/// Objects that the caches and the store hold. They never change.
pub struct FakeObjects(Vec<(GroupResource, Value)>);

impl FakeObjects {
    /// Holds these objects.
    pub fn new(objects: impl IntoIterator<Item = (GroupResource, Value)>) -> Self {
        FakeObjects(objects.into_iter().collect())
    }
}

#[async_trait::async_trait]
impl Objects for FakeObjects {
    fn cached_object(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        let found = self.0.iter().find(|(of, object)| {
            of == resource && object.namespace() == namespace && object.name() == name
        });
        found.map(|(_, object)| Arc::new(object.clone()))
    }

    fn cached_list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let is_inside = |object: &Value| namespace.is_none_or(|name| object.namespace() == name);
        let found = self
            .0
            .iter()
            .filter(|(of, object)| of == resource && is_inside(object));
        found.map(|(_, object)| Arc::new(object.clone())).collect()
    }

    async fn read_live(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        let found = self.cached_object(resource, namespace, name);
        Ok(found.map(|object| (*object).clone()))
    }

    fn observe(&self, _: &GroupResource, _: Arc<dyn Observer>) {}

    fn caches_ready(&self) -> bool {
        true
    }
}
