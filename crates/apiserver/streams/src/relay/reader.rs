//! Relays one stream to a client that only reads: `binary.k8s.io` and `base64.binary.k8s.io`.

use crate::protocol::Reader;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// Maximum size of a client's message in bytes; such a client has nothing to send.
const MESSAGE: usize = 4 * 1024;

/// Sends a stream over a client's connection, upgraded to a WebSocket, until the stream ends or the
/// client closes.
pub async fn send_stream<C, S, E>(reader: Reader, client: C, mut stream: S)
where
    C: AsyncRead + AsyncWrite + Unpin + Send,
    S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE))
        .max_frame_size(Some(MESSAGE));
    let (mut sink, mut received) =
        WebSocketStream::from_raw_socket(client, Role::Server, Some(config))
            .await
            .split();
    let message = |bytes: Bytes| match reader {
        // For clients that can not handle binary frames.
        Reader::Base64 => Message::Text(STANDARD.encode(bytes).into()),
        Reader::Plain | Reader::Binary => Message::Binary(bytes),
    };
    let sending = async {
        // An empty message notifies the client that the connection is established.
        sink.send(message(Bytes::new())).await?;
        while let Some(Ok(bytes)) = stream.next().await {
            if !bytes.is_empty() {
                sink.send(message(bytes)).await?;
            }
        }
        sink.send(Message::Close(None)).await?;
        sink.flush().await
    };
    // Without reading, a close frame would be noticed only when a write fails.
    let closed = async {
        while received
            .next()
            .await
            .is_some_and(|m| m.is_ok_and(|m| !m.is_close()))
        {}
    };
    let ended: Result<(), Error> =
        tokio::select! { ended = sending => ended, () = closed => Ok(()) };
    if let Err(error) = ended {
        tracing::debug!(%error, "a stream broke off");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::convert::Infallible;

    async fn received(reader: Reader) -> Vec<Message> {
        let (ours, client) = tokio::io::duplex(64 * 1024);
        let pieces = [
            Bytes::from_static(b"one\n"),
            Bytes::new(),
            Bytes::from_static(b"two\n"),
        ];
        let stream = futures::stream::iter(pieces.map(Ok::<_, Infallible>));
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None);
        let (_, client) = tokio::join!(send_stream(reader, ours, stream), client);
        client
            .filter_map(|message| async { message.ok() })
            .collect()
            .await
    }

    #[tokio::test]
    async fn stream_arrives_whole_and_is_closed() {
        let binary = |bytes: &'static [u8]| Message::Binary(Bytes::from_static(bytes));
        let want = [
            binary(b""),
            binary(b"one\n"),
            binary(b"two\n"),
            Message::Close(None),
        ];
        assert_eq!(received(Reader::Binary).await, want);
        assert_eq!(received(Reader::Plain).await, want);
        let text = |text: &'static str| Message::Text(text.into());
        let want = [
            text(""),
            text("b25lCg=="),
            text("dHdvCg=="),
            Message::Close(None),
        ];
        assert_eq!(received(Reader::Base64).await, want);
    }
}
