//! Ordered key-value storage under the state machine: a small trait, engines with files (fjall,
//! sled), and an in-memory one.
//!
//! Invariant: a batch is atomic, and batches become visible in the order in which they were
//! written. A crash may lose the newest batches (the log replays them), but never a batch before
//! one that survives. Only `flush` makes data durable against a loss of power.

mod lsm;
mod memory;
mod open;
mod persistent;
mod traits;

#[cfg(test)]
mod tests;

pub use lsm::FjallEngine;
pub use memory::MemoryEngine;
pub use open::{Kind, open_engine};
pub use persistent::SledEngine;
pub use traits::{Batch, Engine, EngineError, Table, Visit};
