//! PEM blocks (RFC 7468).

use pem::{EncodeConfig, LineEnding, Pem, encode_config};

/// Returns DER as a PEM block with this label.
pub(crate) fn encode_block(label: &str, der: &[u8]) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    encode_config(&Pem::new(label, der), config)
}
