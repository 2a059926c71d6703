//! kube-scheduler: watches pods and nodes, chooses a node for each pod, and binds it.
//!
//! Informers feed the [`cache`] and the [`queue`]. One task takes pods from the queue and runs the
//! pure scheduling cycle on a snapshot of the cache; separate tasks write bindings, conditions,
//! events and evictions, so that a slow API server never delays the next scheduling cycle.

mod binding;
pub mod cache;
mod cluster;
mod config;
mod devices;
mod flags;
mod handlers;
mod metrics;
pub mod nominated;
mod outcome;
mod preemption;
mod profiles;
pub mod queue;
mod run;
mod scheduler;
mod unsupported;

pub use config::Configuration;
pub use flags::Flags;
pub use run::run;
pub use unsupported::{UPSTREAM_FIELDS, UPSTREAM_FLAGS, honoured_fields};
