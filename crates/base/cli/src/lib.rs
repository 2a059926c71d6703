//! Entry point of every binary: arguments, logs, signals, exit codes.
//!
//! Exit codes: 0 success, 1 failure (one sentence on standard error), 2 wrong usage.

mod feature_gate;
mod fields;
mod flags;
mod pages;
mod run;
mod sentence;
pub mod shared;
mod terminal;
mod upstream;

pub use base_task::CancellationToken;
pub use feature_gate::{FeatureGatePairError, parse_feature_gate};
pub use fields::{FalseMeans, JudgedFields, judge_fields};
pub use flags::{Accepted, accept_upstream_flags};
pub use run::{parse_arguments, run_component};
pub use sentence::nearest_word;
pub use terminal::{escape_controls, escape_json_controls};
pub use upstream::{Treatment, Unsupported, Verdict};
