//! Fuzz targets of decoders: each is a plain function that must return for any input.
//!
//! `cargo test -p kv-fuzz` runs them with mutations of valid input from a fixed seed. With nightly
//! and cargo-fuzz, `libfuzzer/` runs the same functions, starting from the valid input that the
//! example `corpus` writes:
//!
//! ```sh
//! cargo run -p kv-fuzz --example corpus -- crates/kv/fuzz/libfuzzer/corpus
//! cargo +nightly fuzz run --fuzz-dir crates/kv/fuzz/libfuzzer wal
//! ```

mod commands;
mod memory_disk;
mod mutate;
mod snapshot;
mod wal;

pub use commands::{commands, commands_corpus};
pub use mutate::Mutator;
pub use snapshot::{snapshot, snapshot_corpus};
pub use wal::{wal, wal_corpus};
