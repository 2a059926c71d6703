//! Decodes received frames.

use super::{CONTROL, FIN, HEAD, PING, RST_STREAM, SYN_REPLY, SpdyError, VERSION};
use bytes::{Buf, Bytes, BytesMut};

/// Maximum length of a control frame in bytes; those of a kubelet have a few dozen.
const LONGEST: usize = 64 * 1024;

/// A received frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Bytes of a stream, as many as have arrived; `last` closes it.
    Data {
        /// Stream id.
        stream: u32,
        /// Received bytes.
        bytes: Bytes,
        /// The stream is closed.
        last: bool,
    },
    /// A stream was aborted.
    Reset {
        /// Stream id.
        stream: u32,
    },
    /// A ping, which must be answered.
    Ping {
        /// The id that the reply repeats.
        id: u32,
    },
    /// A frame without effect here.
    Other,
}

/// Decodes frames; returns data in chunks, so that a frame's length (up to 16 MiB) costs no memory.
#[derive(Default)]
pub(crate) struct Decoder {
    data: Option<Data>,
}

struct Data {
    stream: u32,
    last: bool,
    left: usize,
}

impl tokio_util::codec::Decoder for Decoder {
    type Item = Frame;
    type Error = SpdyError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, SpdyError> {
        if let Some(data) = self.data.take() {
            return Ok(self.take_data(data, buffer));
        }
        let Some((first, second)) = buffer.first_chunk::<HEAD>().map(|head| {
            let [a, b, c, d, e, f, g, h] = *head;
            (
                u32::from_be_bytes([a, b, c, d]),
                u32::from_be_bytes([e, f, g, h]),
            )
        }) else {
            return Ok(None);
        };
        let last = (second >> 24) as u8 & FIN != 0;
        let length = (second & 0x00ff_ffff) as usize;
        if first & CONTROL == 0 {
            buffer.advance(HEAD);
            return Ok(self.take_data(
                Data {
                    stream: first,
                    last,
                    left: length,
                },
                buffer,
            ));
        }
        let version = (first >> 16) as u16 & 0x7fff;
        if version != VERSION {
            return Err(SpdyError::Version(version));
        }
        // Before the frame is awaited: its length would otherwise grow the buffer to 16 MiB.
        if length > LONGEST {
            return Err(SpdyError::Length(length));
        }
        if buffer.len() < HEAD + length {
            return Ok(None);
        }
        buffer.advance(HEAD);
        Ok(Some(decode_control(
            first as u16,
            last,
            &buffer.split_to(length),
        )))
    }
}

impl Decoder {
    fn take_data(&mut self, data: Data, buffer: &mut BytesMut) -> Option<Frame> {
        let here = data.left.min(buffer.len());
        let left = data.left - here;
        if here == 0 && left > 0 {
            self.data = Some(data);
            return None;
        }
        let (stream, bytes) = (data.stream, buffer.split_to(here).freeze());
        if left > 0 {
            self.data = Some(Data { left, ..data });
        }
        Some(Frame::Data {
            stream,
            bytes,
            last: data.last && left == 0,
        })
    }
}

fn decode_control(kind: u16, last: bool, body: &[u8]) -> Frame {
    let Some(number) = body
        .first_chunk::<4>()
        .map(|bytes| u32::from_be_bytes(*bytes))
    else {
        return Frame::Other;
    };
    // The highest bit of a stream id is reserved; a ping's id has all 32 bits.
    let stream = number & !CONTROL;
    match kind {
        // The kubelet accepts and closes the stream in one frame.
        SYN_REPLY if last => Frame::Data {
            stream,
            bytes: Bytes::new(),
            last,
        },
        RST_STREAM => Frame::Reset { stream },
        PING => Frame::Ping { id: number },
        _ => Frame::Other,
    }
}
