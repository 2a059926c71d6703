//! Calls in progress on a connection.

use base_serve::OpenRequests;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of calls in progress on a connection.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<AtomicUsize>);

impl Calls {
    /// Counts a call until its response starts.
    pub(crate) async fn count_until_response<R: Future>(self, response: R) -> R::Output {
        struct Over(Calls);
        impl Drop for Over {
            fn drop(&mut self) {
                self.0.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let _over = Over(self);
        response.await
    }
}

impl OpenRequests for Calls {
    fn are_responses_coalesced(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// HTTP/1 serves small pages only.
    fn may_client_pause(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::Poll;

    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
    }

    #[tokio::test]
    async fn cancelled_call_is_no_longer_in_progress() {
        let calls = Calls::default();
        let mut call = Box::pin(
            calls
                .clone()
                .count_until_response(std::future::pending::<()>()),
        );
        assert!(poll_once(&mut call).await.is_pending());
        assert!(calls.are_responses_coalesced());
        drop(call);
        assert!(!calls.are_responses_coalesced());
    }
}
