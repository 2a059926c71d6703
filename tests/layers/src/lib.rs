//! The layer table (`layers.toml`) checked against `cargo metadata`, see `tests/layers.rs`; the
//! word list (`words.toml`) checked against comments, documents and commits, see `tests/words.rs`.
