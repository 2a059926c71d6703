//! Write coalescing: buffers small writes until they are sent explicitly.

use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Maximum number of buffered bytes: copying more would cost more than a system call.
const MOST: usize = 16 << 10;
/// Capacity of the buffer in bytes that is kept while it is empty.
const KEPT: usize = 4 << 10;

/// A stream with a buffer that combines small writes into one system call.
///
/// The caller must call `poll_send` after the last write, or buffered data remain unsent.
pub struct Gathered<T> {
    inner: T,
    waiting: BytesMut,
    unflushed: bool,
    progress: WriteProgress,
}

/// Progress of a stream with its data.
#[derive(Debug, Default)]
struct WriteProgress {
    /// Number of bytes that the stream has accepted.
    accepted: u64,
    /// The stream accepts no data.
    write_waits: bool,
    /// The stream has data of its own to send, as that of TLS does.
    flush_waits: bool,
}

impl WriteProgress {
    fn record_write(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.write_waits = polled.is_pending();
        if let Poll::Ready(Ok(accepted)) = polled {
            self.accepted += accepted as u64;
        }
        polled
    }

    fn record_flush(&mut self, polled: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        self.flush_waits = polled.is_pending();
        polled
    }
}

impl<T> Gathered<T> {
    /// Creates an empty buffer.
    pub fn new(inner: T) -> Self {
        Gathered {
            inner,
            waiting: BytesMut::new(),
            unflushed: false,
            progress: WriteProgress::default(),
        }
    }

    /// Returns the number of bytes that the stream has accepted, if data wait for the peer.
    pub(crate) fn count_if_waiting(&self) -> Option<u64> {
        let WriteProgress {
            accepted,
            write_waits,
            flush_waits,
        } = self.progress;
        (write_waits || flush_waits).then_some(accepted)
    }

    /// Returns the stream.
    pub fn inner(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: AsyncWrite + Unpin> Gathered<T> {
    /// Buffers a write. Pending only if the buffer is full and the stream accepts no data.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        piece: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = piece.iter().map(|part| part.len()).sum();
        if self.waiting.len() + length > MOST {
            ready!(self.poll_waiting(cx))?;
        }
        self.unflushed = true;
        // Large writes go directly to the stream: copying them would cost more than the call.
        if length > MOST {
            let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, piece);
            return self.progress.record_write(polled);
        }
        self.waiting.reserve(length);
        for part in piece {
            self.waiting.extend_from_slice(part);
        }
        Poll::Ready(Ok(length))
    }

    /// Sends buffered data, then writes directly to the stream.
    pub fn poll_write_through(
        &mut self,
        cx: &mut Context<'_>,
        piece: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_waiting(cx))?;
        self.unflushed = true;
        Pin::new(&mut self.inner).poll_write_vectored(cx, piece)
    }

    /// Sends buffered data and flushes the stream.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_waiting(cx))?;
        if self.unflushed {
            let polled = Pin::new(&mut self.inner).poll_flush(cx);
            ready!(self.progress.record_flush(polled))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends buffered data and shuts down the stream.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.progress.record_flush(polled)
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let polled = Pin::new(&mut self.inner).poll_write(cx, &self.waiting);
            let sent = ready!(self.progress.record_write(polled))?;
            // A stream that accepts nothing without an error would make this loop spin.
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(sent);
        }
        // Thousands of idle connections must not keep the buffers of their busiest moment.
        if self.waiting.capacity() > KEPT {
            self.waiting = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, duplex};

    #[tokio::test]
    async fn writes_of_all_sizes_are_sent_in_order() {
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
                    let taken = poll_fn(|cx| gathered.poll_write(cx, &[IoSlice::new(&left)]))
                        .await
                        .unwrap();
                    left.drain(..taken);
                }
            }
            poll_fn(|cx| gathered.poll_shutdown(cx)).await.unwrap();
            drop(gathered);
            assert!(reads.await.unwrap() == wanted);
        }
    }
}
