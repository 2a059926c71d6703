//! Relays the bytes of messages as a plain byte stream.

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
            Message::Binary(bytes) => upstream
                .write_all(&bytes)
                .await
                .map_err(|e| e.to_string())?,
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
