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

/// Returns the flag's value, or else the file's; an empty value counts as absent.
pub(super) fn prefer_flag<T: Clone + AsRef<std::ffi::OsStr>>(
    flag: &Option<T>,
    file: &Option<T>,
) -> Option<T> {
    flag.as_ref()
        .or(file.as_ref())
        .filter(|value| !value.as_ref().is_empty())
        .cloned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn duration_is_given_in_the_notation_of_go() {
        for (text, expected) in [
            (None, Some(10_000)),
            (Some("0s"), Some(10_000)),
            (Some("5m0s"), Some(300_000)),
            (Some("1h2m3.5s"), Some(3_723_500)),
            (Some("100ms"), Some(100)),
            (Some("10"), None),
            (Some("-1s"), None),
            (Some("soon"), None),
        ] {
            let parsed = parse_duration(text, 10, "x").ok();
            assert_eq!(parsed.map(|d| d.as_millis()), expected, "{text:?}");
        }
        let error = parse_duration(Some("soon"), 10, "syncFrequency").unwrap_err();
        assert!(error.to_string().starts_with("syncFrequency: "), "{error}");
    }

    #[test]
    fn bytes_are_given_as_a_quantity() {
        for (text, expected) in [("10Mi", Some(10 << 20)), ("5k", Some(5000)), ("lots", None)] {
            assert_eq!(parse_bytes(text, "x").ok(), expected, "{text}");
        }
    }
}
