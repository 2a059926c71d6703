//! A pod's life as pure functions: what is wanted (the spec), what is there (the view), what to do next (the plan), and
//! what to tell (the status). No IO, no clock: the time is an argument.

pub(crate) mod backoff;
pub(crate) mod memory;
pub(crate) mod phase;
pub(crate) mod plan;
pub(crate) mod plan_end;
pub(crate) mod spec;
pub(crate) mod status;
pub(crate) mod status_conditions;
#[cfg(test)]
mod tests;
pub(crate) mod view;

/// Nanoseconds since 1970, as CRI counts.
pub(crate) type Nanos = i64;

pub(crate) const SECOND: Nanos = 1_000_000_000;
