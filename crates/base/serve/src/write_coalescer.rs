//! Write coalescing of clients: sends all frames of a call in one system call.
//!
//! The HTTP/2 library flushes headers, message and end of stream separately: three system calls and
//! packets, each of which wakes the server. Its task is not accessible to a client. Therefore the
//! first flush after a write yields and schedules that task behind all other ready tasks. The next
//! flush sends everything.

use crate::gathered::Gathered;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that coalesces writes.
pub struct WriteCoalescer<T> {
    gathered: Gathered<T>,
    /// Data was written since the last flush.
    fresh: bool,
}

impl<T> WriteCoalescer<T> {
    /// Creates a connection without buffered data.
    pub fn new(inner: T) -> Self {
        WriteCoalescer {
            gathered: Gathered::new(inner),
            fresh: false,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteCoalescer<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.gathered.inner()).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteCoalescer<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.fresh = true;
        self.gathered.poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.fresh) && pin!(tokio::task::yield_now()).poll(cx).is_pending() {
            return Poll::Ready(Ok(()));
        }
        self.gathered.poll_send(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.gathered.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::future::poll_fn;
    use std::task::ready;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn flushes_of_one_turn_are_sent_in_one_write() {
        let (inner, mut peer) = duplex(1 << 20);
        let writes = tokio::spawn(async move {
            let mut io = WriteCoalescer::new(inner);
            for size in [300, 20, 10] {
                io.write_all(&vec![1; size]).await.unwrap();
                io.flush().await.unwrap();
            }
            // A connection's task flushes on every poll.
            let mut turns = 0;
            poll_fn(|cx| {
                turns += 1;
                ready!(Pin::new(&mut io).poll_flush(cx)).unwrap();
                if turns < 3 {
                    Poll::Pending
                } else {
                    Poll::Ready(())
                }
            })
            .await;
        });
        let mut buffer = vec![0; 1_000];
        assert_eq!(peer.read(&mut buffer).await.unwrap(), 330);
        writes.abort();
    }
}
