//! What was measured.

use crate::stops::{Span, besides};
use serde::Serialize;
use std::time::{Duration, Instant};

/// One line of the table: a work done on one server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figure {
    /// Server.
    pub server: String,
    /// Members of the cluster.
    pub members: usize,
    /// What was done.
    pub work: String,
    /// Clients at once; 0 where it makes no sense.
    pub clients: usize,
    /// Done in all rounds.
    pub count: f64,
    /// Seconds that they took.
    pub seconds: f64,
    /// Median and 99th percentile, in milliseconds.
    pub p50_ms: f64,
    /// See `p50_ms`.
    pub p99_ms: f64,
    /// Processor time of all members, in seconds.
    pub server_cpu: f64,
    /// The load generator's.
    pub client_cpu: f64,
}

impl Figure {
    /// A second.
    pub fn rate(&self) -> f64 {
        self.count / self.seconds.max(1e-9)
    }

    /// The servers' processor time for each, in microseconds.
    pub fn cpu_each(&self) -> f64 {
        self.server_cpu * 1e6 / self.count.max(1.0)
    }

    /// The load generator's.
    pub fn client_cpu_each(&self) -> f64 {
        self.client_cpu * 1e6 / self.count.max(1.0)
    }
}

/// A quantity of a server that is not a load.
#[derive(Clone, Debug, Serialize)]
pub struct Quantity {
    /// Server.
    pub server: String,
    /// What was measured.
    pub what: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
}

/// The calls of a client.
#[derive(Default)]
pub struct Calls {
    /// How long they took, in microseconds.
    pub latencies: Vec<u32>,
    /// When those of more than [`LONG`] began and ended.
    pub long: Vec<Span>,
}

/// See [`Calls::long`].
const LONG: Duration = Duration::from_millis(5);

impl Calls {
    /// One more, that ends now.
    pub fn ended(&mut self, begin: Instant, now: Instant) {
        let took = now - begin;
        self.latencies.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        if took > LONG {
            self.long.push((begin, now));
        }
    }
}

impl From<Vec<u32>> for Calls {
    fn from(latencies: Vec<u32>) -> Self {
        Calls { latencies, long: Vec::new() }
    }
}

/// What a round of a work has seen.
#[derive(Default)]
pub struct Seen {
    /// In microseconds.
    pub latencies: Vec<u32>,
    /// See [`Calls::long`].
    pub long: Vec<Span>,
    /// Seconds that it took.
    pub seconds: f64,
    /// Processor times, in seconds.
    pub server_cpu: f64,
    /// See `server_cpu`.
    pub client_cpu: f64,
}

impl Seen {
    /// Adds another round.
    pub fn add(&mut self, other: Seen) {
        self.latencies.extend(other.latencies);
        self.long.extend(other.long);
        self.seconds += other.seconds;
        self.server_cpu += other.server_cpu;
        self.client_cpu += other.client_cpu;
    }

    /// What this share of the calls took at most, in milliseconds.
    pub fn at(&mut self, share: f64) -> f64 {
        self.latencies.sort_unstable();
        let index = ((self.latencies.len() as f64 * share) as usize).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(index).map_or(0.0, |latency| f64::from(*latency) / 1e3)
    }

    /// The longest call without the time in which the machine stood, in milliseconds, if it was a long one.
    pub fn longest_besides(&self, stops: &[Span]) -> Option<f64> {
        let longest = self.long.iter().map(|call| besides(*call, stops)).max()?;
        Some(longest.max(LONG).as_secs_f64() * 1e3)
    }

    /// The line of the table.
    pub fn figure(mut self, server: &str, members: usize, work: &str, clients: usize) -> Figure {
        let (p50_ms, p99_ms) = (self.at(0.5), self.at(0.99));
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
