//! Request limits: bounds the memory of received requests, for the process and per connection, and
//! the time in which a unary request must arrive.
//!
//! HTTP/2 flow control bounds unread data; data that were read count here. A request above the
//! limit is rejected at once: if it waited, the slow requests of one client would delay all others.

use crate::connection::Connection;
use crate::grpc_framing::{PREFIX, announced_length, too_large};
use crate::memory_budget::Budget;
use crate::request_body::RequestBody;
use bytes::Bytes;
use http::Extensions;
use http_body::Frame;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{self, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;
use tonic::Status;
use tower::BoxError;

/// etcd's text for a request that is rejected because of other requests.
pub const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
/// Time for a unary request to arrive. The largest one takes this long at 1 Mbit/s.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Limits that the calls of all clients share, and counters of their bytes.
pub struct ClientTraffic {
    /// Maximum length of a message in bytes.
    pub max_message: usize,
    memory_budget: Arc<Budget>,
    received: AtomicU64,
    sent: AtomicU64,
}

impl ClientTraffic {
    /// Creates the limits with the process's whole memory budget.
    pub fn new(max_message: usize) -> Arc<ClientTraffic> {
        Arc::new(ClientTraffic {
            max_message,
            memory_budget: Budget::new(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        })
    }

    /// Returns the budget of the process.
    pub fn memory_budget(&self) -> &Arc<Budget> {
        &self.memory_budget
    }

    /// Counts bytes that clients sent.
    pub fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes for clients.
    pub fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the number of bytes received from clients.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes sent to clients.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Memory reserved for a request; released on drop.
pub struct MemoryReservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl MemoryReservation {
    /// Starts with no reserved memory, on the budget of the request's connection.
    pub fn for_request(traffic: &ClientTraffic, extensions: &Extensions) -> MemoryReservation {
        let connection = extensions.get::<Connection>();
        MemoryReservation {
            budget: connection
                .map_or(&traffic.memory_budget, |connection| {
                    &connection.memory_budget
                })
                .clone(),
            bytes: 0,
        }
    }

    /// Reserves more memory.
    pub fn reserve_more(&mut self, bytes: usize) -> Result<(), Status> {
        if !self.budget.reserve_space(bytes) {
            return Err(Status::resource_exhausted(TOO_MANY_REQUESTS));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Changes the reserved memory to this many bytes.
    pub fn set_reserved(&mut self, bytes: usize) -> Result<(), Status> {
        // Only growth can fail, so a stream that shrinks its buffer is never rejected.
        if let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) {
            return self.reserve_more(more);
        }
        if bytes < self.bytes {
            self.budget.release_space(self.bytes - bytes);
            self.bytes = bytes;
        }
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.release_space(self.bytes);
    }
}

/// Returns the error for a request that did not arrive in time.
pub fn too_slow() -> Status {
    Status::deadline_exceeded(format!(
        "etcdserver: the request did not arrive within {} s",
        DEADLINE.as_secs()
    ))
}

/// Body of a request that tonic reads, with the same limits.
pub struct LimitedBody<B> {
    body: B,
    traffic: Arc<ClientTraffic>,
    held: MemoryReservation,
    start: Vec<u8>,
    deadline: Pin<Box<Sleep>>,
}

impl<B> LimitedBody<B> {
    /// Wraps a body. `held` gets the memory of what it receives.
    pub fn new(traffic: Arc<ClientTraffic>, held: MemoryReservation, body: B) -> Self {
        LimitedBody {
            body,
            traffic,
            held,
            start: Vec::new(),
            deadline: Box::pin(tokio::time::sleep(DEADLINE)),
        }
    }

    fn check_data(&mut self, data: &[u8]) -> Result<(), Status> {
        self.traffic.count_received(data.len());
        self.held.reserve_more(data.len())?;
        // A client may send the prefix byte by byte. tonic buffers the message itself.
        let missing = PREFIX.saturating_sub(self.start.len());
        if missing == 0 {
            return Ok(());
        }
        self.start.extend(data.iter().take(missing));
        let limit = self.traffic.max_message;
        match announced_length(&self.start)? {
            Some(length) if length > limit => Err(too_large(length, limit)),
            _ => Ok(()),
        }
    }
}

impl<B: RequestBody> http_body::Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Before the body: a body that always has one more byte would hide the deadline.
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(too_slow().into())));
        }
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(Into::into)?;
        if let Some(data) = frame.data_ref() {
            self.check_data(data)?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_budget::{CONNECTION, PROCESS};
    use crate::testing::Pieces;
    use http_body_util::BodyExt;

    #[test]
    fn connection_has_a_share_of_the_process_and_releases_it() {
        let process = Budget::new();
        let connections: Vec<_> = (0..=PROCESS / CONNECTION)
            .map(|_| process.connection())
            .collect();
        let mut held: Vec<_> = connections
            .iter()
            .map(|budget| MemoryReservation {
                budget: budget.clone(),
                bytes: 0,
            })
            .collect();
        let full: Vec<_> = held
            .iter_mut()
            .map(|held| held.reserve_more(CONNECTION).is_ok())
            .collect();
        assert_eq!(
            full.iter().filter(|taken| **taken).count(),
            PROCESS / CONNECTION
        );
        assert!(
            !full.last().copied().unwrap_or(true),
            "the process's bytes are all taken"
        );
        for held in &mut held {
            assert!(held.reserve_more(1).is_err());
        }
        held.truncate(1);
        assert!(
            held.iter_mut()
                .all(|held| held.set_reserved(CONNECTION - 10).is_ok())
        );
        assert!(
            held.iter_mut()
                .all(|held| held.reserve_more(11).is_err() && held.set_reserved(CONNECTION).is_ok())
        );
        held.clear();
        assert_eq!(process.left.load(Ordering::Relaxed), PROCESS);
    }

    #[test]
    fn rejected_reservation_takes_nothing_from_the_process() {
        let process = Budget::new();
        let mut held = MemoryReservation {
            budget: process.connection(),
            bytes: 0,
        };
        let rejected = held
            .reserve_more(CONNECTION + 1)
            .err()
            .map(|status| status.code());
        assert_eq!(rejected, Some(tonic::Code::ResourceExhausted));
        assert_eq!(process.left.load(Ordering::Relaxed), PROCESS);
    }

    fn limited(limit: usize, pieces: Pieces) -> LimitedBody<Pieces> {
        let traffic = ClientTraffic::new(limit);
        let held = MemoryReservation::for_request(&traffic, &Extensions::new());
        LimitedBody::new(traffic, held, pieces)
    }

    async fn first_error(mut body: LimitedBody<Pieces>) -> Option<tonic::Code> {
        while let Some(frame) = body.frame().await {
            if let Err(error) = frame {
                return error.downcast_ref::<Status>().map(Status::code);
            }
        }
        None
    }

    #[tokio::test]
    async fn announced_length_is_checked_when_its_last_byte_arrives() {
        let prefix: &[&[u8]] = &[&[0, 0], &[0, 0], &[9]];
        for (limit, expect) in [(9, None), (8, Some(tonic::Code::ResourceExhausted))] {
            let body = limited(limit, Pieces::new(prefix));
            assert_eq!(first_error(body).await, expect, "limit {limit}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_stays_open_ends_at_the_deadline() {
        let body = limited(9, Pieces::open(&[&[0, 0]]));
        assert_eq!(first_error(body).await, Some(tonic::Code::DeadlineExceeded));
    }

    #[tokio::test]
    async fn bytes_of_a_limited_body_are_counted_and_released() {
        let traffic = ClientTraffic::new(9);
        let held = MemoryReservation::for_request(&traffic, &Extensions::new());
        let mut body = LimitedBody::new(traffic.clone(), held, Pieces::new(&[&[0; 5], &[7; 100]]));
        while let Some(frame) = body.frame().await {
            assert!(frame.is_ok());
        }
        assert_eq!(traffic.received(), 105);
        let left = || traffic.memory_budget().left.load(Ordering::Relaxed);
        assert_eq!(left(), PROCESS - 105);
        drop(body);
        assert_eq!(left(), PROCESS);
    }
}
