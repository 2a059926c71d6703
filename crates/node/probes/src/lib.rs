//! Probes: checks of a container (exec, http, tcp, grpc), and the thresholds that turn results into
//! a state.
//!
//! Invariant: a state changes only if its threshold is reached. A check without a result, for
//! reasons of the node's own, changes nothing.

mod check;
mod grpc;
mod http;
mod spec;
mod thresholds;
mod worker;

pub use check::{CheckResult, CommandRunner, check};
pub use http::{HttpAnswer, http_get};
pub use spec::{Handler, ProbeKind, ProbeSpec, handler_of_lifecycle};
pub use thresholds::{Health, Thresholds};
pub use worker::{ProbeReport, run};
