//! Legacy authority: accepts clients with an invalid `:authority` header.
//!
//! etcd's Go clients up to 3.4 send the endpoint's URL (`http://host:port`) as authority. Go's
//! server accepts it; the HTTP/2 library used here resets the stream. Therefore the client's bytes
//! are scanned. In a header block, the invalid characters of an authority are replaced by others
//! with the same length in Huffman code, so that no length changes. Nothing reads the authority.

use bytes::{Buf, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// A longer header frame is passed through unchanged.
const MAX_HEADERS: usize = 64 << 10;
const READ: usize = 16 << 10;

/// A connection whose input is scanned.
pub struct LegacyAuthorityReader<T> {
    inner: T,
    input: BytesMut,
    /// Number of bytes of `input` that may be read.
    ready: usize,
    /// Number of bytes of the current frame that have not arrived yet.
    skip: usize,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Start,
    Http2,
    /// Any other protocol.
    Plain,
}

impl<T> LegacyAuthorityReader<T> {
    pub fn new(inner: T) -> Self {
        LegacyAuthorityReader {
            inner,
            input: BytesMut::new(),
            ready: 0,
            skip: 0,
            state: State::Start,
        }
    }

    /// Advances `ready` as far as the input allows.
    fn advance(&mut self) {
        if self.state == State::Start {
            let seen = self.input.len().min(PREFACE.len());
            if self.input.get(..seen) != PREFACE.get(..seen) {
                self.state = State::Plain;
            } else if seen == PREFACE.len() {
                self.state = State::Http2;
                self.ready = seen;
            }
        }
        match self.state {
            State::Start => {}
            State::Plain => self.ready = self.input.len(),
            State::Http2 => while self.advance_frame() {},
        }
    }

    /// Passes through the rest of a frame, or inspects the next one. Returns false if more bytes
    /// are needed.
    fn advance_frame(&mut self) -> bool {
        let there = self.input.len() - self.ready;
        if self.skip > 0 {
            let step = self.skip.min(there);
            self.skip -= step;
            self.ready += step;
            return self.skip == 0;
        }
        let Some(head) = self.input.get(self.ready..self.ready + FRAME_HEAD) else {
            return false;
        };
        let &[a, b, c, kind, flags, ..] = head else {
            return false;
        };
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let whole = FRAME_HEAD + length;
        // Pseudo-headers come first in a block (RFC 9113, 8.3), so the authority is not expected in
        // a CONTINUATION frame.
        if kind != HEADERS || length > MAX_HEADERS {
            self.skip = whole;
            return true;
        }
        if there < whole {
            return false;
        }
        let from = self.ready + FRAME_HEAD;
        if let Some(block) = self.input.get_mut(from..from + length) {
            // Before the block: the length of the padding, and a priority of five bytes.
            let start =
                usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
            if let Some(fields) = block.get_mut(start..) {
                // The HTTP/2 library rejects a malformed header block.
                let _ = mend_block(fields);
            }
        }
        self.ready += whole;
        true
    }
}

/// Finds a literal `:authority` in a header block and repairs its value. Returns `None` if the
/// block is malformed.
fn mend_block(block: &mut [u8]) -> Option<()> {
    let mut at = 0;
    while let Some(first) = block.get(at).copied() {
        // An indexed field. If it is in the dynamic table, it was repaired when it was sent.
        if first & 0x80 != 0 {
            read_integer(block, &mut at, 7)?;
            continue;
        }
        // A change of the dynamic table's size.
        if first & 0xe0 == 0x20 {
            read_integer(block, &mut at, 5)?;
            continue;
        }
        // Literals that enter the dynamic table have a prefix of 6 bits, all others one of 4.
        let bits = if first & 0x40 != 0 { 6 } else { 4 };
        let name = read_integer(block, &mut at, bits)?;
        if name == 0 {
            let length = read_integer(block, &mut at, 7)?;
            at = at.checked_add(length)?;
        }
        let huffman = block.get(at)? & 0x80 != 0;
        let length = read_integer(block, &mut at, 7)?;
        let end = at.checked_add(length)?;
        let value = block.get_mut(at..end)?;
        // Index 1 of the static table is `:authority` (RFC 7541, appendix A).
        if name == 1 {
            if huffman {
                mend_huffman(value)?;
            } else {
                value.iter_mut().for_each(|byte| *byte = mend_byte(*byte));
            }
            return Some(());
        }
        at = end;
    }
    Some(())
}

fn read_integer(block: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let most = (1usize << bits) - 1;
    let mut value = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if value < most {
        return Some(value);
    }
    // No length in a header frame of 64 KiB needs more than 28 bits.
    for shift in (0..28).step_by(7) {
        let byte = *block.get(*at)?;
        *at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn mend_byte(byte: u8) -> u8 {
    // In Huffman code `.` has 6 bits, as the characters that it replaces, and `B` 7, as `:`.
    match byte {
        b'/' | b'%' | b'=' | b' ' => b'.',
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'-' | b'_' => byte,
        _ => b'B',
    }
}

/// Huffman codes of the characters of URLs, by length: length, first code, symbols in order.
const CODES: [(u32, u32, &[u8]); 3] = [
    (5, 0x00, b"012aceiost"),
    (6, 0x14, b" %-./3456789=A_bdfghlmnpru"),
    (7, 0x5c, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
];

/// Replaces codes by codes of the same length. Returns `None` for a symbol that does not occur in
/// URLs.
fn mend_huffman(value: &mut [u8]) -> Option<()> {
    let bits = value.len() * 8;
    let mut at = 0;
    while bits - at >= 5 {
        let rest = bits - at;
        // Padding: up to seven one bits (RFC 7541, 5.2).
        if rest < 8 && (0..rest).all(|i| bit_at(value, at + i) == 1) {
            return Some(());
        }
        let (length, first, symbols) = CODES.iter().copied().find(|(length, first, symbols)| {
            let length = *length as usize;
            length <= rest && {
                let code = read_bits(value, at, length);
                code >= *first && ((code - first) as usize) < symbols.len()
            }
        })?;
        let code = read_bits(value, at, length as usize);
        let symbol = *symbols.get((code - first) as usize)?;
        let replacement = mend_byte(symbol);
        if replacement != symbol {
            let place = symbols.iter().position(|symbol| *symbol == replacement)?;
            write_bits(value, at, length as usize, first + place as u32);
        }
        at += length as usize;
    }
    Some(())
}

fn bit_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at / 8)
        .map_or(0, |byte| u32::from(byte >> (7 - at % 8) & 1))
}

fn read_bits(bytes: &[u8], at: usize, length: usize) -> u32 {
    (0..length).fold(0, |code, i| code << 1 | bit_at(bytes, at + i))
}

fn write_bits(bytes: &mut [u8], at: usize, length: usize, code: u32) {
    for i in 0..length {
        if let Some(byte) = bytes.get_mut((at + i) / 8) {
            let mask = 1 << (7 - (at + i) % 8);
            if code >> (length - 1 - i) & 1 == 1 {
                *byte |= mask
            } else {
                *byte &= !mask
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for LegacyAuthorityReader<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.ready > 0 {
                let count = this.ready.min(out.remaining());
                if let Some(bytes) = this.input.get(..count) {
                    out.put_slice(bytes);
                }
                this.input.advance(count);
                this.ready -= count;
                return Poll::Ready(Ok(()));
            }
            // Nothing is buffered any more, so HTTP/1 and sockets are read without a copy.
            if this.state == State::Plain {
                return Pin::new(&mut this.inner).poll_read(cx, out);
            }
            this.input.reserve(READ);
            let count = ready!(tokio_util::io::poll_read_buf(
                Pin::new(&mut this.inner),
                cx,
                &mut this.input
            ))?;
            if count == 0 {
                // End of the input: pending bytes are passed through unchanged.
                this.ready = this.input.len();
                if this.ready == 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            this.advance();
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for LegacyAuthorityReader<T> {
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

    /// `www.example.com` in Huffman code, from the examples of RFC 7541.
    const EXAMPLE: [u8; 12] = [
        0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
    ];

    fn encode(text: &str) -> Vec<u8> {
        let codes: Vec<(u32, u32)> = text
            .bytes()
            .map(|symbol| {
                CODES
                    .iter()
                    .find_map(|(length, first, symbols)| {
                        let place = symbols.iter().position(|s| *s == symbol)?;
                        Some((*length, first + place as u32))
                    })
                    .unwrap()
            })
            .collect();
        let bits: usize = codes.iter().map(|(length, _)| *length as usize).sum();
        let mut out = vec![0xff; bits.div_ceil(8)];
        let mut at = 0;
        for (length, code) in codes {
            write_bits(&mut out, at, length as usize, code);
            at += length as usize;
        }
        out
    }

    #[test]
    fn huffman_code_is_that_of_rfc_7541() {
        assert_eq!(encode("www.example.com"), EXAMPLE);
    }

    #[test]
    fn only_invalid_characters_of_an_authority_change() {
        for (sent, expect) in [
            ("http://127.0.0.1:41905", "httpB..127.0.0.1B41905"),
            ("www.example.com", "www.example.com"),
        ] {
            let mut value = encode(sent);
            mend_huffman(&mut value).unwrap();
            assert_eq!(value, encode(expect));
            let mut block = vec![0x83, 0x86, 0x41, 0x80 | encode(sent).len() as u8];
            block.extend(encode(sent));
            block.extend([0x84]);
            mend_block(&mut block).unwrap();
            assert_eq!(&block[4..block.len() - 1], encode(expect));
        }
    }

    fn frame(kind: u8, flags: u8, content: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, content.len() as u8, kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(content);
        frame
    }

    /// Returns what a reader makes of a connection's bytes that arrive one by one.
    async fn read(sent: &[u8]) -> Vec<u8> {
        struct Dribble<'a>(&'a [u8]);
        impl AsyncRead for Dribble<'_> {
            fn poll_read(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                out: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                if let Some((first, rest)) = self.0.split_first() {
                    out.put_slice(&[*first]);
                    self.0 = rest;
                }
                Poll::Ready(Ok(()))
            }
        }
        let mut received = Vec::new();
        let mut reader = LegacyAuthorityReader::new(Dribble(sent));
        tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut received)
            .await
            .unwrap();
        received
    }

    /// A block with a literal authority, without Huffman code.
    fn block(authority: &str) -> Vec<u8> {
        let mut block = vec![0x83, 0x01, authority.len() as u8];
        block.extend_from_slice(authority.as_bytes());
        block
    }

    #[tokio::test]
    async fn authority_of_every_header_frame_is_repaired_and_nothing_else() {
        let connection = |authority: &str| {
            let mut padded = vec![2];
            padded.extend(block(authority));
            padded.extend([0, 0]);
            let mut prioritised = vec![0, 0, 0, 0, 1];
            prioritised.extend(block(authority));
            [
                PREFACE.to_vec(),
                frame(4, 0, &[]),
                frame(HEADERS, 4, &block(authority)),
                frame(0, 1, &block("http://h:1")),
                frame(HEADERS, 4 | PADDED, &padded),
                frame(HEADERS, 4 | PRIORITY, &prioritised),
            ]
            .concat()
        };
        assert_eq!(
            read(&connection("http://h:1")).await,
            connection("httpB..hB1")
        );
    }

    #[tokio::test]
    async fn other_protocols_pass_unchanged() {
        for sent in [
            &b"GET / HTTP/1.1\r\nhost: http://h:1\r\n\r\n"[..],
            b"PRI",
            b"",
        ] {
            assert_eq!(read(sent).await, sent, "{sent:?}");
        }
    }

    #[tokio::test]
    async fn unfinished_frame_at_the_end_of_the_connection_passes_unchanged() {
        let whole = [PREFACE.to_vec(), frame(HEADERS, 4, &block("http://h:1"))].concat();
        for length in PREFACE.len()..whole.len() {
            assert_eq!(
                read(&whole[..length]).await,
                whole[..length],
                "{length} bytes"
            );
        }
    }

    #[test]
    fn literals_before_the_authority_are_skipped() {
        // A literal name and value, a size update, and a literal with an indexed name.
        let mut fields = vec![0x40, 1, b'a', 1, b'/', 0x20, 0x04, 1, b'/'];
        let before = fields.len();
        fields.extend([0x41, 3, b'/', b'/', b'h']);
        mend_block(&mut fields).unwrap();
        assert_eq!(
            fields[..before],
            [0x40, 1, b'a', 1, b'/', 0x20, 0x04, 1, b'/']
        );
        assert_eq!(fields[before..], [0x41, 3, b'.', b'.', b'h']);
    }

    #[test]
    fn malformed_block_is_left_to_the_http2_library() {
        for malformed in [
            &[0x41][..],
            &[0x41, 5, b'/'],
            &[0x40, 9, b'a'],
            &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            let mut block = malformed.to_vec();
            assert_eq!(mend_block(&mut block), None, "{malformed:?}");
            assert_eq!(block, malformed);
        }
    }
}
