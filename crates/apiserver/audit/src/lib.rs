//! Audit: the policy, the events of a request, and the backends that record them.
//!
//! Invariant: an event leaves a request once for each stage, and what a backend can't record is
//! counted. The policy decides without IO; only backends do IO.

mod auditor;
mod backend;
mod batch;
mod event;
mod level;
mod limits;
mod log_file;
mod log_line;
mod metrics;
mod policy;
mod record;
mod rotation;
mod sink;
mod sinks;
mod throttle;
mod webhook;

#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod tests;

pub use auditor::Auditor;
pub use backend::{Backend, BackendError};
pub use batch::{Batching, Rate};
pub use event::{Event, ObjectReference, RequestFacts, UserInfo};
pub use level::{Level, Stage};
pub use limits::EventLimits;
pub use log_file::LogFile;
pub use log_line::LineFormat;
pub use metrics::AuditMetrics;
pub use policy::{Policy, PolicyError, RequestAuditConfig};
pub use record::Record;
pub use rotation::Rotation;
pub use sink::{Mode, Sink};
pub use sinks::Rejected;
pub use webhook::{Backoff, PostEvents, Webhook};
