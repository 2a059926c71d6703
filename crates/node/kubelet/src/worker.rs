//! One task a pod: it holds what is wanted and what is there, asks the plan, starts the work, tells the status.
//!
//! Invariant: only the worker changes a pod's memory; work runs in its own tasks and reports back. Nothing waits for
//! anything but its own pod, the limit of starts at once, and the runtime.

mod admit;
pub(crate) mod cleanup;
mod health;
mod jobs;
mod kill;
mod messages;
mod mounts;
mod observe;
mod outcomes;
mod probing;
mod registry;
mod resize;
mod run;
mod start;
mod tell;

pub(crate) use admit::admit;
pub(crate) use cleanup::free;
pub(crate) use messages::Message;
pub(crate) use observe::log_file;
pub(crate) use registry::{Shown, Workers};
pub(crate) use run::spawn;
