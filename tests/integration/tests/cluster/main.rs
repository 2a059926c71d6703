//! A whole cluster: controllers, scheduler, and kubelets on the simulated runtime.

#![allow(clippy::unwrap_used, missing_docs)]

mod added_nodes;
mod bootstrap_tokens;
mod custom_resources;
mod daemonsets;
mod deployments;
mod devices;
mod discovery;
mod endpoints;
mod garbage_collection;
mod jobs;
mod kubelet_certificates;
mod legacy_tokens;
mod namespaces;
mod pods;
mod policies;
mod prepared_devices;
mod quota;
mod resize;
mod scheduling;
mod service_cidrs;
mod serving_approval;
mod signing;
mod statefulsets;
