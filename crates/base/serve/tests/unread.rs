//! Memory of HTTP/2 responses whose client grants windows and does not read.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use base_serve::{Http2Buffers, Options, limit_sending, serve_http};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::service::service_fn;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const STREAMS: u32 = 20;
const FRAME: usize = 16 * 1024;

/// Bytes of a body that exist, and the most that existed at a time.
#[derive(Debug, Default)]
struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A frame that is counted while it exists.
struct CountedFrame(Vec<u8>, Arc<Count>);

impl CountedFrame {
    fn new(count: &Arc<Count>) -> Self {
        let now = count.now.fetch_add(FRAME, Ordering::SeqCst) + FRAME;
        count.most.fetch_max(now, Ordering::SeqCst);
        Self(vec![0; FRAME], count.clone())
    }
}

impl AsRef<[u8]> for CountedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for CountedFrame {
    fn drop(&mut self) {
        self.1.now.fetch_sub(FRAME, Ordering::SeqCst);
    }
}

/// A body without an end, which reports its count when it is dropped.
struct Endless {
    count: Arc<Count>,
    ended: mpsc::UnboundedSender<Arc<Count>>,
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.ended.send(self.count.clone());
    }
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = CountedFrame::new(&self.count);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(frame)))))
    }
}

async fn start_server(buffers: Http2Buffers) -> (SocketAddr, mpsc::UnboundedReceiver<Arc<Count>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ended, counts) = mpsc::unbounded_channel();
    let service = service_fn(move |_: Request<Incoming>| {
        let ended = ended.clone();
        async move {
            // Ends the bodies, and with them the test.
            limit_sending(Duration::from_secs(1));
            let count = Arc::default();
            Ok::<_, Infallible>(Response::new(Endless { count, ended }))
        }
    });
    let options = Options {
        buffers,
        ..Options::default()
    };
    let shutdown = CancellationToken::new();
    tokio::spawn(serve_http(listener, options, service, shutdown));
    (address, counts)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Sends requests with the largest windows (RFC 9113, 6.9), and reads nothing.
async fn send_requests(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let largest = (i32::MAX as u32).to_be_bytes();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[&[0, 4], &largest[..]].concat()));
    let rest = (i32::MAX as u32 - 65_535).to_be_bytes();
    sent.extend(frame(8, 0, 0, &rest));
    for n in 0..STREAMS {
        // GET http://x/ (RFC 7541, appendix A); the headers and the stream end.
        let request = [0x82, 0x86, 0x84, 0x01, 1, b'x'];
        sent.extend(frame(1, 5, 2 * n + 1, &request));
    }
    stream.write_all(&sent).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_response_occupies_the_send_buffer_and_few_frames() {
    let buffers = Http2Buffers {
        send: FRAME,
        ..Http2Buffers::default()
    };
    let (address, mut counts) = start_server(buffers).await;
    let stream = send_requests(address).await;
    for n in 0..STREAMS {
        let most = counts.recv().await.unwrap().most.load(Ordering::SeqCst);
        // The buffer may be full but for a byte when a frame is added. One more is polled before it
        // waits, and one is written.
        assert!(most <= 4 * FRAME, "stream {n}: {most} bytes");
    }
    drop(stream);
}
