//! Rows of a table of figures.

use crate::server::Load;
use crate::stats::find_percentile;
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

    /// Adds an amount in another unit.
    pub fn add_amount(&mut self, what: &str, size: impl Serialize, unit: &str, amount: f64) {
        let amount = (amount * 1e3).round() / 1e3;
        self.0
            .push(json!({"what": what, "size": size, unit: amount}));
    }

    /// Adds the figures of requests: rate, latencies and processor time of the server.
    pub fn add_load(&mut self, what: &str, size: impl Serialize, load: &Load) {
        let round = |amount: f64| (amount * 1e3).round() / 1e3;
        let ms = |part: f64| round(find_percentile(&load.latencies, part).as_secs_f64() * 1e3);
        let count = load.latencies.len().max(1) as f64;
        self.0.push(json!({"what": what, "size": size,
            "rate": round(count / load.cost.wall.as_secs_f64()),
            "p50_ms": ms(0.5), "p99_ms": ms(0.99),
            "cpu_ms": round(load.cost.cpu.as_secs_f64() * 1e3 / count)}));
    }

    /// Adds the ratio of two times.
    pub fn add_ratio(&mut self, what: &str, size: impl Serialize, time: Duration, to: Duration) {
        let ratio = time.as_secs_f64() / to.as_secs_f64().max(f64::MIN_POSITIVE);
        self.add_amount(what, size, "ratio", ratio);
    }

    /// Returns the table as JSON.
    pub fn into_json(self) -> Value {
        Value::Array(self.0)
    }
}
