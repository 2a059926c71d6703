//! Ordered key-value storage under the state machine: a small trait, engines with files behind it (fjall,
//! sled), and an in-memory twin.
//!
//! Invariant: a batch is atomic, and batches become visible in the order in which they were written. An engine may lose
//! the newest batches in a crash (the log replays them) but never a batch before one that it kept. Only `flush` is
//! durable against loss of power.

mod lsm;
mod memory;
mod open;
mod persistent;
mod traits;

#[cfg(test)]
mod conformance;

pub use lsm::FjallEngine;
pub use memory::MemoryEngine;
pub use open::{Kind, open};
pub use persistent::SledEngine;
pub use traits::{Batch, Engine, EngineError, Table, Visit};
