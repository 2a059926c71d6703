//! Write coalescing: sends everything that a connection's task writes in one poll in one system
//! call.
//!
//! The HTTP/2 library flushes a frame of 256 bytes or more before it writes the next one. When
//! several responses or events of a connection are ready together, the system calls, TLS records
//! and packets cost more than all other work of HTTP/2. Therefore a flush has no effect here: data
//! are sent at the end of a poll. While requests are in progress, other ready tasks run first.
//!
//! Rejected: the socket option `TCP_CORK`, which takes two system calls itself.

use crate::gathered::Gathered;
use crate::unread_limit::UnreadLimit;
use parking_lot::Mutex;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose writes are sent at the end of a poll.
///
/// After an upgrade, one task polls both halves: until the rest of the response is sent, a read
/// sends too, and a stream wakes only the task that polled it last.
pub struct CoalescingConnection<T>(Arc<Mutex<Shared<T>>>);

struct Shared<T> {
    gathered: Gathered<T>,
    sender: Sender,
    /// The last task that read, which may be that of an upgraded stream.
    reader: Option<Waker>,
}

/// The task that sends what was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Driver,
    /// The stream, at each write.
    Stream,
    /// The stream, also at a read: the driver has left bytes of the response before an upgrade.
    StreamWithRest,
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for CoalescingConnection<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut shared = self.0.lock();
        match shared.sender {
            Sender::Driver => match &mut shared.reader {
                Some(reader) => reader.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            },
            Sender::StreamWithRest => match shared.gathered.poll_send(cx) {
                Poll::Ready(Ok(())) => shared.sender = Sender::Stream,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            },
            Sender::Stream => {}
        }
        Pin::new(shared.gathered.inner()).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CoalescingConnection<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut shared = self.0.lock();
        match shared.sender {
            Sender::Driver => shared.gathered.poll_write(cx, bytes),
            // A task that copies between streams does not flush.
            Sender::Stream | Sender::StreamWithRest => {
                shared.gathered.poll_write_through(cx, bytes)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.0.lock();
        if shared.sender == Sender::Driver {
            // The driver sends after each poll of the work, so nothing waits longer than that.
            return Poll::Ready(Ok(()));
        }
        shared.gathered.poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().gathered.poll_shutdown(cx)
    }
}

/// The requests of a connection that are in progress.
pub trait OpenRequests {
    /// Returns whether several responses may be sent together.
    fn are_responses_coalesced(&self) -> bool;

    /// Returns whether the client may take no data for any time: in HTTP/1, a client can stop a
    /// response only by not reading from the connection. Its server may set a deadline. A response
    /// whose body has ended is not in progress, although its end may wait in buffers.
    fn may_client_pause(&self) -> bool;
}

/// The end of a connection.
#[derive(Debug)]
pub enum ConnectionEnd<O> {
    /// The work has ended, with this output.
    Ended(O),
    /// The peer has closed the connection, so that a response can't be sent.
    PeerClosed(io::Error),
    /// The peer has not read a response in time.
    Unread,
}

/// Drives `work` on a coalescing connection. While `requests` are in progress, their responses may
/// be sent together. The connection ends if data wait for the peer, and it takes none for 60 s.
///
/// The work may pass the connection to another task before it ends, as an upgrade does: the stream
/// then sends at each write, as usual, and has no limit.
pub fn drive_coalesced<T, R, F>(
    inner: T,
    requests: R,
    work: impl FnOnce(CoalescingConnection<T>) -> F,
) -> DrivenConnection<T, R, F>
where
    F: Future,
{
    let shared = Arc::new(Mutex::new(Shared {
        gathered: Gathered::new(inner),
        sender: Sender::Driver,
        reader: None,
    }));
    let work = Box::pin(work(CoalescingConnection(shared.clone())));
    DrivenConnection {
        shared,
        requests,
        work,
        unread: UnreadLimit::default(),
        waited: false,
    }
}

/// The future of [`drive_coalesced`].
pub struct DrivenConnection<T, R, F> {
    shared: Arc<Mutex<Shared<T>>>,
    requests: R,
    work: Pin<Box<F>>,
    unread: UnreadLimit,
    /// The last poll let other tasks run first.
    waited: bool,
}

impl<T, R, F> Unpin for DrivenConnection<T, R, F> {}

