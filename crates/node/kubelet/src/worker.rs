//! The pod worker: one task per pod, which holds the pod's state, computes actions, has the
//! executor run them, and updates the status.
//!
//! Invariant: only the worker's task changes a pod's state; jobs run in tasks of their own and
//! return results. A worker waits only for its own pod, the limit of concurrent starts, and the
//! runtime.

mod actions;
mod admit;
mod allocation_file;
pub(crate) mod cleanup;
mod executor;
mod health;
mod hook_timeout;
mod job_results;
mod messages;
mod mounts;
mod observe;
mod pod_worker;
mod probing;
mod registry;
mod release;
mod resize;
mod resize_job;
mod resize_queue;
mod resizes;
mod runtime_handler;
mod start;
mod status_sync;
mod status_writer;
mod stop;

pub(crate) use admit::{admit_pod, check_node_support};
pub(crate) use messages::Message;
pub(crate) use observe::locate_log;
#[cfg(test)]
pub(crate) use pod_worker::PodWorker;
pub(crate) use pod_worker::spawn_worker;
pub(crate) use registry::{PodSnapshot, Workers};
pub(crate) use release::release_resources;
