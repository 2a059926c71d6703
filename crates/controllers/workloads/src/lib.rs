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

pub use autoscale::add_horizontal_pod_autoscaler;
pub use cronjob::add_cron_job_controller;
pub use daemonset::add_daemon_set_controller;
pub use deployment::add_deployment_controller;
pub use disruption::add_disruption_controller;
pub use job::add_job_controller;
pub use replicaset::{add_replica_set_controller, add_replication_controller};
pub use statefulset::add_stateful_set_controller;
pub use ttl::add_ttl_after_finished_controller;
