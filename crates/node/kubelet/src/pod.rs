//! A pod's lifecycle as pure functions: desired state (the spec), observed state (the view),
//! actions (the plan) and status. No IO and no clock: the time is an argument.

pub(crate) mod action;
pub(crate) mod allocation;
pub(crate) mod backoff;
pub(crate) mod facts;
pub(crate) mod lifecycle;
pub(crate) mod memory;
pub(crate) mod phase;
pub(crate) mod plan;
pub(crate) mod plan_end;
pub(crate) mod relist;
pub(crate) mod resize;
pub(crate) mod resize_plan;
pub(crate) mod resource_status;
pub(crate) mod spec;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod status_conditions;
pub(crate) mod status_context;
#[cfg(test)]
mod tests;
pub(crate) mod view;

/// Nanoseconds since 1970, as in CRI.
pub(crate) type Nanos = i64;

pub(crate) const SECOND: Nanos = 1_000_000_000;
