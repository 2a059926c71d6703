//! The kubelet: runs the pods that are bound to its node.
//!
//! - [`Flags`] and [`Settings`] say what to do, [`run`] does it until it is told to stop. Stopping leaves containers
//!   running; the next kubelet takes them over.
//! - `pod` decides, as pure functions; `worker` executes, one task a pod; `make` says what the runtime is told.
//! - `sources` gives pods, `node` is the node object, `pleg` tells what happened, `serving` answers the server.

mod cgroups;
mod config;
mod context;
mod housekeeping;
mod images;
mod make;
mod metrics;
mod node;
mod pleg;
mod pod;
mod run;
mod serving;
mod sources;
mod volumes;
mod worker;

pub use config::{Flags, Settings, UPSTREAM_FIELDS, UPSTREAM_FLAGS, honoured_fields, settings};
pub use run::run;
