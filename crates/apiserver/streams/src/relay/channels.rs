//! Relays channels of `v5.channel.k8s.io` to the streams of a SPDY connection.

use super::requested::Streams;
use super::write::write_and_flush;
use crate::spdy::{Decoder, Encoder, Frame};
use bytes::{Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_util::codec::FramedRead;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Marks a close: the channel in the second byte is closed.
const END: u8 = 255;

/// A stream with its channel number and its SPDY id.
#[derive(Clone, Copy)]
struct StreamPair {
    channel: u8,
    id: u32,
}

/// Returns the streams to open, in the order that kubelets expect.
fn stream_pairs(requested: Streams) -> Vec<(StreamPair, &'static str)> {
    let all = [
        (ERROR, "error", true),
        (STDIN, "stdin", requested.stdin),
        (STDOUT, "stdout", requested.stdout),
        (STDERR, "stderr", requested.stderr && !requested.tty),
        (RESIZE, "resize", requested.tty),
    ];
    let requested = all.into_iter().filter(|(_, _, requested)| *requested);
    requested
        // SPDY: streams that the client opens have odd, growing ids.
        .zip((1..).step_by(2))
        .map(|((channel, kind, _), id)| (StreamPair { channel, id }, kind))
        .collect()
}

pub(super) async fn relay_channels<C, U>(
    client: WebSocketStream<C>,
    upstream: U,
    requested: Streams,
) -> Result<(), String>
where
    C: AsyncRead + AsyncWrite + Unpin + Send,
    U: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (sink, stream) = client.split();
    let (reader, mut writer) = tokio::io::split(upstream);
    let opened = stream_pairs(requested);
    let mut out = BytesMut::new();
    let mut encoder = Encoder::default();
    for (pair, kind) in &opened {
        encoder
            .open_stream(&mut out, pair.id, kind)
            .map_err(|e| e.to_string())?;
    }
    write_and_flush(&mut writer, &out).await?;
    let pairs: Vec<StreamPair> = opened.into_iter().map(|(pair, _)| pair).collect();
    // Replies to pings: few, and sent by the task that owns the writer.
    let (pings, pinged) = mpsc::channel(8);
    tokio::select! {
        // The first side to end ends both: dropping the halves closes the other side's connection.
        ended = relay_to_client(FramedRead::new(reader, Decoder::default()), sink, pairs.clone(), pings) => ended,
        ended = relay_to_upstream(stream, writer, pairs, pinged) => ended,
    }
}

/// Relays from the client to the kubelet, until the client closes.
async fn relay_to_upstream<C, U>(
    mut client: SplitStream<WebSocketStream<C>>,
    mut upstream: WriteHalf<U>,
    pairs: Vec<StreamPair>,
    mut pinged: mpsc::Receiver<u32>,
) -> Result<(), String>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncWrite,
{
    let mut out = BytesMut::new();
    loop {
        tokio::select! {
            Some(id) = pinged.recv() => Encoder::put_ping_reply(&mut out, id),
            message = client.next() => match message {
                Some(Ok(Message::Binary(bytes))) => encode_client_message(&mut out, &pairs, &bytes),
                Some(Ok(Message::Close(_))) | None => return Ok(()),
                // Text has no channel, and the library itself replies to pings.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.to_string()),
            },
        }
        write_and_flush(&mut upstream, &out.split()).await?;
    }
}

/// Translates a client's message. Messages for channels that the client may not write are ignored.
fn encode_client_message(out: &mut BytesMut, pairs: &[StreamPair], message: &[u8]) {
    let (channel, bytes, last) = match message {
        [END, channel, ..] => (*channel, &[][..], true),
        [channel, bytes @ ..] => (*channel, bytes, false),
        [] => return,
    };
    // The client writes standard input and terminal sizes only; other channels are the kubelet's.
    let open = pairs
        .iter()
        .find(|pair| pair.channel == channel && matches!(channel, STDIN | RESIZE));
    if let Some(pair) = open.filter(|_| last || !bytes.is_empty()) {
        Encoder::put_data(out, pair.id, bytes, last);
    }
}

