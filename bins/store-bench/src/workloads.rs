//! Loads: unary calls, watches and lease keep-alives.

pub mod calls;
pub mod leases;
pub mod watches;
