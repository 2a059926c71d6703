//! Compares the layer table (`layers.toml`) with `cargo metadata`; see `tests/layers.rs`.
