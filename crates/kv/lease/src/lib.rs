//! Leases: what the log says about them, and on the leader when they end.
//!
//! Granting, revoking and checkpoints come through the log and are the same on every member. Deadlines exist on the
//! leader only, in its memory: a renewal costs no write, and a new leader gives every lease what its last checkpoint
//! says, never less. Nothing here reads a clock; callers pass the time.

mod leases;

pub use leases::{LeaseInfo, Leases, MAX_TTL};
