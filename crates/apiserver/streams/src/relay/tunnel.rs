//! Relays the bytes of messages as a plain byte stream.

use super::write::write_and_flush;
use bytes::{Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const BUFFER: usize = 32 * 1024;

pub(super) async fn relay_tunnel<C, U>(
    client: WebSocketStream<C>,
    upstream: U,
) -> Result<(), String>
where
    C: AsyncRead + AsyncWrite + Unpin + Send,
    U: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (sink, stream) = client.split();
    let (reader, writer) = tokio::io::split(upstream);
    tokio::select! {
        // Either direction ends the tunnel: half-closed streams are up to the SPDY connection
        // inside.
        ended = relay_to_upstream(stream, writer) => ended,
        ended = relay_to_client(reader, sink) => ended,
    }
}

async fn relay_to_upstream<C, U>(
    mut client: SplitStream<WebSocketStream<C>>,
    mut upstream: WriteHalf<U>,
) -> Result<(), String>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncWrite,
{
    while let Some(message) = client.next().await {
        match message.map_err(|e| e.to_string())? {
            Message::Binary(bytes) => write_and_flush(&mut upstream, &bytes).await?,
            Message::Close(_) => break,
            _ => {}
        }
    }
    upstream.shutdown().await.map_err(|e| e.to_string())
}

async fn relay_to_client<C, U>(
    mut upstream: ReadHalf<U>,
    mut client: SplitSink<WebSocketStream<C>, Message>,
) -> Result<(), String>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead,
{
    let mut buffer = BytesMut::with_capacity(BUFFER);
    while upstream
        .read_buf(&mut buffer)
        .await
        .map_err(|e| e.to_string())?
        > 0
    {
        let bytes: Bytes = buffer.split().freeze();
        client
            .send(Message::Binary(bytes))
            .await
            .map_err(|e| e.to_string())?;
        buffer.reserve(BUFFER);
    }
    client.close().await.map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]

    use super::*;
    use std::time::Duration;
    use tokio::io::BufStream;
    use tokio_tungstenite::tungstenite::protocol::Role;

    #[tokio::test]
    async fn each_message_reaches_the_kubelet_without_a_further_one() {
        let (ours, client) = tokio::io::duplex(64 * 1024);
        let (upstream, mut kubelet) = tokio::io::duplex(64 * 1024);
        // Keeps what is written until it is flushed, as TLS does when the kubelet is slow.
        tokio::spawn(crate::relay_streams(
            crate::Protocol::Tunnel,
            crate::Streams::default(),
            ours,
            BufStream::new(upstream),
        ));
        let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        client
            .send(Message::Binary(Bytes::from_static(b"request")))
            .await
            .unwrap();
        let mut seen = [0; 7];
        let read = kubelet.read_exact(&mut seen);
        tokio::time::timeout(Duration::from_secs(60), read)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&seen, b"request");
    }
}
