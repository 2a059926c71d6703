//! Encodes frames.

use super::{CONTROL, FIN, HEAD, PING, SYN_STREAM, VERSION};
use bytes::{BufMut, BytesMut};
use flate2::{Compress, Compression, FlushCompress};

/// Maximum size of a data frame in bytes; bounds the buffer.
const CHUNK: usize = 64 * 1024;

/// Encodes frames. The headers of all streams are one compressed stream, hence the state.
pub(crate) struct Encoder {
    headers: Compress,
}

impl Default for Encoder {
    fn default() -> Self {
        // The draft's preset dictionary is optional for the sender: readers accept headers without
        // it.
        Self {
            headers: Compress::new(Compression::fast(), true),
        }
    }
}

impl Encoder {
    /// Opens the stream `id` (odd, growing) with its one header.
    ///
    /// # Errors
    /// The compressor fails, which is not expected.
    pub(crate) fn open_stream(
        &mut self,
        out: &mut BytesMut,
        id: u32,
        kind: &str,
    ) -> std::io::Result<()> {
        let mut block = BytesMut::new();
        block.put_u32(1);
        for text in ["streamtype", kind] {
            block.put_u32(u32::try_from(text.len()).unwrap_or_default());
            block.put_slice(text.as_bytes());
        }
        // The compressor fills the spare capacity and does not grow it; headers that do not fit
        // would be cut off.
        let mut packed = Vec::with_capacity(block.len() * 2 + 256);
        self.headers
            // Flushed to a byte boundary: the kubelet decodes these headers before it receives the
            // next ones.
            .compress_vec(&block, &mut packed, FlushCompress::Sync)
            .map_err(std::io::Error::other)?;
        put_control_head(out, SYN_STREAM, 10 + packed.len());
        out.put_u32(id);
        // Associated stream: none. Then priority and slot, which kubelets ignore.
        out.put_u32(0);
        out.put_u16(0);
        out.put_slice(&packed);
        Ok(())
    }

    /// Sends bytes on a stream, and with `last` closes it.
    pub(crate) fn put_data(out: &mut BytesMut, id: u32, bytes: &[u8], last: bool) {
        let mut chunks = bytes.chunks(CHUNK).peekable();
        // An empty frame closes a stream, so it must be sent although it has no data.
        if chunks.peek().is_none() {
            put_data_frame(out, id, bytes, last);
        }
        while let Some(chunk) = chunks.next() {
            put_data_frame(out, id, chunk, last && chunks.peek().is_none());
        }
    }

    /// Replies to a ping.
    pub(crate) fn put_ping_reply(out: &mut BytesMut, id: u32) {
        put_control_head(out, PING, 4);
        out.put_u32(id);
    }
}

fn put_data_frame(out: &mut BytesMut, id: u32, bytes: &[u8], last: bool) {
    out.reserve(HEAD + bytes.len());
    out.put_u32(id);
    let flags = if last { FIN } else { 0 };
    out.put_u32(u32::from(flags) << 24 | u32::try_from(bytes.len()).unwrap_or_default());
    out.put_slice(bytes);
}

fn put_control_head(out: &mut BytesMut, kind: u16, length: usize) {
    out.put_u32(CONTROL | u32::from(VERSION) << 16 | u32::from(kind));
    out.put_u32(u32::try_from(length).unwrap_or_default());
}
