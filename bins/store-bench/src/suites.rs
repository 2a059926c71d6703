//! Measurements: which load runs on which servers, in which order.

pub mod compare;
pub mod memory;
pub mod scale;
pub mod soak;