impl<T, R, F> Future for DrivenConnection<T, R, F>
where
    T: AsyncWrite + Unpin,
    R: OpenRequests,
    F: Future,
{
    type Output = ConnectionEnd<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let driven = &mut *self;
        // Other ready tasks run first, and their responses are sent together. Never twice in a row:
        // with requests always in progress nothing would be sent.
        driven.waited = !driven.waited && driven.requests.are_responses_coalesced();
        if driven.waited {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(output) = driven.work.as_mut().poll(cx) {
            return Poll::Ready(match send_rest(&driven.shared, cx) {
                Ok(()) => ConnectionEnd::Ended(output),
                Err(error) => ConnectionEnd::PeerClosed(error),
            });
        }
        let mut shared = driven.shared.lock();
        if let Poll::Ready(Err(error)) = shared.gathered.poll_send(cx) {
            return Poll::Ready(ConnectionEnd::PeerClosed(error));
        }
        let is_limited = !driven.requests.may_client_pause();
        let waiting = shared.gathered.count_if_waiting().filter(|_| is_limited);
        ready!(driven.unread.poll_expired(waiting, cx));
        Poll::Ready(ConnectionEnd::Unread)
    }
}

/// Sends what the work wrote before its end. This is tried once: work that ends in order has shut
/// the stream down, which sends everything; after a failure or at a deadline, the client may never
/// read the rest; and after an upgrade, the stream itself sends it.
fn send_rest<T: AsyncWrite + Unpin>(
    shared: &Mutex<Shared<T>>,
    cx: &mut Context<'_>,
) -> io::Result<()> {
    let mut shared = shared.lock();
    let reader = shared.reader.take();
    let Poll::Ready(sent) = shared.gathered.poll_send(cx) else {
        shared.sender = Sender::StreamWithRest;
        // An upgraded stream may wait already, and a read is to send the rest.
        reader.into_iter().for_each(Waker::wake);
        return Ok(());
    };
    shared.sender = Sender::Stream;
    sent
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::oneshot;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Responses {
        SentAlone,
        SentTogether,
        OfHttp1,
    }

    impl OpenRequests for Responses {
        fn are_responses_coalesced(&self) -> bool {
            *self == Responses::SentTogether
        }

        fn may_client_pause(&self) -> bool {
            *self == Responses::OfHttp1
        }
    }

    /// Writes `size` bytes and shuts the stream down; returns the end within 10 minutes.
    async fn write_and_close(
        inner: DuplexStream,
        responses: Responses,
        size: usize,
    ) -> Option<ConnectionEnd<()>> {
        let done = drive_coalesced(inner, responses, |mut io| async move {
            io.write_all(&vec![1; size]).await.unwrap();
            io.shutdown().await.unwrap();
        });
        let limit = Duration::from_secs(600);
        tokio::time::timeout(limit, done).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn end_in_order_waits_60_s_for_a_client_that_does_not_read() {
        // Small writes wait in the buffer, and large ones in the work.
        for size in [100, 100_000] {
            let (inner, _peer) = duplex(16);
            let end = write_and_close(inner, Responses::SentAlone, size).await;
            assert!(matches!(end, Some(ConnectionEnd::Unread)), "{size} {end:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_of_http1_may_pause_while_its_response_is_in_progress() {
        for size in [100, 100_000] {
            let (inner, _peer) = duplex(16);
            let end = write_and_close(inner, Responses::OfHttp1, size).await;
            assert!(end.is_none(), "{size} {end:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_reads_slowly_gets_everything() {
        let (inner, mut peer) = duplex(16);
        let reads = tokio::spawn(async move {
            let (mut received, mut bytes) = (0, [0; 16]);
            while let Ok(size @ 1..) = peer.read(&mut bytes).await {
                received += size;
                tokio::time::sleep(Duration::from_secs(50)).await;
            }
            received
        });
        let end = write_and_close(inner, Responses::SentAlone, 100).await;
        assert!(matches!(end, Some(ConnectionEnd::Ended(()))), "{end:?}");
        assert_eq!(reads.await.unwrap(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn writes_of_one_poll_are_sent_together() {
        let (inner, mut peer) = duplex(1 << 20);
        let writes = drive_coalesced(inner, Responses::SentAlone, |mut io| async move {
            for _ in 0..3 {
                io.write_all(&[1; 300]).await.unwrap();
                io.flush().await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
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
        assert!(matches!(done, ConnectionEnd::Ended(())));
        assert_eq!(sizes, [900, 100]);
    }

    #[tokio::test]
    async fn closed_peer_ends_the_connection() {
        let (inner, peer) = duplex(16);
        drop(peer);
        let done = drive_coalesced(inner, Responses::SentAlone, |mut io| async move {
            io.write_all(&[1; 100]).await.unwrap();
            std::future::pending::<()>().await;
        });
        assert!(matches!(done.await, ConnectionEnd::PeerClosed(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_failed_does_not_wait_for_a_client_that_does_not_read() {
        let (inner, _peer) = duplex(16);
        let done = drive_coalesced(inner, Responses::SentAlone, |mut io| async move {
            io.write_all(&[1; 100]).await.unwrap();
            // Buffered, but the client takes no more.
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
        let done = tokio::time::timeout(Duration::from_secs(30), done).await;
        assert!(matches!(done, Ok(ConnectionEnd::Ended(()))), "{done:?}");
    }

    #[tokio::test]
    async fn other_tasks_run_before_the_responses_of_open_requests_are_sent() {
        let (inner, mut peer) = duplex(1 << 20);
        let (first, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let second = first.clone();
        let connection = drive_coalesced(inner, Responses::SentTogether, |mut io| async move {
            while let Some(size) = receiver.recv().await {
                io.write_all(&vec![1; size]).await.unwrap();
            }
        });
        // `join!` polls in this order: one request completes before the connection is polled, and
        // one after it.
        let ((), done, ()) = tokio::join!(
            async move { first.send(10).unwrap() },
            connection,
            async move { second.send(20).unwrap() }
        );
        assert!(matches!(done, ConnectionEnd::Ended(())));
        let mut buffer = vec![0; 100];
        assert_eq!(peer.read(&mut buffer).await.unwrap(), 30);
    }

    /// Writes `head`, and passes the stream to another task, as an upgrade does.
    async fn upgrade(inner: DuplexStream, head: usize) -> CoalescingConnection<DuplexStream> {
        let (sender, receiver) = oneshot::channel();
        let done = drive_coalesced(inner, Responses::SentAlone, |mut io| async move {
            io.write_all(&vec![1; head]).await.unwrap();
            assert!(sender.send(io).is_ok());
        });
        assert!(matches!(done.await, ConnectionEnd::Ended(())));
        receiver.await.unwrap()
    }

    #[tokio::test]
    async fn upgraded_stream_sends_at_each_write() {
        let (inner, mut peer) = duplex(1 << 20);
        let mut io = upgrade(inner, 10).await;
        let mut buffer = vec![0; 100];
        assert_eq!(peer.read(&mut buffer).await.unwrap(), 10);
        io.write_all(&[2; 20]).await.unwrap();
        assert_eq!(peer.read(&mut buffer).await.unwrap(), 20);
    }

    #[tokio::test]
    async fn upgraded_stream_that_only_reads_sends_the_rest_of_the_response() {
        // The peer takes 6 bytes of 10 before the work ends.
        let (inner, mut peer) = duplex(6);
        let mut io = upgrade(inner, 10).await;
        let mut byte = [0];
        let reads = tokio::spawn(async move { io.read(&mut byte).await });
        let mut head = [0; 10];
        peer.read_exact(&mut head).await.unwrap();
        assert_eq!(head, [1; 10]);
        peer.write_all(&[3]).await.unwrap();
        assert_eq!(reads.await.unwrap().unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn upgraded_stream_that_waits_for_data_sends_the_rest_of_the_response() {
        // The peer takes 6 bytes of 10, and reads the rest after the work has ended.
        let (inner, mut peer) = duplex(6);
        let (stream_sender, stream) = oneshot::channel();
        let (waits_sender, waits) = oneshot::channel::<()>();
        let reads = tokio::spawn(async move {
            let mut io: CoalescingConnection<DuplexStream> = stream.await.unwrap();
            let mut byte = [0];
            let mut read = Box::pin(io.read(&mut byte));
            let polled = std::future::poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
            waits_sender.send(()).unwrap();
            read.await.unwrap()
        });
        let done = drive_coalesced(inner, Responses::SentAlone, |mut io| async move {
            io.write_all(&[1; 10]).await.unwrap();
            assert!(stream_sender.send(io).is_ok());
            waits.await.unwrap();
        });
        assert!(matches!(done.await, ConnectionEnd::Ended(())));
        let mut head = [0; 10];
        let received = peer.read_exact(&mut head);
        let received = tokio::time::timeout(Duration::from_secs(60), received).await;
        assert!(received.is_ok(), "the rest of the response is not sent");
        peer.write_all(&[3]).await.unwrap();
        assert_eq!(reads.await.unwrap(), 1);
    }
}
