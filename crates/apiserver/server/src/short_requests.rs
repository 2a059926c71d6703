//! Requests with a time limit that are in flight.

use crate::exempt::is_long_running;
use apiserver_request::RequestInfo;
use std::time::Duration;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The requests in flight, apart from those that last as long as their client wants.
#[derive(Default)]
pub struct ShortRequests {
    handled: TaskTracker,
    sent: TaskTracker,
}

/// A request with a time limit that is handled until this is dropped.
pub struct ShortRequest {
    _token: TaskTrackerToken,
}

/// A response to a request with a time limit that is sent until this is dropped.
pub struct SentResponse {
    _token: TaskTrackerToken,
}

impl ShortRequests {
    /// Counts a request as in flight; None for one that lasts as long as its client wants.
    pub fn begin_request(&self, info: &RequestInfo) -> Option<ShortRequest> {
        let begin = || ShortRequest {
            _token: self.handled.token(),
        };
        (!is_long_running(info)).then(begin)
    }

    /// Counts the response of a handled request as being sent.
    pub fn begin_sending(&self, request: ShortRequest) -> SentResponse {
        let sent = SentResponse {
            _token: self.sent.token(),
        };
        drop(request);
        sent
    }

    /// Waits until no request is handled, and then at most `sending` for the responses: a client
    /// that does not read must not hold up the shutdown.
    pub async fn wait_idle(&self, sending: Duration) {
        self.handled.close();
        self.handled.wait().await;
        self.sent.close();
        // The rest is aborted.
        let _ = tokio::time::timeout(sending, self.sent.wait()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::full_body;
    use crate::context::Context;
    use futures::FutureExt;

    /// A response is in flight until its last byte is sent, or for the time of the shutdown.
    #[tokio::test(start_paused = true)]
    async fn wait_idle_waits_for_short_requests_only() {
        for (path, is_short) in [
            ("/api/v1/pods", true),
            ("/version", true),
            ("/api/v1/pods?watch=1", false),
            ("/api/v1/namespaces/d/pods/p/log", false),
        ] {
            let requests = ShortRequests::default();
            let limit = Duration::from_secs(10);
            let is_idle = || requests.wait_idle(limit).now_or_never().is_some();
            let mut request = http::Request::new(());
            *request.uri_mut() = http::Uri::from_static(path);
            let context = Context::new(request.into_parts().0);
            let begun = context.map(|context| requests.begin_request(&context.info));
            let begun = begun.unwrap_or_default();
            assert_eq!(is_idle(), !is_short, "{path}");
            let sent = begun.map(|request| requests.begin_sending(request));
            let body = full_body("response").with_sent(sent);
            assert_eq!(is_idle(), !is_short, "{path}");
            requests.wait_idle(limit).await;
            drop(body);
            assert!(is_idle(), "{path}");
        }
    }
}
