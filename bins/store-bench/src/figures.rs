//! Measured figures.

use crate::host::stops::{Span, duration_without_stops};
use serde::Serialize;
use std::time::{Duration, Instant};

/// One row of the table: a workload on one server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figure {
    /// Server.
    pub server: String,
    /// Members of the cluster.
    pub members: usize,
    /// Name of the workload.
    pub work: String,
    /// Number of concurrent clients; 0 if not applicable.
    pub clients: usize,
    /// Number of operations in all rounds.
    pub count: f64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Median in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile in milliseconds.
    pub p99_ms: f64,
    /// Processor time of all members, in seconds.
    pub server_cpu: f64,
    /// Processor time of the load generator, in seconds.
    pub client_cpu: f64,
}

impl Figure {
    /// Returns the operations per second.
    pub fn ops_per_second(&self) -> f64 {
        self.count / self.seconds.max(1e-9)
    }

    /// Returns the servers' processor time per operation, in microseconds.
    pub fn cpu_per_op(&self) -> f64 {
        self.server_cpu * 1e6 / self.count.max(1.0)
    }

    /// Returns the load generator's processor time per operation, in microseconds.
    pub fn client_cpu_per_op(&self) -> f64 {
        self.client_cpu * 1e6 / self.count.max(1.0)
    }
}

/// A measured quantity of a server other than a load.
#[derive(Clone, Debug, Serialize)]
pub struct Quantity {
    /// Server.
    pub server: String,
    /// Name of the quantity.
    pub what: String,
    /// Value.
    pub value: f64,
    /// Unit.
    pub unit: &'static str,
}

/// Calls of a client.
#[derive(Default)]
pub struct Calls {
    /// Latencies in microseconds.
    pub latencies: Vec<u32>,
    /// Start and end of the calls longer than [`LONG`].
    pub long: Vec<Span>,
}

/// Limit for [`Calls::long`].
const LONG: Duration = Duration::from_millis(5);

impl Calls {
    /// Records a call that ends now.
    pub fn record_call(&mut self, begin: Instant, now: Instant) {
        let took = now - begin;
        self.latencies
            .push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        if took > LONG {
            self.long.push((begin, now));
        }
    }
}

impl From<Vec<u32>> for Calls {
    fn from(latencies: Vec<u32>) -> Self {
        Calls {
            latencies,
            long: Vec::new(),
        }
    }
}

/// Measurements of one round of a workload.
#[derive(Default)]
pub struct Measurement {
    /// Latencies in microseconds.
    pub latencies: Vec<u32>,
    /// See [`Calls::long`].
    pub long: Vec<Span>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Processor time of the servers, in seconds.
    pub server_cpu: f64,
    /// Processor time of the load generator, in seconds.
    pub client_cpu: f64,
}

impl Measurement {
    /// Adds another round.
    pub fn add_round(&mut self, other: Measurement) {
        self.latencies.extend(other.latencies);
        self.long.extend(other.long);
        self.seconds += other.seconds;
        self.server_cpu += other.server_cpu;
        self.client_cpu += other.client_cpu;
    }

    /// Returns the latency that this share of the calls did not exceed, in milliseconds.
    pub fn latency_at(&mut self, share: f64) -> f64 {
        // Sorted in place and not kept sorted: percentiles are read a few times per round.
        self.latencies.sort_unstable();
        let index = ((self.latencies.len() as f64 * share) as usize)
            .min(self.latencies.len().saturating_sub(1));
        self.latencies
            .get(index)
            .map_or(0.0, |latency| f64::from(*latency) / 1e3)
    }

    /// Returns the longest call without machine stops, in milliseconds, if it exceeds [`LONG`].
    pub fn longest_without_stops(&self, stops: &[Span]) -> Option<f64> {
        let longest = self
            .long
            .iter()
            .map(|call| duration_without_stops(*call, stops))
            .max()?;
        // Shorter calls are not recorded with their times, so nothing smaller can be claimed.
        Some(longest.max(LONG).as_secs_f64() * 1e3)
    }

    /// Returns the row of the table.
    pub fn into_figure(
        mut self,
        server: &str,
        members: usize,
        work: &str,
        clients: usize,
    ) -> Figure {
        let (p50_ms, p99_ms) = (self.latency_at(0.5), self.latency_at(0.99));
        Figure {
            server: server.to_owned(),
            members,
            work: work.to_owned(),
            clients,
            count: self.latencies.len() as f64,
            seconds: self.seconds,
            p50_ms,
            p99_ms,
            server_cpu: self.server_cpu,
            client_cpu: self.client_cpu,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn measurement(latencies: &[u32]) -> Measurement {
        Measurement {
            latencies: latencies.to_vec(),
            seconds: 2.0,
            server_cpu: 0.5,
            client_cpu: 0.25,
            ..Measurement::default()
        }
    }

    fn assert_close(found: f64, expect: f64) {
        assert!((found - expect).abs() < 1e-9, "{found} instead of {expect}");
    }

    #[test]
    fn percentile_is_the_latency_that_the_share_does_not_exceed() {
        let latencies: Vec<u32> = (1..=100).rev().map(|millis| millis * 1_000).collect();
        for (share, millis) in [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)] {
            assert_close(measurement(&latencies).latency_at(share), millis);
        }
        assert_close(measurement(&[]).latency_at(0.5), 0.0);
        assert_close(measurement(&[7_000]).latency_at(0.99), 7.0);
    }

    #[test]
    fn rounds_are_added_up() {
        let mut sum = Measurement::default();
        sum.add_round(measurement(&[1, 2]));
        sum.add_round(measurement(&[3]));
        assert_eq!(sum.latencies, [1, 2, 3]);
        assert_close(sum.seconds, 4.0);
        assert_close(sum.server_cpu, 1.0);
        assert_close(sum.client_cpu, 0.5);
    }

    #[test]
    fn figure_relates_calls_to_time_and_processor() {
        let figure = measurement(&[1_000; 100]).into_figure("s", 3, "put", 10);
        assert_eq!(
            (figure.server.as_str(), figure.members, figure.clients),
            ("s", 3, 10)
        );
        assert_close(figure.ops_per_second(), 50.0);
        assert_close(figure.cpu_per_op(), 5_000.0);
        assert_close(figure.client_cpu_per_op(), 2_500.0);
        assert_close(figure.p99_ms, 1.0);
    }

    #[test]
    fn figure_without_calls_has_no_infinite_rates() {
        let figure = Measurement::default().into_figure("s", 1, "put", 1);
        assert_close(figure.ops_per_second(), 0.0);
        assert_close(figure.cpu_per_op(), 0.0);
    }

    #[test]
    fn only_long_calls_are_kept_with_their_times() {
        let begin = Instant::now();
        let mut calls = Calls::default();
        for millis in [1, 5, 6] {
            calls.record_call(begin, begin + Duration::from_millis(millis));
        }
        assert_eq!(calls.latencies, [1_000, 5_000, 6_000]);
        assert_eq!(calls.long.len(), 1);
    }

    #[test]
    fn longest_call_is_compared_without_the_stops_of_the_machine() {
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        let measurement = Measurement {
            long: vec![(at(0), at(50)), (at(100), at(120))],
            ..Measurement::default()
        };
        for (stops, longest) in [
            (vec![], 50.0),
            (vec![(at(0), at(40))], 20.0),
            (vec![(at(0), at(50)), (at(100), at(120))], 5.0),
        ] {
            assert_close(measurement.longest_without_stops(&stops).unwrap(), longest);
        }
        assert_eq!(Measurement::default().longest_without_stops(&[]), None);
    }
}
