//! The authenticators over files of a temporary directory and a fake of the watch caches.
#![allow(clippy::unwrap_used, clippy::panic)]

mod certificates;
mod service_accounts;
mod tokens;

use api_meta::ApiError;
use apiserver_request::{GroupResource, Objects, Observer};
use serde_json::{Value, json};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Objects of the core group as (plural, object).
struct FakeObjects(Vec<(&'static str, Value)>);

impl FakeObjects {
    fn find(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Value> {
        let text = |object: &Value, field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let found = self.0.iter().find(|(plural, object)| {
            *plural == resource.resource
                && text(object, "namespace") == namespace
                && text(object, "name") == name
        });
        found.map(|(_, object)| object.clone())
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
        self.find(resource, namespace, name).map(Arc::new)
    }
    fn cached_list(&self, _: &GroupResource, _: Option<&str>) -> Vec<Arc<Value>> {
        Vec::new()
    }
    async fn read_live(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        Ok(self.find(resource, namespace, name))
    }
    fn observe(&self, _: &GroupResource, _: Arc<dyn Observer>) {}
    fn caches_ready(&self) -> bool {
        true
    }
}

fn write_file(directory: &Path, name: &str, content: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// Runs a future over the fakes, which never wait.
fn complete<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the fakes must not wait"),
    }
}
