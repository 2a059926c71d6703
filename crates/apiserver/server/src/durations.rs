//! Durations in flags and requests.

use anyhow::anyhow;

/// Parses a duration in Go's notation: `1h30m`, `5m0s`, `500ms`.
///
/// # Errors
/// Any other text.
pub fn parse_duration(flag: &str, text: &str) -> anyhow::Result<std::time::Duration> {
    base_duration::parse_unsigned(text).map_err(|error| anyhow!("--{flag}: {error}"))
}
