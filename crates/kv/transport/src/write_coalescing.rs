//! Write coalescing: sends everything that a connection's task writes in one poll in one system
//! call.
//!
//! The HTTP/2 library flushes a message of 256 bytes or more before it writes the trailers. When
//! several calls of a connection complete together, the first one wakes it. The system calls and
//! packets that follow cost more than all other work of HTTP/2. Therefore a flush has no effect
//! here: data are sent at the end of a poll. While calls are in progress, other ready tasks run
//! first.
//!
//! Rejected: the socket option `TCP_CORK`, which takes two system calls itself.

use base_serve::Gathered;
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose writes are sent at the end of a poll.
pub struct CoalescingConnection<T>(Arc<Mutex<Gathered<T>>>);

impl<T: AsyncRead + Unpin> AsyncRead for CoalescingConnection<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.0.lock().inner()).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CoalescingConnection<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // `drive_coalesced` sends after each poll of the work, so nothing waits longer than that.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_shutdown(cx)
    }
}

/// Number of calls in progress on a connection.
#[derive(Clone, Default)]
pub struct Calls(Arc<AtomicUsize>);

impl Calls {
    /// Counts a call until its response starts.
    pub async fn count_during<A: Future>(self, answer: A) -> A::Output {
        struct Over(Calls);
        impl Drop for Over {
            fn drop(&mut self) {
                self.0.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let _over = Over(self);
        answer.await
    }
}

/// Drives `work` on a coalescing connection. Returns `None` if the peer has closed it.
pub async fn drive_coalesced<T, F>(
    inner: T,
    calls: Calls,
    work: impl FnOnce(CoalescingConnection<T>) -> F,
) -> Option<F::Output>
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Future,
{
    let gathered = Arc::new(Mutex::new(Gathered::new(inner)));
    let mut work = Box::pin(work(CoalescingConnection(gathered.clone())));
    let (mut result, mut waited) = (None, false);
    std::future::poll_fn(move |cx| {
        // Other ready tasks run first, and their responses are sent together. Never twice in a row:
        // with calls always in progress nothing would be sent.
        waited = !waited && calls.0.load(Ordering::Relaxed) > 0;
        if waited {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if result.is_none()
            && let Poll::Ready(output) = work.as_mut().poll(cx)
        {
            result = Some(output);
        }
        // The bytes that the work wrote before it ended are sent before its result is returned.
        match ready!(gathered.lock().poll_send(cx)) {
            Ok(()) => result
                .take()
                .map_or(Poll::Pending, |output| Poll::Ready(Some(output))),
            Err(error) => {
                tracing::debug!(%error, "an answer can't be sent");
                Poll::Ready(None)
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn writes_of_one_poll_are_sent_together() {
        let (inner, mut peer) = duplex(1 << 20);
        let writes = drive_coalesced(inner, Calls::default(), |mut io| async move {
            for _ in 0..3 {
                io.write_all(&[1; 300]).await.unwrap();
                io.flush().await.unwrap();
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            io.write_all(&[1; 100]).await.unwrap();
        });
        let reads = async move {
            let (mut sizes, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
            while let Ok(size @ 1..) = peer.read(&mut buffer).await {
                sizes.push(size);
            }
            sizes
        };
        let (done, sizes) = tokio::join!(writes, reads);
        assert!(done.is_some());
        assert_eq!(sizes, [900, 100]);
    }

    #[tokio::test]
    async fn closed_peer_ends_the_connection() {
        let (inner, peer) = duplex(16);
        drop(peer);
        let done = drive_coalesced(inner, Calls::default(), |mut io| async move {
            io.write_all(&[1; 100]).await.unwrap();
            std::future::pending::<()>().await;
        });
        assert!(done.await.is_none());
    }

    #[tokio::test]
    async fn cancelled_call_is_no_longer_in_progress() {
        let calls = Calls::default();
        let mut call = Box::pin(calls.clone().count_during(std::future::pending::<()>()));
        assert!(poll_once(&mut call).await.is_pending());
        assert_eq!(calls.0.load(Ordering::Relaxed), 1);
        drop(call);
        assert_eq!(calls.0.load(Ordering::Relaxed), 0);
    }

    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
    }

    #[tokio::test]
    async fn other_tasks_run_before_the_responses_of_open_calls_are_sent() {
        let (inner, mut peer) = duplex(1 << 20);
        let calls = Calls::default();
        calls.0.fetch_add(1, Ordering::Relaxed);
        let (first, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let second = first.clone();
        let connection = drive_coalesced(inner, calls.clone(), |mut io| async move {
            while let Some(size) = receiver.recv().await {
                io.write_all(&vec![1; size]).await.unwrap();
            }
        });
        // `join!` polls in this order: one call completes before the connection is polled, and one
        // after it.
        let ((), done, ()) = tokio::join!(
            async move { first.send(10).unwrap() },
            connection,
            async move { second.send(20).unwrap() }
        );
        assert!(done.is_some());
        let mut buffer = vec![0; 100];
        assert_eq!(peer.read(&mut buffer).await.unwrap(), 30);
    }
}
