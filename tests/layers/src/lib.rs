//! The layer table (`layers.toml`) held against `cargo metadata`; see `tests/layers.rs`.
