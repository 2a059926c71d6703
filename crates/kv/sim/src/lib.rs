//! A deterministic simulation of the store: whole members, from the log to the gRPC services, on a
//! simulated clock, network and disk, under faults; and a check of everything that clients
//! observed.
//!
//! - Every member runs on its own runtime with a paused clock. The world runs them in turn, one
//!   simulated millisecond each. A crash drops the runtime: every task ends at its current await.
//! - Calls of members and clients are messages that are delayed, lost and reordered. Disks lose
//!   unsynced data, tear writes, are slow, full, or fail.
//! - All randomness comes from the seed, including that of the standard library and of
//!   dependencies: see `entropy`. A seed always produces the same run.
//! - The clients' observations are compared with one sequential replay in the order of revisions:
//!   see `check`.
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
