//! Requests with a time limit that are in flight.

use crate::exempt::is_long_running;
use apiserver_request::RequestInfo;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The requests in flight, apart from those that last as long as their client wants.
#[derive(Default)]
pub struct ShortRequests {
    tracker: TaskTracker,
}

/// A request with a time limit that is in flight until this is dropped.
pub struct ShortRequest {
    _token: TaskTrackerToken,
}

impl ShortRequests {
    /// Counts a request as in flight; None for one that lasts as long as its client wants.
    pub fn begin_request(&self, info: &RequestInfo) -> Option<ShortRequest> {
        let begin = || ShortRequest {
            _token: self.tracker.token(),
        };
        (!is_long_running(info)).then(begin)
    }

    /// Waits until no request is in flight.
    pub async fn wait_idle(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::full_body;
    use crate::context::Context;
    use futures::FutureExt;

    /// A response is in flight until its last byte is sent.
    #[test]
    fn wait_idle_waits_for_short_requests_only() {
        for (path, is_short) in [
            ("/api/v1/pods", true),
            ("/version", true),
            ("/api/v1/pods?watch=1", false),
            ("/api/v1/namespaces/d/pods/p/log", false),
        ] {
            let requests = ShortRequests::default();
            let mut request = http::Request::new(());
            *request.uri_mut() = http::Uri::from_static(path);
            let context = Context::new(&request.into_parts().0);
            let begun = context.map(|context| requests.begin_request(&context.info));
            let body = begun.map(|begun| full_body("response").with_request(begun));
            assert!(body.is_ok(), "{path}");
            let is_idle = requests.wait_idle().now_or_never().is_some();
            assert_eq!(is_idle, !is_short, "{path}");
            drop(body);
            assert!(requests.wait_idle().now_or_never().is_some(), "{path}");
        }
    }
}
