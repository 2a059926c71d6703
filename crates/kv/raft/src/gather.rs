//! What a call to another member is made of goes out in one system call.
//!
//! The HTTP/2 library flushes a call's headers, its message and its end one by one: three system calls and packets, each of
//! which wakes the other member. Its task can't be got at here, so a flush after something was written asks for another turn
//! of that task, behind whatever else is ready, and the next flush sends everything.

use bytes::{Buf, BytesMut};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// More than this is not gathered: copying it would cost more than a system call.
const MOST: usize = 16 << 10;
/// Room that is kept.
const KEPT: usize = 4 << 10;

/// A connection whose writes are gathered.
pub(crate) struct Gathering<T> {
    inner: T,
    waiting: BytesMut,
    /// Something was written since the last flush.
    fresh: bool,
}

impl<T: AsyncWrite + Unpin> Gathering<T> {
    pub fn new(inner: T) -> Self {
        Gathering { inner, waiting: BytesMut::new(), fresh: false }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.waiting))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(sent);
        }
        if self.waiting.capacity() > KEPT {
            self.waiting = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gathering<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gathering<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.waiting.len() + bytes.len() > MOST {
            ready!(self.poll_send(cx))?;
        }
        self.fresh = true;
        if bytes.len() > MOST {
            return Pin::new(&mut self.inner).poll_write(cx, bytes);
        }
        self.waiting.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.fresh) && pin!(tokio::task::yield_now()).poll(cx).is_pending() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn what_is_flushed_in_pieces_goes_out_at_once() {
        let (inner, mut peer) = duplex(1 << 20);
        let writes = tokio::spawn(async move {
            let mut io = Gathering::new(inner);
            for size in [300, 20, 10] {
                io.write_all(&vec![1; size]).await.unwrap();
                io.flush().await.unwrap();
            }
            // As a connection's task does: it flushes in each of its turns.
            let mut turns = 0;
            poll_fn(|cx| {
                turns += 1;
                ready!(Pin::new(&mut io).poll_flush(cx)).unwrap();
                if turns < 3 { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        });
        let mut buffer = vec![0; 1_000];
        assert_eq!(peer.read(&mut buffer).await.unwrap(), 330);
        writes.abort();
    }

    #[tokio::test]
    async fn much_goes_through_in_order() {
        let (inner, mut peer) = duplex(7);
        let reads = tokio::spawn(async move {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).await.unwrap();
            all
        });
        let mut io = Gathering::new(inner);
        let mut wanted = Vec::new();
        for (byte, size) in [(1, 10), (2, MOST + 1), (3, MOST), (4, 100)] {
            io.write_all(&vec![byte; size]).await.unwrap();
            wanted.extend(vec![byte; size]);
        }
        io.shutdown().await.unwrap();
        drop(io);
        assert!(reads.await.unwrap() == wanted);
    }
}
