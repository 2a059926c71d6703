//! A watch: one JSON document per line, decoded incrementally.
//!
//! The server writes `type` before `object`, so the object is decoded directly into its
//! struct. The other order is supported by way of a JSON tree.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use futures::Stream;
use http::Response;
use hyper::body::{Body, Incoming};

use crate::decode::Decode;
use crate::error::{Error, Result};
use crate::tls::ConnectionTls;
use crate::watch_event::WatchEvent;

/// The lines of a watch.
pub(crate) struct WatchLines {
    body: Incoming,
    buffer: BytesMut,
    scanned: usize,
    plural: String,
    tls: Option<Arc<ConnectionTls>>,
}

impl WatchLines {
    pub(crate) fn new(response: Response<Incoming>, plural: String) -> Self {
        let tls = response.extensions().get().cloned();
        Self {
            tls,
            body: response.into_body(),
            buffer: BytesMut::new(),
            scanned: 0,
            plural,
        }
    }

    /// Returns the certificates of the watch's connection; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<&ConnectionTls> {
        self.tls.as_deref()
    }

    /// Takes the next complete line from the buffer.
    fn take_line(&mut self) -> Option<BytesMut> {
        loop {
            // Continues where the last search ended. An object of a MiB arrives in many frames, and
            // each would search from the start.
            let rest = self.buffer.get(self.scanned..)?;
            let Some(at) = rest.iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.buffer.len();
                if self.buffer.is_empty() {
                    // Idle watches are the rule, and hundreds of them would keep a buffer of their
                    // largest event.
                    self.buffer = BytesMut::new();
                }
                return None;
            };
            let line = self.buffer.split_to(self.scanned + at);
            self.buffer.advance(1);
            self.scanned = 0;
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }

    pub(crate) fn describe_error(&self, source: serde_json::Error) -> Error {
        Error::Decode {
            what: format!("an event of {}", self.plural),
            source,
        }
    }
}

impl Stream for WatchLines {
    type Item = Result<BytesMut>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(line) = self.take_line() {
                return Poll::Ready(Some(Ok(line)));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(Error::Connection {
                        what: format!("watch of {}", self.plural),
                        source: error.into(),
                    })));
                }
                // A partial line at the end is dropped: the watch resumes from the last complete
                // event, and the server sends it again.
                None => return Poll::Ready(None),
            }
        }
    }
}

/// Stream of watch events. It ends when the server closes it; resume from the last version seen.
pub struct Watch<K> {
    lines: WatchLines,
    kind: PhantomData<fn() -> K>,
}

impl<K> Watch<K> {
    pub(crate) fn new(lines: WatchLines) -> Self {
        Self {
            lines,
            kind: PhantomData,
        }
    }
}

impl<K: Decode> Stream for Watch<K> {
    type Item = Result<WatchEvent<K>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let line = ready!(Pin::new(&mut self.lines).poll_next(cx));
        Poll::Ready(line.map(|line| {
            K::decode_event(&line?).map_err(|source| self.lines.describe_error(source))
        }))
    }
}
