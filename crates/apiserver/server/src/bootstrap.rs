//! Bootstrap objects: created if missing, updated if outdated, left alone where a user changed
//! them.

mod endpoints;
mod objects;
mod rbac;
mod service;

use crate::options::ServerOptions;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::{ApiError, Meta, Reason};
use apiserver_registry::Write;
use endpoints::OwnEndpoint;
use futures::FutureExt;
use futures::future::try_join_all;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(500);

/// Creates the bootstrap objects, and retries until all exist.
pub async fn run_bootstrap(server: Arc<Server>, options: ServerOptions, port: u16) {
    server.caches.wait_ready().await;
    loop {
        match bootstrap_all(&server, &options, port).await {
            Ok(()) => break,
            // The store may still elect its leader; without these objects the cluster would stay
            // unusable.
            Err(error) => {
                tracing::warn!(%error, "failed to create bootstrap objects; retrying")
            }
        }
        tokio::time::sleep(RETRY).await;
    }
    tracing::info!(address = server.external_address, "ready");
    let own = OwnEndpoint {
        address: options.advertised_address(),
        port,
    };
    server.tasks.clone().spawn(
        // After the bootstrap, whose last step published the endpoints for the first time.
        "kubernetes-endpoints",
        endpoints::maintain_endpoints(server.clone(), own),
    );
    server.registry.keep_allocations(&server.stopping).await;
}

async fn bootstrap_all(
    server: &Server,
    options: &ServerOptions,
    port: u16,
) -> Result<(), ApiError> {
    let steps = &server.bootstrapped;
    // A stale cache would show system objects as missing.
    server.registry.wait_for_version("").await?;
    steps
        // Before the Service `kubernetes` is created, which allocates an address.
        .complete_step(Step::Allocations, server.registry.repair_allocations())
        .await?;
    steps
        // The other objects are in these namespaces.
        .complete_step(Step::Namespaces, objects::ensure_namespaces(server))
        .await?;
    // Each write waits for the disk, so independent ones run concurrently.
    let parts = [
        steps
            .complete_step(Step::Objects, objects::ensure_objects(server, options))
            .boxed(),
        steps
            .complete_step(Step::Rbac, rbac::ensure_rbac(server))
            .boxed(),
        steps
            .complete_step(Step::Service, own_endpoint(server, options, port))
            .boxed(),
    ];
    try_join_all(parts).await.map(|_| ())
}

async fn own_endpoint(server: &Server, options: &ServerOptions, port: u16) -> Result<(), ApiError> {
    let own = OwnEndpoint {
        address: options.advertised_address(),
        port,
    };
    let parts = [
        service::ensure_service(server, options, port).boxed(),
        endpoints::renew_lease(server, own).boxed(),
    ];
    try_join_all(parts).await.map(|_| ())
}

/// A step of the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Cluster IPs and node ports of existing Services are allocated.
    Allocations,
    /// The system namespaces.
    Namespaces,
    /// Priority classes, flow control, the default ServiceCIDR.
    Objects,
    /// Roles and bindings.
    Rbac,
    /// The Service `kubernetes` and its endpoints.
    Service,
}

/// The completed steps.
#[derive(Debug, Default)]
pub struct Steps(AtomicU8);

impl Steps {
    /// Returns whether the step was completed.
    pub fn is_done(&self, step: Step) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << step as u8) != 0
    }

    async fn complete_step<T>(
        &self,
        step: Step,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<(), ApiError> {
        work.await?;
        // Relaxed, because no other data is read on the strength of a bit.
        self.0.fetch_or(1 << step as u8, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the resource of a built-in kind.
fn find_resource(group: &str, plural: &str) -> Result<&'static Arc<Resource>, ApiError> {
    api_kinds::find(group, "v1", plural).ok_or_else(ApiError::no_such_path)
}

/// Returns the object from the watch cache.
fn find_object(
    server: &Server,
    resource: &Arc<Resource>,
    namespace: &str,
    name: &str,
) -> Option<Value> {
    let cache = server
        .caches
        .find_cache(&resource.group, &resource.plural)?;
    cache
        .get(&cache.kind().object_key(namespace, name))?
        .tree_as(resource)
        .ok()
}

/// Creates the object unless one of that name exists.
async fn create_missing(
    server: &Server,
    resource: &Arc<Resource>,
    object: Value,
) -> Result<(), ApiError> {
    let namespace = if resource.namespaced {
        object.namespace().to_owned()
    } else {
        String::new()
    };
    if find_object(server, resource, &namespace, object.name()).is_some() {
        return Ok(());
    }
    create_object(server, resource, &namespace, object).await
}

/// Creates the object; it is no error if another server created it first.
async fn create_object(
    server: &Server,
    resource: &Arc<Resource>,
    namespace: &str,
    object: Value,
) -> Result<(), ApiError> {
    let mut write = Write::internal(resource, namespace, "");
    match server.registry.create(&mut write, object).await {
        // Several servers start at once, and each creates the same objects.
        Err(error) if error.reason == Reason::AlreadyExists => Ok(()),
        Err(error) if error.reason == Reason::Invalid => {
            // A retry would fail again, and the rest of the cluster works without this object.
            tracing::error!(%error, "failed to create bootstrap object");
            Ok(())
        }
        other => other.map(|_| ()),
    }
}
