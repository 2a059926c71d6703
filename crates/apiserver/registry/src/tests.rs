//! The registry over an etcd in memory.
#![allow(clippy::unwrap_used, clippy::panic)]

mod admission;
mod create;
mod delete;
mod list;
mod ownership;
mod services;
mod subresources;
mod update;

use crate::{
    Allocators, DeleteOptions, DeleteOutcome, ListQuery, ListResult, Mode, Registry,
    RegistryOptions, ServiceOptions, Update, Write,
};
use api_kinds::Resource;
use api_meta::{ApiError, Meta};
use api_strategy::DisabledFields;
use apiserver_cache::Caches;
use apiserver_request::Admission;
use apiserver_storage::{Store, StoreConfig};
use base_task::{CancellationToken, Tasks};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use testkit_etcd::FakeEtcd;

/// A registry with its store.
struct Cluster {
    etcd: FakeEtcd,
    registry: Arc<Registry>,
    tasks: Tasks,
}

async fn start_cluster() -> Cluster {
    start_with(FakeEtcd::start().await, Vec::new()).await
}

async fn start_with(etcd: FakeEtcd, admission: Vec<Arc<dyn Admission>>) -> Cluster {
    start_without(DisabledFields::default(), etcd, admission).await
}

async fn start_without(
    disabled_fields: DisabledFields,
    etcd: FakeEtcd,
    admission: Vec<Arc<dyn Admission>>,
) -> Cluster {
    let store = Store::new(&StoreConfig {
        servers: vec![etcd.url().to_owned()],
        ..StoreConfig::default()
    })
    .unwrap();
    let tasks = Tasks::new(CancellationToken::new());
    let caches = Caches::start(store.clone(), "/registry", &tasks);
    caches.wait_ready().await;
    let services = ServiceOptions {
        cidrs: vec!["10.0.0.0/28".parse().unwrap()],
        node_ports: 30000..=30003,
    };
    let options = RegistryOptions {
        event_ttl: 3600,
        admission,
        tokens: None,
        services: Allocators::new(services),
        disabled_fields,
    };
    Cluster {
        registry: Registry::new(store, caches, options),
        etcd,
        tasks,
    }
}

/// Returns a resource of a group version such as `v1` or `apps/v1`.
fn find_resource(version: &str, plural: &str) -> &'static Arc<Resource> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    api_kinds::find(group, version, plural).unwrap()
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "d"}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "d"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// Returns the write of a user to an object in namespace `d`.
fn user_write(resource: &Arc<Resource>, name: &str) -> Write {
    let mut write = Write::internal(resource, "d", name);
    write.manager = "kubectl".into();
    if !resource.namespaced {
        write.namespace.clear();
    }
    write
}

impl Cluster {
    async fn create(&self, resource: &Arc<Resource>, object: Value) -> Result<Value, ApiError> {
        let mut write = user_write(resource, "");
        let created = self.registry.create(&mut write, object).await?;
        self.catch_up().await;
        Ok(created)
    }

    /// Replaces an object, as PUT does.
    async fn replace(&self, resource: &Arc<Resource>, object: Value) -> Result<Value, ApiError> {
        let mut write = user_write(resource, object.name());
        self.change(&mut write, true, move |_| Ok(object.clone()))
            .await
    }

    /// Changes an object, as PATCH does.
    async fn change(
        &self,
        write: &mut Write,
        replaces: bool,
        change: impl Fn(&Value) -> Result<Value, ApiError> + Send + Sync,
    ) -> Result<Value, ApiError> {
        let update = Update {
            change: &change,
            replaces,
            mode: Mode::Full,
        };
        self.registry.update(write, &update).await
    }

    async fn delete(
        &self,
        resource: &Arc<Resource>,
        name: &str,
        options: Value,
    ) -> Result<DeleteOutcome, ApiError> {
        let options = DeleteOptions::parse(options).unwrap();
        let mut write = user_write(resource, name);
        let deleted = self.registry.delete(&mut write, &options).await;
        self.catch_up().await;
        deleted
    }

    async fn list(
        &self,
        resource: &Arc<Resource>,
        query: &ListQuery,
    ) -> Result<ListResult, ApiError> {
        self.registry.list(resource, query).await
    }

    /// Waits until the watch cache shows all writes.
    async fn catch_up(&self) {
        self.registry.wait_for_version("").await.unwrap();
    }

    /// Stops the watch cache, so that it shows an old state from now on.
    async fn freeze_cache(&self) {
        self.tasks.shutdown().cancel();
        self.tasks.wait(Duration::from_secs(5)).await;
    }

    /// Returns a stored object, `PLURAL/NAMESPACE/NAME`.
    fn stored(&self, resource: &Arc<Resource>, key: &str) -> Option<Value> {
        let (value, _) = self.etcd.get(&format!("/registry/{key}"))?;
        Some(apiserver_convert::decode_stored(resource, &value).unwrap())
    }
}

fn causes(error: &ApiError) -> Vec<(&str, &str)> {
    let details = error.details.as_ref().unwrap();
    details
        .causes
        .iter()
        .map(|cause| (cause.reason.as_str(), cause.field.as_str()))
        .collect()
}
