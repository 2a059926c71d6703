//! Limits of the time in which nothing is transferred.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Sleep, sleep};

/// Error of a body.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body whose next part must arrive in time. While the receiver does not poll, time does not
/// count: the sender can't continue then.
pub(crate) struct IdleBody<B> {
    inner: B,
    limit: Duration,
    wait: Option<Pin<Box<Sleep>>>,
}

impl<B> IdleBody<B> {
    /// Limits the wait for each part of a body.
    pub(crate) fn new(inner: B, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            wait: None,
        }
    }
}

impl<B> Body for IdleBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            self.wait = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let limit = self.limit;
        let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(limit)));
        match wait.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the body stopped");
                Poll::Ready(Some(Err(error.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Copies both ways until both ends have closed, one fails, or nothing was transferred for `limit`.
pub(crate) async fn copy_until_idle<A, B>(a: A, b: B, limit: Duration)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (a_read, a_write) = tokio::io::split(a);
    let (b_read, b_write) = tokio::io::split(b);
    let moved = Arc::new(AtomicU64::new(0));
    let copies = async {
        tokio::join!(
            copy_one_way(a_read, b_write, &moved),
            copy_one_way(b_read, a_write, &moved)
        )
    };
    let idle = async {
        loop {
            let before = moved.load(Ordering::Relaxed);
            sleep(limit).await;
            if moved.load(Ordering::Relaxed) == before {
                return;
            }
        }
    };
    tokio::select! {
        _ = copies => {}
        () = idle => {}
    }
}

async fn copy_one_way<R, W>(mut from: R, mut to: W, moved: &AtomicU64)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let part = buffer.get(..count).unwrap_or_default();
        if to.write_all(part).await.is_err() {
            break;
        }
        moved.fetch_add(1, Ordering::Relaxed);
    }
    // The other direction ends when its own sender closes.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http_body_util::{BodyExt, StreamBody};

    #[tokio::test(start_paused = true)]
    async fn body_that_stops_ends_with_an_error() {
        let stuck = futures::stream::pending::<Result<Frame<Bytes>, io::Error>>();
        let body = IdleBody::new(StreamBody::new(stuck), Duration::from_secs(60));
        let error = body.collect().await.unwrap_err();
        assert!(error.to_string().contains("stopped"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn copy_ends_when_nothing_is_transferred() {
        let (near, mut client) = tokio::io::duplex(64);
        let (far, mut server) = tokio::io::duplex(64);
        let copy = copy_until_idle(near, far, Duration::from_secs(60));
        let exchange = async {
            client.write_all(b"ping").await.unwrap();
            let mut read = [0; 4];
            server.read_exact(&mut read).await.unwrap();
            assert_eq!(&read, b"ping");
            // Ends only because the copy closes both ends.
            assert_eq!(server.read(&mut read).await.unwrap(), 0);
        };
        tokio::join!(copy, exchange);
    }
}