/// Relays from the kubelet to the client, until all data is delivered.
async fn relay_to_client<C, U>(
    mut upstream: FramedRead<ReadHalf<U>, Decoder>,
    mut client: SplitSink<WebSocketStream<C>, Message>,
    pairs: Vec<StreamPair>,
    pings: mpsc::Sender<u32>,
) -> Result<(), String>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead,
{
    let mut open: Vec<StreamPair> = pairs
        .into_iter()
        // The session lasts until the kubelet has ended its own streams; stdin and resize are for
        // the client to end.
        .filter(|p| matches!(p.channel, STDOUT | STDERR | ERROR))
        .collect();
    // An empty message notifies the client that the connection is established.
    let first = open.iter().map(|pair| pair.channel).min().unwrap_or(ERROR);
    send_frame(&mut client, first, &[]).await?;
    while !open.is_empty() {
        match upstream.next().await {
            Some(Ok(Frame::Data {
                stream,
                bytes,
                last,
            })) => {
                let Some(at) = open.iter().position(|pair| pair.id == stream) else {
                    continue;
                };
                // An empty message would look like the one that announces the connection.
                if let Some(pair) = open.get(at).filter(|_| !bytes.is_empty()) {
                    send_frame(&mut client, pair.channel, &bytes).await?;
                }
                if last {
                    open.remove(at);
                }
            }
            Some(Ok(Frame::Reset { stream })) => open.retain(|pair| pair.id != stream),
            // The queue of pings is full only if the kubelet does not wait for replies, so dropping
            // one is fine.
            Some(Ok(Frame::Ping { id })) => drop(pings.try_send(id)),
            Some(Ok(Frame::Other)) => {}
            Some(Err(error)) => return Err(error.to_string()),
            None => break,
        }
    }
    // Clients report a connection without a close frame as an error.
    let goodbye = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    client
        .send(Message::Close(Some(goodbye)))
        .await
        .map_err(|e| e.to_string())
}

async fn send_frame<C>(
    client: &mut SplitSink<WebSocketStream<C>, Message>,
    channel: u8,
    bytes: &[u8],
) -> Result<(), String>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut message = Vec::with_capacity(1 + bytes.len());
    message.push(channel);
    message.extend_from_slice(bytes);
    client
        .send(Message::Binary(Bytes::from(message)))
        .await
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]

    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncWriteExt, BufStream, DuplexStream};
    use tokio_tungstenite::tungstenite::protocol::Role;

    async fn sides(
        requested: Streams,
    ) -> (
        WebSocketStream<DuplexStream>,
        FramedRead<DuplexStream, Decoder>,
    ) {
        let (ours, client) = tokio::io::duplex(64 * 1024);
        let (upstream, kubelet) = tokio::io::duplex(64 * 1024);
        tokio::spawn(crate::relay_streams(
            crate::Protocol::Channels,
            requested,
            ours,
            // Keeps what is written until it is flushed, as TLS does when the kubelet is slow.
            BufStream::new(upstream),
        ));
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        (client, FramedRead::new(kubelet, Decoder::default()))
    }

    async fn soon<T>(what: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), what)
            .await
            .unwrap()
    }

    fn binary(bytes: &'static [u8]) -> Message {
        Message::Binary(Bytes::from_static(bytes))
    }

    #[tokio::test]
    async fn input_ends_while_output_goes_on() {
        let requested = Streams {
            stdin: true,
            stdout: true,
            stderr: false,
            tty: false,
        };
        let (mut client, mut kubelet) = sides(requested).await;
        client.send(binary(b"\x00in")).await.unwrap();
        client
            .send(binary(b"\x01not the client's to write"))
            .await
            .unwrap();
        client.send(binary(&[END, STDIN])).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let frame = soon(kubelet.next()).await.unwrap().unwrap();
            if frame != Frame::Other {
                seen.push(frame);
            }
        }
        let input = |bytes: &'static [u8], last| Frame::Data {
            stream: 3,
            bytes: Bytes::from_static(bytes),
            last,
        };
        assert_eq!(seen, [input(b"in", false), input(b"", true)]);
        let mut out = BytesMut::new();
        Encoder::put_data(&mut out, 5, b"out", true);
        Encoder::put_data(&mut out, 1, b"{}", true);
        kubelet.get_mut().write_all(&out).await.unwrap();
        for want in [&b"\x01"[..], b"\x01out", b"\x03{}"] {
            assert_eq!(
                soon(client.next()).await.unwrap().unwrap(),
                Message::Binary(Bytes::copy_from_slice(want))
            );
        }
        assert!(matches!(
            soon(client.next()).await.unwrap().unwrap(),
            Message::Close(_)
        ));
    }

    #[tokio::test]
    async fn a_client_that_goes_takes_the_kubelet_along() {
        let (client, mut kubelet) = sides(Streams {
            stdout: true,
            ..Streams::default()
        })
        .await;
        drop(client);
        soon(async { while kubelet.next().await.is_some_and(|frame| frame.is_ok()) {} }).await;
    }

    #[test]
    fn streams_are_opened_in_the_usual_order() {
        let names = |requested| {
            stream_pairs(requested)
                .into_iter()
                .map(|(pair, kind)| (pair.id, kind))
                .collect::<Vec<_>>()
        };
        let all = Streams {
            stdin: true,
            stdout: true,
            stderr: true,
            tty: false,
        };
        assert_eq!(
            names(all),
            [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")]
        );
        let tty = Streams { tty: true, ..all };
        assert_eq!(
            names(tty),
            [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "resize")]
        );
    }
}
