//! A stream of received messages.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use prost::Message;
use tonic::{Status, Streaming};

use crate::codec::decode_message;

/// Messages in the order in which they arrive. The stream ends after an error: a message that can't
/// be decoded is never skipped.
#[derive(Debug)]
pub struct MessageStream<M> {
    /// None after the end.
    inner: Option<Streaming<Bytes>>,
    decode: fn(Bytes) -> Result<M, Status>,
}

impl<M: Message + Default> MessageStream<M> {
    pub(crate) fn new(inner: Streaming<Bytes>) -> Self {
        Self {
            inner: Some(inner),
            decode: decode_message,
        }
    }
}

impl<M> MessageStream<M> {
    /// Returns the next message; None at the end of the stream.
    ///
    /// # Errors
    /// The peer or the connection failed the call, or the message can't be decoded.
    pub async fn message(&mut self) -> Result<Option<M>, Status> {
        self.next().await.transpose()
    }
}

impl<M> Stream for MessageStream<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let decode = self.decode;
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let received = ready!(inner.poll_next_unpin(cx)).map(|bytes| decode(bytes?));
        if !matches!(received, Some(Ok(_))) {
            self.inner = None;
        }
        Poll::Ready(received)
    }
}
