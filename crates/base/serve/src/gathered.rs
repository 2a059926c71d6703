//! Writes that wait until somebody says that they are to go out.

use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// More than this is not gathered: copying it would cost more than a system call.
const MOST: usize = 16 << 10;
/// Room that is kept while nothing waits.
const KEPT: usize = 4 << 10;

/// A stream, and what was written for it: small pieces wait, and go out in one system call.
///
/// Whoever uses it has to call `poll_send` after the last write, or what waits stays.
pub struct Gathered<T> {
    inner: T,
    waiting: BytesMut,
    unflushed: bool,
}

impl<T> Gathered<T> {
    /// Nothing waits.
    pub fn new(inner: T) -> Self {
        Gathered { inner, waiting: BytesMut::new(), unflushed: false }
    }

    /// The stream.
    pub fn inner(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: AsyncWrite + Unpin> Gathered<T> {
    /// Takes a piece. Pending only while there is no room and the stream takes nothing.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, piece: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let length = piece.iter().map(|part| part.len()).sum();
        if self.waiting.len() + length > MOST {
            ready!(self.poll_waiting(cx))?;
        }
        self.unflushed = true;
        if length > MOST {
            return Pin::new(&mut self.inner).poll_write_vectored(cx, piece);
        }
        self.waiting.reserve(length);
        for part in piece {
            self.waiting.extend_from_slice(part);
        }
        Poll::Ready(Ok(length))
    }

    /// Sends what waits, and flushes the stream.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_waiting(cx))?;
        if self.unflushed {
            ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what waits, and ends the stream.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, duplex};

    #[tokio::test]
    async fn everything_goes_through_in_order() {
        for room in [7, 1 << 20] {
            let (inner, mut peer) = duplex(room);
            let reads = tokio::spawn(async move {
                let mut all = Vec::new();
                peer.read_to_end(&mut all).await.unwrap();
                all
            });
            let mut gathered = Gathered::new(inner);
            let mut wanted = Vec::new();
            for (byte, size) in [(1, 10), (2, MOST + 1), (3, MOST), (4, 100), (5, 3 * MOST)] {
                let mut left = vec![byte; size];
                wanted.extend_from_slice(&left);
                while !left.is_empty() {
                    let taken = poll_fn(|cx| gathered.poll_write(cx, &[IoSlice::new(&left)])).await.unwrap();
                    left.drain(..taken);
                }
            }
            poll_fn(|cx| gathered.poll_shutdown(cx)).await.unwrap();
            drop(gathered);
            assert!(reads.await.unwrap() == wanted);
        }
    }
}
