//! Rows of a table of figures.

use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Figures in the order in which they were measured.
#[derive(Default)]
pub struct Rows(Vec<Value>);

impl Rows {
    /// Adds a time, in milliseconds.
    pub fn add_time(&mut self, what: &str, size: impl Serialize, took: Duration) {
        let ms = (took.as_secs_f64() * 1e6).round() / 1e3;
        self.0.push(json!({"what": what, "size": size, "ms": ms}));
    }

    /// Adds a count of something.
    pub fn add_count(&mut self, what: &str, size: impl Serialize, count: u64) {
        self.0
            .push(json!({"what": what, "size": size, "count": count}));
    }

    /// Returns the table as JSON.
    pub fn into_json(self) -> Value {
        Value::Array(self.0)
    }
}
