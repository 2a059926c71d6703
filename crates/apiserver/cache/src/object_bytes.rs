//! The bytes of an object, compressed while only the history needs them.

use apiserver_convert::StoredError;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write};

/// Smaller objects are not compressed: it saves little, and takes time on each write.
const COMPRESSED_FROM: usize = 16 << 10;

/// Bytes that may be compressed.
#[derive(Clone, Debug)]
pub(crate) enum ObjectBytes {
    Plain(Bytes),
    Compressed { bytes: Bytes, length: usize },
}

impl ObjectBytes {
    /// Returns the bytes as they were before compression.
    ///
    /// # Errors
    /// The bytes were not compressed by this process.
    pub(crate) fn get(&self) -> Result<Bytes, StoredError> {
        match self {
            ObjectBytes::Plain(bytes) => Ok(bytes.clone()),
            ObjectBytes::Compressed { bytes, length } => {
                let mut plain = Vec::with_capacity(*length);
                let mut decoder = ZlibDecoder::new(&**bytes);
                match decoder.read_to_end(&mut plain) {
                    Ok(_) => Ok(plain.into()),
                    Err(error) => Err(StoredError(format!("decompressing it: {error}"))),
                }
            }
        }
    }

    /// Returns the number of bytes before compression.
    pub(crate) fn len(&self) -> usize {
        match self {
            ObjectBytes::Plain(bytes) => bytes.len(),
            ObjectBytes::Compressed { length, .. } => *length,
        }
    }

    /// Compresses the bytes of a large object; `None` if they are small or compressed already.
    pub(crate) fn compress(&self) -> Option<Self> {
        let ObjectBytes::Plain(plain) = self else {
            return None;
        };
        if plain.len() < COMPRESSED_FROM {
            return None;
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).ok()?;
        let mut bytes = encoder.finish().ok()?;
        bytes.shrink_to_fit();
        Some(ObjectBytes::Compressed {
            bytes: bytes.into(),
            length: plain.len(),
        })
    }
}

impl From<Vec<u8>> for ObjectBytes {
    fn from(bytes: Vec<u8>) -> Self {
        ObjectBytes::Plain(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn large_bytes_are_compressed_and_restored() {
        let text = "a schema of a custom resource ".repeat(2000).into_bytes();
        let plain = ObjectBytes::from(text.clone());
        let compressed = plain.compress().unwrap();
        let ObjectBytes::Compressed { bytes, .. } = &compressed else {
            panic!("{compressed:?}");
        };
        assert!(bytes.len() < text.len() / 10);
        assert_eq!(
            (compressed.len(), compressed.get().unwrap()),
            (text.len(), text.into())
        );
        assert!(compressed.compress().is_none());
        assert!(
            ObjectBytes::from(vec![0; COMPRESSED_FROM - 1])
                .compress()
                .is_none()
        );
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let bytes = Bytes::from_static(b"not compressed");
        let damaged = ObjectBytes::Compressed { bytes, length: 10 };
        assert!(
            damaged
                .get()
                .unwrap_err()
                .to_string()
                .contains("decompressing")
        );
    }
}
