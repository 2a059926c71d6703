//! Leases: their replicated state, and their deadlines on the leader.
//!
//! Grants, revocations and checkpoints come from the log and are the same on every member.
//! Deadlines exist only in the leader's memory: a renewal writes nothing, and a new leader gives
//! every lease at least the remaining TTL of its last checkpoint. This crate reads no clock;
//! callers pass the time.

mod leases;

pub use leases::{LeaseInfo, Leases, MAX_TTL};
