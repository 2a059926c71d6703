//! Traffic counters of peers.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Histogram of durations.
pub struct Histogram {
    bounds: &'static [f64],
    buckets: Box<[AtomicU64]>,
    count: AtomicU64,
    nanos: AtomicU64,
}

/// Default bounds in seconds: from 1 ms, doubling.
const USUAL: [f64; 14] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];
/// Bounds for round trips between members, in seconds.
const ROUND_TRIP: [f64; 16] = [
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768,
];
/// Bounds for snapshot transfers, in seconds.
const SNAPSHOT: [f64; 10] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2];

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new(&USUAL)
    }
}

impl Histogram {
    /// Creates a histogram with these upper bounds, in seconds.
    pub fn new(bounds: &'static [f64]) -> Self {
        let buckets = bounds.iter().map(|_| AtomicU64::new(0)).collect();
        Histogram {
            bounds,
            buckets,
            count: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    /// Creates a histogram with bounds for snapshot transfers.
    pub fn of_snapshots() -> Self {
        Histogram::new(&SNAPSHOT)
    }

    /// Records a duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(
            u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Returns each upper bound with the number of durations that do not exceed it.
    pub fn cumulative_counts(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut total = 0;
        self.bounds
            .iter()
            .zip(&self.buckets)
            .map(move |(bound, bucket)| {
                total += bucket.load(Ordering::Relaxed);
                (*bound, total)
            })
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the sum of all durations, in seconds.
    pub fn sum(&self) -> f64 {
        self.nanos.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// Counters of the traffic with one peer.
pub struct Traffic {
    /// Bytes sent to the peer.
    pub sent: AtomicU64,
    /// Bytes received from the peer.
    pub received: AtomicU64,
    /// Failed calls.
    pub failures: AtomicU64,
    /// Round-trip times of successful calls.
    pub round_trips: Histogram,
    /// Durations of the snapshots that the peer installed.
    pub snapshots_sent: Histogram,
    /// Snapshots whose transfer failed.
    pub snapshots_not_sent: AtomicU64,
    /// Durations of complete snapshots received.
    pub snapshots_received: Histogram,
    /// Snapshots that arrived incomplete.
    pub snapshots_not_received: AtomicU64,
}

impl Default for Traffic {
    fn default() -> Self {
        let (sent, received, failures) = Default::default();
        let (snapshots_not_sent, snapshots_not_received) = Default::default();
        Traffic {
            sent,
            received,
            failures,
            round_trips: Histogram::new(&ROUND_TRIP),
            snapshots_sent: Histogram::of_snapshots(),
            snapshots_not_sent,
            snapshots_received: Histogram::of_snapshots(),
            snapshots_not_received,
        }
    }
}

/// A body that counts its bytes as they are read.
pub struct MeteredBody<B, F> {
    body: B,
    count: F,
}

impl<B, F: Fn(u64)> MeteredBody<B, F> {
    /// Wraps `body` and passes the length of each data frame to `count`.
    pub fn new(body: B, count: F) -> Self {
        MeteredBody { body, count }
    }
}

impl<B: Body<Data = Bytes> + Unpin, F: Fn(u64) + Unpin> Body for MeteredBody<B, F> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            (self.count)(data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_counts_what_is_within_its_bound() {
        let histogram = Histogram::of_snapshots();
        for seconds in [0.1, 0.15, 60.0] {
            histogram.observe(Duration::from_secs_f64(seconds));
        }
        assert_eq!(
            histogram.cumulative_counts().take(2).collect::<Vec<_>>(),
            [(0.1, 1), (0.2, 2)]
        );
        assert_eq!(
            (histogram.cumulative_counts().last(), histogram.count()),
            (Some((51.2, 2)), 3)
        );
        assert!((histogram.sum() - 60.25).abs() < 1e-9);
    }
}
