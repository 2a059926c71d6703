//! The bytes of an object, compressed while only the history needs them.

use apiserver_convert::StoredError;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write};

/// Smaller objects are not compressed: it saves little, and takes time on each write.
const COMPRESSED_FROM: usize = 16 << 10;

/// Number of bytes whose compression predicts that of the rest. Keys, images and ciphertext do not
/// compress, and the attempt would delay the events of all objects of the kind.
const SAMPLE: usize = 64 << 10;

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

    /// Compresses the bytes of a large object. `None` if they are small or compressed already, or
    /// if they or the first 64 KiB would not become a quarter smaller.
    pub(crate) fn compress(&self) -> Option<Self> {
        let ObjectBytes::Plain(plain) = self else {
            return None;
        };
        if plain.len() < COMPRESSED_FROM {
            return None;
        }
        let (sample, rest) = plain.split_at(plain.len().min(SAMPLE));
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(sample).ok()?;
        if !rest.is_empty() {
            encoder.flush().ok()?;
            if !is_much_smaller(encoder.get_ref(), sample) {
                return None;
            }
            encoder.write_all(rest).ok()?;
        }
        let mut bytes = encoder.finish().ok()?;
        if !is_much_smaller(&bytes, plain) {
            return None;
        }
        bytes.shrink_to_fit();
        Some(ObjectBytes::Compressed {
            bytes: bytes.into(),
            length: plain.len(),
        })
    }
}

/// Returns whether compression saves a quarter: less is not worth decompressing the object for
/// each watch that reads it from the history.
fn is_much_smaller(compressed: &[u8], plain: &[u8]) -> bool {
    compressed.len() <= plain.len() / 4 * 3
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

    /// Returns bytes that nothing compresses.
    fn random_bytes(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        rand::RngCore::fill_bytes(&mut rand::rng(), &mut bytes);
        bytes
    }

    #[test]
    fn bytes_that_save_less_than_a_quarter_stay_as_they_are() {
        let text = |length: usize| b"text ".repeat(length / 5 + 1);
        // Six random bits a byte, as base64 of a random value.
        let encoded = random_bytes(700_000)
            .iter()
            .map(|byte| 64 + byte % 64)
            .collect();
        let parts = |random, repeated| [random_bytes(random), text(repeated)].concat();
        for (case, bytes, is_smaller) in [
            ("random", random_bytes(700_000), false),
            ("random, small", random_bytes(COMPRESSED_FROM), false),
            ("random in base64", encoded, false),
            ("text", text(700_000), true),
            // The text is not even read.
            ("text after a random sample", parts(SAMPLE, 700_000), false),
            ("a fifth of text", parts(40_000, 10_000), false),
            ("two fifths of text", parts(30_000, 20_000), true),
            (
                "random after the sample",
                [text(70_000), random_bytes(600_000)].concat(),
                false,
            ),
        ] {
            let plain = ObjectBytes::from(bytes.clone());
            let compressed = plain.compress();
            assert_eq!(compressed.is_some(), is_smaller, "{case}");
            if let Some(compressed) = compressed {
                assert_eq!(compressed.get().unwrap(), bytes, "{case}");
            }
        }
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
