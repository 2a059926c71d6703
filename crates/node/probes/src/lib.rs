//! Probes: checks of a container (exec, http, tcp, grpc), and the thresholds that turn results into
//! a state.
//!
//! Invariant: a state changes only if its threshold is reached. A check without a result, for
//! reasons of the node's own, changes nothing.

mod check;
mod grpc;
mod http;
mod result;
mod spec;
#[cfg(test)]
mod testing;
mod thresholds;
mod worker;

pub use check::{CommandRunner, run_check};
pub use http::{HttpResponse, http_get};
pub use result::CheckResult;
pub use spec::{Handler, ProbeKind, ProbeSpec, resolve_hook_handler};
pub use thresholds::{Health, Thresholds};
pub use worker::{ProbeReport, run_probe};
