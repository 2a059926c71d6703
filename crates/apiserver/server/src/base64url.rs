//! URL-safe base64 without padding.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Decodes the text; None if it is invalid.
pub fn decode_unpadded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}
