//! A minimal gRPC connection: encodes request frames by hand and parses responses only as far as
//! needed.
//!
//! A call succeeds if it ends after a message; a call without a message was rejected. Flow-control
//! windows of the server are not tracked, because in-flight data stay far below the smallest one.
//! Rejected: `tonic`, which used as much processor time as the servers and would dominate the
//! measurement.

use anyhow::{Context, Result, bail};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const MAX_FRAME: usize = 16 << 10;
// Large enough that the server never waits for the load generator.
const WINDOW: u32 = 1 << 30;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Received from the server.
pub enum Received {
    /// Bytes of a stream's messages.
    Data(u32, Bytes),
    /// The stream has ended.
    End(u32),
}

/// A connection for calls of one method.
pub struct Wire {
    io: TcpStream,
    out: BytesMut,
    input: BytesMut,
    path: &'static str,
    authority: String,
    next: u32,
    unacknowledged: u32,
}

impl Wire {
    /// Connects to `address` (`host:port`).
    pub async fn connect(address: &str, path: &'static str) -> Result<Wire> {
        let io = TcpStream::connect(address)
            .await
            .with_context(|| address.to_owned())?;
        // Otherwise the kernel would delay a request until the one before is acknowledged.
        io.set_nodelay(true)?;
        let mut out = BytesMut::with_capacity(16 << 10);
        out.put_slice(PREFACE);
        put_frame_header(&mut out, SETTINGS, 0, 0, 6);
        // Initial window of a stream.
        out.put_u16(4);
        out.put_u32(WINDOW);
        put_frame_header(&mut out, WINDOW_UPDATE, 0, 0, 4);
        out.put_u32(WINDOW);
        let input = BytesMut::with_capacity(64 << 10);
        Ok(Wire {
            io,
            out,
            input,
            path,
            authority: address.to_owned(),
            next: 1,
            unacknowledged: 0,
        })
    }

    /// Starts a call with a message; `last` marks its only one. Returns the stream.
    pub fn start_call(&mut self, message: &impl prost::Message, last: bool) -> u32 {
        let stream = self.next;
        self.next += 2;
        let mut block = BytesMut::new();
        // POST, http
        block.put_slice(&[0x83, 0x86]);
        // The first call adds its headers to the server's dynamic table (RFC 7541). Later calls
        // refer to them with one byte each.
        if stream == 1 {
            put_header(&mut block, 1, self.authority.as_bytes());
            put_header(&mut block, 4, self.path.as_bytes());
            put_header(&mut block, 31, b"application/grpc");
            put_named_header(&mut block, b"te", b"trailers");
        } else {
            // The four headers above, by their index in the dynamic table.
            // The newest entry has index 62. Nothing is added later, so the indexes stay the same.
            block.put_slice(&[0xc1, 0xc0, 0xbf, 0xbe]);
        }
        put_frame_header(&mut self.out, HEADERS, END_HEADERS, stream, block.len());
        self.out.put_slice(&block);
        self.send_message(stream, message, last);
        stream
    }

    /// Sends a further message of a call.
    pub fn send_message(&mut self, stream: u32, message: &impl prost::Message, last: bool) {
        let length = message.encoded_len();
        let mut bytes = BytesMut::with_capacity(length + 5);
        bytes.put_u8(0);
        bytes.put_u32(length as u32);
        // A BytesMut grows on demand, so this can't fail.
        let _ = message.encode(&mut bytes);
        // The server's limit is unknown until its SETTINGS arrive; 16 KiB is the smallest that
        // HTTP/2 allows.
        let mut left = bytes.len();
        for part in bytes.chunks(MAX_FRAME) {
            left -= part.len();
            let flags = if last && left == 0 { END_STREAM } else { 0 };
            put_frame_header(&mut self.out, DATA, flags, stream, part.len());
            self.out.put_slice(part);
        }
    }

