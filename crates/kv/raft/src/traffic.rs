//! Traffic counters of peers.

use base_telemetry::Histogram;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Bounds for round trips between members, in seconds.
const ROUND_TRIP: [f64; 16] = [
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768,
];
/// Bounds for snapshot transfers, in seconds.
const SNAPSHOT: [f64; 10] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2];

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
            snapshots_sent: Histogram::new(&SNAPSHOT),
            snapshots_not_sent,
            snapshots_received: Histogram::new(&SNAPSHOT),
            snapshots_not_received,
        }
    }
}

impl Traffic {
    /// Counts a snapshot from the peer that has arrived, or ended early, after `duration`.
    pub(crate) fn count_received_snapshot(&self, is_whole: bool, duration: Duration) {
        if is_whole {
            self.snapshots_received.observe_duration(duration);
        } else {
            self.snapshots_not_received.fetch_add(1, Ordering::Relaxed);
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
