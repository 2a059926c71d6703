//! Fuzz targets of what clients extend, patch and encode: expressions, schemas, patches, applies
//! and CBOR. Each is a plain function that must return for any input, and whose results nest no
//! deeper than what went in.
//!
//! The input's bytes are choices of a generator, so that most inputs get past the parsers.
//! `cargo test -p apiserver-fuzz` runs the targets with bytes from fixed seeds. With nightly and
//! cargo-fuzz, `libfuzzer/` runs the same functions:
//!
//! ```sh
//! cargo +nightly fuzz run --fuzz-dir crates/apiserver/fuzz/libfuzzer schemas -- -max_len=4096
//! ```

mod apply;
mod cbor;
mod choices;
mod expression;
mod expression_text;
mod patch;
mod schema;
mod schema_document;
mod typed;
mod values;

pub use apply::run_apply;
pub use cbor::run_cbor;
pub use choices::random_bytes;
pub use expression::run_expression;
pub use patch::run_patch;
pub use schema::run_schema;