    /// Sends buffered data and waits until something is received.
    pub async fn send_and_receive(&mut self, received: &mut Vec<Received>) -> Result<()> {
        loop {
            // All calls that were started since the last turn go out in one system call.
            if !self.out.is_empty() {
                self.io.write_all(&self.out).await?;
                self.out.clear();
            }
            if self.io.read_buf(&mut self.input).await? == 0 {
                bail!("the server has closed the connection");
            }
            self.parse_frames(received)?;
            // One update per half window: an update per message would cost both sides more than the
            // message.
            if self.unacknowledged > WINDOW / 2 {
                put_frame_header(&mut self.out, WINDOW_UPDATE, 0, 0, 4);
                self.out.put_u32(self.unacknowledged);
                self.unacknowledged = 0;
            }
            if !received.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends a unary request and returns its response. No other call may be in progress on the
    /// connection.
    pub async fn call_unary<M: prost::Message + Default>(
        &mut self,
        request: &impl prost::Message,
    ) -> Result<M> {
        let stream = self.start_call(request, true);
        let mut messages = Messages::default();
        let mut received = Vec::new();
        loop {
            self.send_and_receive(&mut received).await?;
            for received in received.drain(..) {
                match received {
                    Received::Data(_, data) => messages.push(&data),
                    Received::End(ended) if ended == stream => {
                        return messages
                            .next()?
                            .with_context(|| format!("the server refuses {}", self.path));
                    }
                    Received::End(_) => {}
                }
            }
        }
    }

    /// Sends all requests with `at_once` calls in progress. Their responses are ignored.
    pub async fn call_many<M: prost::Message>(
        &mut self,
        at_once: usize,
        requests: impl Iterator<Item = M>,
    ) -> Result<()> {
        let mut requests = requests.fuse();
        let (mut open, mut answered, mut received) = (0, 0, Vec::new());
        loop {
            while let Some(request) = requests.by_ref().take(at_once - open).next() {
                self.start_call(&request, true);
                open += 1;
            }
            if open == 0 {
                return Ok(());
            }
            self.send_and_receive(&mut received).await?;
            for received in received.drain(..) {
                match received {
                    // Messages are not matched to streams: each call has exactly one, so the counts
                    // are enough.
                    Received::Data(..) => answered += 1,
                    Received::End(_) if answered > 0 => (answered, open) = (answered - 1, open - 1),
                    Received::End(_) => bail!("the server refuses {}", self.path),
                }
            }
        }
    }

    fn parse_frames(&mut self, received: &mut Vec<Received>) -> Result<()> {
        while let Some(&[a, b, c, kind, flags, s, t, u, v]) =
            self.input.first_chunk::<FRAME_HEADER>()
        {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if self.input.len() < FRAME_HEADER + length {
                // One allocation for a large frame instead of one per read.
                self.input.reserve(FRAME_HEADER + length);
                return Ok(());
            }
            self.input.advance(FRAME_HEADER);
            let body = self.input.split_to(length);
            let stream = u32::from_be_bytes([s, t, u, v]) & 0x7fff_ffff;
            match kind {
                DATA => {
                    // Only the connection's window: that of a stream is larger than all responses
                    // of a call.
                    self.unacknowledged += length as u32;
                    if length > 0 {
                        received.push(Received::Data(stream, body.freeze()));
                    }
                    if flags & END_STREAM != 0 {
                        received.push(Received::End(stream));
                    }
                }
                HEADERS if flags & END_STREAM != 0 => received.push(Received::End(stream)),
                SETTINGS if flags & ACK == 0 => {
                    put_frame_header(&mut self.out, SETTINGS, ACK, 0, 0)
                }
                PING if flags & ACK == 0 => {
                    put_frame_header(&mut self.out, PING, ACK, 0, length);
                    self.out.put_slice(&body);
                }
                RESET => bail!(
                    "the server has reset a call of {}, with code {}",
                    self.path,
                    body.last().copied().unwrap_or_default()
                ),
                GO_AWAY => bail!(
                    "the server ends the connection: {}",
                    String::from_utf8_lossy(&body)
                ),
                _ => {}
            }
        }
        Ok(())
    }
}

fn put_frame_header(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, length: usize) {
    out.put_uint(length as u64, 3);
    out.put_u8(kind);
    out.put_u8(flags);
    out.put_u32(stream);
}

/// Encodes a header whose name is in the static table, and adds it to the dynamic table.
fn put_header(block: &mut BytesMut, name: u8, value: &[u8]) {
    block.put_u8(0x40 | name);
    put_string(block, value);
}

fn put_named_header(block: &mut BytesMut, name: &[u8], value: &[u8]) {
    block.put_u8(0x40);
    put_string(block, name);
    put_string(block, value);
}

/// Encodes a string shorter than 127 bytes.
fn put_string(block: &mut BytesMut, value: &[u8]) {
    block.put_u8(value.len() as u8);
    block.put_slice(value);
}

/// Extracts messages from the bytes of a stream.
#[derive(Default)]
pub struct Messages(BytesMut);

impl Messages {
    /// Appends received bytes.
    pub fn push(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
    }

    /// Returns the next complete message.
    pub fn next<M: prost::Message + Default>(&mut self) -> Result<Option<M>> {
        let Some(&[_, a, b, c, d]) = self.0.first_chunk::<5>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if self.0.len() < 5 + length {
            return Ok(None);
        }
        self.0.advance(5);
        Ok(Some(M::decode(self.0.split_to(length).freeze())?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn message_is_returned_only_when_complete() {
        let mut messages = Messages::default();
        messages.push(&[0, 0, 0, 0, 2, 8]);
        assert!(
            messages
                .next::<proto_etcd::etcdserverpb::LeaseStatus>()
                .unwrap()
                .is_none()
        );
        messages.push(&[7, 0]);
        let found = messages
            .next::<proto_etcd::etcdserverpb::LeaseStatus>()
            .unwrap()
            .unwrap();
        assert_eq!(found.id, 7);
    }

    /// Returns a connection and the other end of it.
    async fn connected() -> (Wire, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (wire, accepted) = tokio::join!(Wire::connect(&address, "/a.B/C"), listener.accept());
        (wire.unwrap(), accepted.unwrap().0)
    }

    fn encode_frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        put_frame_header(&mut out, kind, flags, stream, body.len());
        out.put_slice(body);
        out
    }

    #[tokio::test]
    async fn connection_starts_with_preface_settings_and_window() {
        let (mut wire, mut server) = connected().await;
        wire.start_call(&proto_etcd::etcdserverpb::StatusRequest {}, true);
        server
            .write_all(&encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, b""))
            .await
            .unwrap();
        wire.send_and_receive(&mut Vec::new()).await.unwrap();
        let mut start = vec![0; PREFACE.len() + FRAME_HEADER];
        server.read_exact(&mut start).await.unwrap();
        assert_eq!(&start[..PREFACE.len()], PREFACE);
        assert_eq!(start[PREFACE.len() + 3], SETTINGS);
    }

    #[tokio::test]
    async fn settings_and_pings_are_acknowledged() {
        let (mut wire, mut server) = connected().await;
        for frame in [
            encode_frame(SETTINGS, 0, 0, b""),
            encode_frame(PING, 0, 0, b"12345678"),
            encode_frame(SETTINGS, ACK, 0, b""),
            encode_frame(DATA, END_STREAM, 1, b"x"),
        ] {
            server.write_all(&frame).await.unwrap();
        }
        let mut received = Vec::new();
        while received.len() < 2 {
            wire.send_and_receive(&mut received).await.unwrap();
        }
        assert!(
            matches!(&received[..], [Received::Data(1, data), Received::End(1)] if data == "x")
        );
        let acknowledgements = [
            encode_frame(SETTINGS, ACK, 0, b""),
            encode_frame(PING, ACK, 0, b"12345678"),
        ];
        assert!(wire.out.ends_with(&acknowledgements.concat()));
    }

    #[tokio::test]
    async fn frame_is_parsed_when_its_last_byte_arrives() {
        let (mut wire, mut server) = connected().await;
        let frame = encode_frame(DATA, 0, 3, b"abc");
        let mut received = Vec::new();
        for byte in &frame[..frame.len() - 1] {
            wire.input.put_u8(*byte);
            wire.parse_frames(&mut received).unwrap();
            assert!(received.is_empty());
        }
        server.write_all(&frame[frame.len() - 1..]).await.unwrap();
        wire.send_and_receive(&mut received).await.unwrap();
        assert!(matches!(&received[..], [Received::Data(3, data)] if data == "abc"));
    }

    #[tokio::test]
    async fn reset_go_away_and_a_closed_connection_are_errors() {
        for (frame, expect) in [
            (encode_frame(RESET, 0, 1, &[0, 0, 0, 8]), "with code 8"),
            (
                encode_frame(GO_AWAY, 0, 0, b"too many calls"),
                "too many calls",
            ),
            (BytesMut::new(), "has closed the connection"),
        ] {
            let (mut wire, mut server) = connected().await;
            server.write_all(&frame).await.unwrap();
            drop(server);
            let error = wire.send_and_receive(&mut Vec::new()).await.unwrap_err();
            assert!(error.to_string().contains(expect), "{error}");
        }
    }

    #[tokio::test]
    async fn message_above_the_frame_size_is_split_and_ends_the_stream_once() {
        let (mut wire, _server) = connected().await;
        wire.out.clear();
        let put = proto_etcd::etcdserverpb::PutRequest {
            value: vec![7; 2 * MAX_FRAME].into(),
            ..Default::default()
        };
        wire.send_message(1, &put, true);
        let mut flags = Vec::new();
        let mut rest = &wire.out[..];
        while let Some(head) = rest.first_chunk::<FRAME_HEADER>() {
            let length =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            assert!(length <= MAX_FRAME);
            flags.push(head[4]);
            rest = &rest[FRAME_HEADER + length..];
        }
        assert_eq!(flags, [0, 0, END_STREAM]);
    }
}
