//! What a cluster has from the start: made when missing, brought up to date, left alone where people changed it.

mod objects;
mod rbac;
mod service;

use crate::options::ServerOptions;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::{ApiError, Meta, Reason};
use apiserver_registry::Write;
use futures::FutureExt;
use futures::future::try_join_all;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(500);

/// Makes everything, as often as it takes.
pub async fn run(server: Arc<Server>, options: ServerOptions, port: u16) {
    server.caches.wait_ready().await;
    loop {
        match everything(&server, &options, port).await {
            Ok(()) => break,
            Err(error) => {
                tracing::warn!(%error, "the objects that every cluster has could not all be made; trying again")
            }
        }
        tokio::time::sleep(RETRY).await;
    }
    server.bootstrapped.store(true, Ordering::Relaxed);
    tracing::info!(address = server.external_address, "ready");
}

async fn everything(server: &Server, options: &ServerOptions, port: u16) -> Result<(), ApiError> {
    server.registry.reach("").await?;
    server.registry.repair_allocations().await?;
    objects::namespaces(server).await?;
    // Each write waits for the disk; what does not need the other waits together.
    let parts = [
        objects::ensure(server, options).boxed(),
        rbac::ensure(server).boxed(),
        service::ensure(server, options, port).boxed(),
    ];
    try_join_all(parts).await.map(|_| ())
}

/// The row of a built-in kind.
fn row(group: &str, plural: &str) -> Result<&'static Resource, ApiError> {
    api_kinds::find(group, "v1", plural).ok_or_else(ApiError::no_such_path)
}

/// The object as the cache has it.
fn present(server: &Server, row: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
    let cache = server.caches.of(row.group, row.plural)?;
    cache.get(&cache.kind().key(namespace, name))?.tree_as(row).ok()
}

/// Creates the object unless there is one of its name.
async fn create_missing(server: &Server, row: &'static Resource, object: Value) -> Result<(), ApiError> {
    let namespace = if row.namespaced { object.namespace().to_owned() } else { String::new() };
    if present(server, row, &namespace, object.name()).is_some() {
        return Ok(());
    }
    create(server, row, &namespace, object).await
}

/// Creates the object; another server may be faster.
async fn create(server: &Server, row: &'static Resource, namespace: &str, object: Value) -> Result<(), ApiError> {
    let mut write = Write::internal(row, namespace, "");
    match server.registry.create(&mut write, object).await {
        Err(error) if error.reason == Reason::AlreadyExists => Ok(()),
        Err(error) if error.reason == Reason::Invalid => {
            // Trying again would not help, and the rest of the cluster can do without it.
            tracing::error!(%error, "an object that every cluster has is refused");
            Ok(())
        }
        other => other.map(|_| ()),
    }
}
