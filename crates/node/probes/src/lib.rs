//! Probes: asking a container how it is (exec, http, tcp, grpc), and what follows from the answers over time.
//!
//! Invariant: nothing is concluded from one answer that the thresholds don't allow; an answer that could not be had for
//! reasons of the node's own concludes nothing.

mod check;
mod grpc;
mod http;
mod spec;
mod thresholds;
mod worker;

pub use check::{CommandRunner, Outcome, check};
pub use http::{HttpAnswer, http_get};
pub use spec::{Handler, ProbeKind, ProbeSpec, handler_of_lifecycle};
pub use thresholds::{Health, Thresholds};
pub use worker::{ProbeReport, run};
