//! Limits of concurrent requests.
//!
//! Requests above the limit wait up to a quarter of the request timeout. The number of waiting
//! requests is bounded, too; those above it are rejected with 429. Nodes and the control plane's
//! own clients have separate limits, so that a flood of other requests does not make nodes look
//! dead. Watches, streams, proxies and health checks are not counted, nor are members of
//! `system:masters`, who must be able to repair an overloaded server.

use crate::context::Context;
use crate::exempt::is_exempt;
use crate::short_requests::ShortRequests;
use api_meta::ApiError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of waiting requests per allowed concurrent request.
const WAITING_PER_SEAT: usize = 4;

/// Limits of reading and of mutating requests.
pub struct InFlight {
    reading: Option<SeatLimit>,
    mutating: Option<SeatLimit>,
    system: Option<SeatLimit>,
    max_wait: Duration,
    /// All requests with a time limit, those without seats included.
    pub short: ShortRequests,
}

/// The seats of reading requests, mutating ones or system clients, and the number of requests that
/// wait for them.
struct SeatLimit {
    seats: Arc<Semaphore>,
    waiting: AtomicUsize,
    limit: usize,
}

/// A permit of one request in flight; dropping it releases the permit.
#[derive(Debug)]
pub struct SeatGuard {
    _permit: Option<OwnedSemaphorePermit>,
}

impl InFlight {
    /// Creates limits of reads and writes; 0 for none.
    pub fn new(reading: usize, mutating: usize, request_timeout: Duration) -> Self {
        // Without one of the limits, the sum is no limit either.
        let system = if reading == 0 || mutating == 0 {
            0
        } else {
            reading.saturating_add(mutating)
        };
        InFlight {
            reading: SeatLimit::new(reading),
            mutating: SeatLimit::new(mutating),
            system: SeatLimit::new(system),
            // A request that waited longer would hardly finish within its timeout.
            max_wait: request_timeout / 4,
            short: ShortRequests::default(),
        }
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// 429, with the number of seconds until a retry.
    pub async fn acquire_seat(&self, context: &Context) -> Result<SeatGuard, ApiError> {
        let reads = matches!(context.info.verb.as_str(), "get" | "list" | "watch");
        // System clients first, whatever they do: a heartbeat is a write, and must not wait behind
        // users' writes.
        let seats = match context.user.is_system() {
            true => &self.system,
            false if reads => &self.reading,
            false => &self.mutating,
        };
        let permit = match seats {
            Some(seats) if !is_exempt(&context.info, &context.user) => {
                Some(seats.acquire_seat(self.max_wait).await?)
            }
            _ => None,
        };
        Ok(SeatGuard { _permit: permit })
    }
}

impl SeatLimit {
    fn new(limit: usize) -> Option<Self> {
        let create = || SeatLimit {
            // tokio panics above its maximum.
            seats: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            limit,
        };
        (limit > 0).then(create)
    }

    async fn acquire_seat(&self, max_wait: Duration) -> Result<OwnedSemaphorePermit, ApiError> {
        // The usual case, without a counter.
        if let Ok(permit) = self.seats.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let waits = WaitingGuard::start_waiting(&self.waiting);
        // Beyond this, waiting would only add memory: the request would time out in the queue.
        if waits.before >= self.limit.saturating_mul(WAITING_PER_SEAT) {
            return Err(too_many_requests());
        }
        match tokio::time::timeout(max_wait, self.seats.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(too_many_requests()),
        }
    }
}

/// Counts a waiting request until it is dropped.
struct WaitingGuard<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> WaitingGuard<'a> {
    fn start_waiting(count: &'a AtomicUsize) -> Self {
        WaitingGuard {
            count,
            // Only the number counts: the semaphore, which is fair, orders the requests.
            before: count.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn too_many_requests() -> ApiError {
    ApiError::too_many_requests("Too many requests, please try again later.", 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use api_meta::Reason;
    use apiserver_request::User;

    fn context(method: http::Method, path: &str, group: &str) -> Context {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .body(())
            .unwrap();
        let mut context = Context::new(request.into_parts().0).unwrap();
        context.user.groups.push(group.to_owned());
        context
    }

    #[tokio::test]
    async fn requests_beyond_the_seats_and_the_queue_get_429() {
        let limits = Arc::new(InFlight::new(0, 1, Duration::from_secs(60)));
        let write = || context(http::Method::POST, "/api/v1/namespaces/d/pods", "people");
        let seat = limits.acquire_seat(&write()).await.unwrap();
        let waiting: Vec<_> = (0..WAITING_PER_SEAT)
            .map(|_| {
                let (limits, context) = (limits.clone(), write());
                tokio::spawn(async move { limits.acquire_seat(&context).await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        let refused = limits.acquire_seat(&write()).await.unwrap_err();
        assert_eq!(
            (refused.reason, refused.details.unwrap().retry_after_seconds),
            (Reason::TooManyRequests, 1)
        );
        let admin = context(
            http::Method::POST,
            "/api/v1/namespaces/d/pods",
            User::MASTERS,
        );
        assert!(
            limits.acquire_seat(&admin).await.is_ok(),
            "system:masters is exempt"
        );
        let read = context(http::Method::GET, "/api/v1/namespaces/d/pods", "people");
        assert!(
            limits.acquire_seat(&read).await.is_ok(),
            "reads have no limit here"
        );
        drop(seat);
        for waiter in waiting {
            assert!(
                waiter.await.unwrap().is_ok(),
                "a waiting request gets the released seat"
            );
        }
    }

    #[tokio::test]
    async fn wait_for_a_seat_times_out() {
        let limits = InFlight::new(1, 1, Duration::from_millis(40));
        let read = context(http::Method::GET, "/api/v1/pods", "people");
        let _seat = limits.acquire_seat(&read).await.unwrap();
        assert_eq!(
            limits.acquire_seat(&read).await.unwrap_err().reason,
            Reason::TooManyRequests
        );
        let node = context(http::Method::GET, "/api/v1/pods", "system:nodes");
        assert!(
            limits.acquire_seat(&node).await.is_ok(),
            "nodes have their own seats"
        );
        let health = context(http::Method::GET, "/readyz", "people");
        assert!(limits.acquire_seat(&health).await.is_ok());
        for path in [
            "/api/v1/pods?watch=1",
            "/api/v1/namespaces/d/pods/p/log",
            "/api/v1/nodes/n/proxy/metrics",
        ] {
            assert!(
                limits
                    .acquire_seat(&context(http::Method::GET, path, "people"))
                    .await
                    .is_ok(),
                "{path}"
            );
        }
    }
}
