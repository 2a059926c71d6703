//! Parses durations and quantities in Go's notation.

use anyhow::anyhow;
use std::time::Duration;

/// Parses a duration such as `10s` or `5m0s`; none, and zero, are `default` seconds.
///
/// # Errors
/// The text is no duration; `name` is the setting.
pub(crate) fn parse_duration(
    text: Option<&str>,
    default: u64,
    name: &str,
) -> anyhow::Result<Duration> {
    let given = text
        .map(base_duration::parse_unsigned)
        .transpose()
        .map_err(|error| anyhow!("{name}: {error}"))?;
    Ok(given
        .filter(|given| !given.is_zero())
        .unwrap_or(Duration::from_secs(default)))
}

/// Parses a quantity of bytes.
///
/// # Errors
/// The text is no quantity; `name` is the setting.
pub(crate) fn parse_bytes(text: &str, name: &str) -> anyhow::Result<u64> {
    let quantity = text
        .parse::<api_meta::Quantity>()
        .map_err(|_| anyhow::anyhow!("{name}: {text:?} is no quantity"))?;
    Ok(u64::try_from(quantity.value()).unwrap_or_default())
}
