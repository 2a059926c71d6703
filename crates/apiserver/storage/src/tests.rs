//! The client against an etcd in memory.
#![allow(clippy::unwrap_used, clippy::panic)]

mod client;
mod compact;
mod config;
mod connector;
mod members;
mod renewal;
mod watch;

use crate::{Store, StoreConfig};
use testkit_etcd::FakeEtcd;

/// Returns an etcd and a client of it.
async fn start_store() -> (FakeEtcd, Store) {
    let etcd = FakeEtcd::start().await;
    let config = StoreConfig {
        servers: vec![etcd.url().to_owned()],
        ..StoreConfig::default()
    };
    let store = Store::new(&config).unwrap();
    (etcd, store)
}
