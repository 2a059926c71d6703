//! Controllers of workloads: they maintain number, order and revision of pods.
//!
//! Every reconciler is a pure function of its inputs; `wiring` modules register the event handlers.

pub mod autoscale;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
mod history;
pub mod job;
pub mod replicaset;
mod set;
pub mod statefulset;
mod template;
pub mod ttl;

pub use autoscale::autoscaler;
pub use cronjob::cron_jobs;
pub use daemonset::daemon_sets;
pub use deployment::deployments;
pub use disruption::disruption;
pub use job::jobs;
pub use replicaset::{replica_sets, replication_controllers};
pub use statefulset::stateful_sets;
pub use ttl::ttl_after_finished;
