//! The part of SPDY/3.1 that a client of a kubelet needs: open streams, send and receive data,
//! close streams.
//!
//! Source: the SPDY/3.1 draft of 2013. Kubelets and runtimes do no flow control, so window updates
//! are neither sent nor obeyed; response headers contain nothing needed, so they are not
//! decompressed. Unknown frames are ignored; an invalid frame closes the connection.

mod decode;
mod encode;

pub(crate) use decode::{Decoder, Frame};
pub(crate) use encode::Encoder;

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const FIN: u8 = 1;
const CONTROL: u32 = 1 << 31;
const HEAD: usize = 8;

/// An error of the SPDY connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpdyError {
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A control frame of another version.
    #[error("a frame of SPDY version {0}")]
    Version(u16),
    /// A control frame longer than the limit.
    #[error("a control frame of {0} bytes")]
    Length(usize),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use bytes::{BufMut, Bytes, BytesMut};
    use flate2::{Decompress, FlushDecompress};
    use tokio_util::codec::Decoder as _;

    fn all(decoder: &mut Decoder, buffer: &mut BytesMut) -> Vec<Frame> {
        std::iter::from_fn(|| decoder.decode(buffer).unwrap()).collect()
    }

    #[test]
    fn data_arrives_in_pieces_and_only_the_last_one_ends_the_stream() {
        let mut wire = BytesMut::new();
        Encoder::put_data(&mut wire, 5, b"hello", true);
        let whole = wire.clone().freeze();
        let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::from(&whole[..10]));
        let piece = |bytes: &'static [u8], last| Frame::Data {
            stream: 5,
            bytes: Bytes::from_static(bytes),
            last,
        };
        assert_eq!(all(&mut decoder, &mut buffer), [piece(b"he", false)]);
        buffer.put_slice(&whole[10..]);
        assert_eq!(all(&mut decoder, &mut buffer), [piece(b"llo", true)]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn an_empty_last_frame_ends_a_stream() {
        let mut wire = BytesMut::new();
        Encoder::put_data(&mut wire, 3, b"", true);
        let frames = all(&mut Decoder::default(), &mut wire);
        assert_eq!(
            frames,
            [Frame::Data {
                stream: 3,
                bytes: Bytes::new(),
                last: true
            }]
        );
    }

    #[test]
    fn control_frames_are_told_apart() {
        let control = |kind: u16, flags: u8, body: &[u8]| {
            let mut wire = BytesMut::new();
            wire.put_u32(CONTROL | u32::from(VERSION) << 16 | u32::from(kind));
            wire.put_u32(u32::from(flags) << 24 | u32::try_from(body.len()).unwrap());
            wire.put_slice(body);
            wire
        };
        for (wire, want) in [
            (control(SYN_REPLY, 0, &[0, 0, 0, 1, 9]), Frame::Other),
            (
                control(SYN_REPLY, FIN, &[0, 0, 0, 1]),
                Frame::Data {
                    stream: 1,
                    bytes: Bytes::new(),
                    last: true,
                },
            ),
            (
                control(RST_STREAM, 0, &[0, 0, 0, 7, 0, 0, 0, 1]),
                Frame::Reset { stream: 7 },
            ),
            (control(PING, 0, &[0, 0, 0, 2]), Frame::Ping { id: 2 }),
            (control(PING, 0, &[]), Frame::Other),
            (control(7, 0, &[0, 0, 0, 1, 0, 0, 0, 0]), Frame::Other),
            (control(4, 0, &[1, 2, 3]), Frame::Other),
        ] {
            let mut wire = wire;
            assert_eq!(all(&mut Decoder::default(), &mut wire), [want]);
        }
    }

    #[test]
    fn what_is_no_spdy_is_refused() {
        for wire in [
            &b"\x80\x02\x00\x01\x00\x00\x00\x00"[..],
            b"\x80\x03\x00\x01\x00\xff\xff\xff",
        ] {
            assert!(
                Decoder::default()
                    .decode(&mut BytesMut::from(wire))
                    .is_err()
            );
        }
        // Bytes of HTTP look like data of an unknown stream, which the caller ignores.
        assert!(
            Decoder::default()
                .decode(&mut BytesMut::from(&b"HTTP/1.1 400 Bad"[..]))
                .is_ok()
        );
    }

    #[test]
    fn headers_are_one_compressed_stream() {
        let mut encoder = Encoder::default();
        let mut unpack = Decompress::new(true);
        for (id, kind) in [(1, "error"), (3, "stdin")] {
            let mut wire = BytesMut::new();
            encoder.open_stream(&mut wire, id, kind).unwrap();
            assert_eq!(wire[..4], [0x80, 3, 0, 1]);
            assert_eq!(wire[HEAD..HEAD + 4], [0, 0, 0, u8::try_from(id).unwrap()]);
            let mut text = Vec::with_capacity(1024);
            unpack
                .decompress_vec(&wire[HEAD + 10..], &mut text, FlushDecompress::Sync)
                .unwrap();
            let mut want = vec![0, 0, 0, 1, 0, 0, 0, 10];
            want.extend(b"streamtype");
            want.extend([0, 0, 0, 5]);
            want.extend(kind.as_bytes());
            assert_eq!(text, want);
        }
    }
}
