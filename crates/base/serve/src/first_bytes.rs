//! A stream whose protocol must be known within a deadline.
//!
//! Distinguishing HTTP/1 from HTTP/2 takes up to the 24 bytes of HTTP/2's preface, for which hyper
//! waits without a timer. A peer that sends nothing or a part of it would keep its socket forever.
//! Later phases have their own timers.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Fails a read if the protocol is not known in time.
pub struct FirstBytes<T> {
    inner: T,
    /// Number of bytes of the preface that were received.
    seen: usize,
    /// `None` once the protocol is known.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T> FirstBytes<T> {
    /// Sets the deadline to `within` from now.
    pub fn new(inner: T, within: Duration) -> Self {
        FirstBytes {
            inner,
            seen: 0,
            deadline: Some(Box::pin(tokio::time::sleep(within))),
        }
    }

    fn note_bytes(&mut self, bytes: &[u8]) {
        let rest = PREFACE.get(self.seen..).unwrap_or_default();
        self.seen += bytes.len();
        // The preface is complete, or these bytes are not part of it: the protocol is known, and
        // hyper's own timers take over.
        if bytes.len() >= rest.len() || !rest.starts_with(bytes) {
            self.deadline = None;
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FirstBytes<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(deadline) = &mut self.deadline else {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        };
        // Polled before the read, so that a peer that sends one byte now and then cannot extend the
        // deadline.
        if deadline.as_mut().poll(cx).is_ready() {
            let silent = io::Error::new(
                io::ErrorKind::TimedOut,
                "the peer did not say in time which protocol it speaks",
            );
            return Poll::Ready(Err(silent));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.note_bytes(buf.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FirstBytes<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Returns whether a read has no deadline after the peer has sent these bytes.
    async fn unbounded(said: &[u8]) -> bool {
        let (mut peer, inner) = tokio::io::duplex(64);
        let mut stream = FirstBytes::new(inner, Duration::from_secs(3_600));
        for byte in said {
            peer.write_all(&[*byte]).await.unwrap();
            stream.read_u8().await.unwrap();
        }
        let Some(deadline) = &mut stream.deadline else {
            return true;
        };
        deadline.as_mut().reset(tokio::time::Instant::now());
        assert_eq!(
            stream.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        false
    }

    #[tokio::test]
    async fn connection_without_a_known_protocol_fails_at_the_deadline() {
        assert!(!unbounded(b"").await);
        assert!(!unbounded(b"PRI * HTTP/2.0\r\n").await);
        assert!(unbounded(PREFACE).await);
        assert!(unbounded(b"GET / HTTP/1.0\r\n\r\n").await);
        assert!(unbounded(b"PUT /").await);
    }
}
