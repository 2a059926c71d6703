//! The API server on kvstore, over TLS and HTTP/2.

#![allow(clippy::unwrap_used, missing_docs)]

mod admission;
mod aggregation;
mod alpha_kinds;
mod apply;
mod audit;
mod cbor;
mod certificates;
mod client_library;
mod compaction;
mod concurrency;
mod create;
mod custom_resources;
mod delete;
mod device_versions;
mod emulated_release;
mod hostile;
mod load_balancers;
mod mutating_policies;
mod patch;
mod pod_certificates;
mod policies;
mod rbac;
mod read;
mod several_servers;
mod storage_migration;
mod unstable_versions;
mod update;
mod watch;
mod webhooks;
mod wire;
