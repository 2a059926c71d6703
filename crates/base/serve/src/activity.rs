//! Detection of connections without requests, and the end of a connection by its service.

use crate::coalescing::OpenRequests;
use http::Version;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The requests of a connection.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    open: AtomicUsize,
    /// Number of requests that began, plus those that ended.
    changes: AtomicUsize,
    /// The requests are those of HTTP/1.
    is_http1: AtomicBool,
    close: Notify,
}

/// A connection; an extension of every request.
#[derive(Clone, Debug)]
pub struct ConnectionHandle(pub(crate) Arc<Activity>);

impl ConnectionHandle {
    /// Closes the connection with all of its requests. A stream of HTTP/2 that has all of its data
    /// can't be reset alone.
    pub fn close(&self) {
        self.0.close.notify_one();
    }
}

/// A request, until its response has been sent.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<Activity>);

impl OpenRequest {
    /// Counts a request.
    pub(crate) fn begin(activity: Arc<Activity>, version: Version) -> Self {
        let is_http1 = version < Version::HTTP_2;
        activity.is_http1.store(is_http1, Ordering::Relaxed);
        activity.open.fetch_add(1, Ordering::Relaxed);
        activity.changes.fetch_add(1, Ordering::Relaxed);
        Self(activity)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.changes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Activity {
    /// Waits for [`ConnectionHandle::close`].
    pub(crate) async fn wait_until_closed(&self) {
        self.close.notified().await;
    }

    /// Waits until there was no request for one to two times `limit`. Without a limit, the wait has
    /// no end.
    pub(crate) async fn wait_until_idle(&self, limit: Option<Duration>) {
        let Some(limit) = limit else {
            return std::future::pending().await;
        };
        loop {
            let before = self.changes.load(Ordering::Relaxed);
            tokio::time::sleep(limit).await;
            let is_open = self.open.load(Ordering::Relaxed) > 0;
            if !is_open && self.changes.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

impl OpenRequests for Arc<Activity> {
    fn are_responses_coalesced(&self) -> bool {
        // A single response has nothing to wait for.
        self.open.load(Ordering::Relaxed) > 1
    }

    fn may_client_pause(&self) -> bool {
        self.is_http1.load(Ordering::Relaxed) && self.open.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn connection_is_idle_some_time_after_its_last_request() {
        let activity = Arc::new(Activity::default());
        let request = OpenRequest::begin(activity.clone(), Version::HTTP_2);
        let (began, limit) = (Instant::now(), Duration::from_secs(60));
        let requests = async {
            sleep(Duration::from_secs(200)).await;
            drop(request);
        };
        tokio::join!(requests, activity.wait_until_idle(Some(limit)));
        let waited = began.elapsed().as_secs();
        assert!((260..=320).contains(&waited), "{waited}");
    }
}
