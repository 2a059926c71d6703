//! A deterministic simulation of the store: whole members, from the log to the gRPC services, on a simulated clock,
//! network and disk, under faults; and the check of what clients saw.
//!
//! - Every member runs on a runtime of its own whose clock stands still; the world lets them run in turn, one simulated
//!   millisecond each. A crash drops the runtime: every task ends at the await it is at.
//! - Calls between members, and those of clients, are messages that are delayed, lost and reordered. Disks forget what was
//!   not synced, tear writes, are slow, full, or fail.
//! - All randomness comes from the seed, that of the standard library and of dependencies too: see `entropy`. A seed gives
//!   the same run every time.
//! - What clients saw is held against one sequential replay in the order of revisions: see `check`.
//!
//! Invariant: planted bugs live in the simulation's adapters, not in the code that is simulated.

mod check;
mod client;
mod disk;
mod engine;
mod entropy;
mod history;
mod host;
mod lease_client;
mod ledger;
mod net;
mod operator;
mod plan;
mod serve;
mod watch_check;
mod watch_client;
mod world;

pub use plan::{Plan, Plant};
pub use world::{Report, run};
