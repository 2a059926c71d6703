//! Scalars with a text form of their own: quantities, times, durations, base64.

use api_meta::{Quantity, time};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

/// Returns a quantity in canonical form, or upstream's error message.
pub(crate) fn canonical_quantity(text: &str) -> Result<String, String> {
    // Upstream accepts white space around a quantity in JSON, and nowhere else.
    match text.trim().parse::<Quantity>() {
        Ok(quantity) => Ok(quantity.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the text of a quantity in a tree, in canonical form if it is one: trees that were
/// patched may have another form of the amount. An absent quantity is zero.
pub(crate) fn quantity_text(value: &Value) -> String {
    match value {
        Value::String(text) => canonical_quantity(text).unwrap_or_else(|_| text.clone()),
        Value::Number(number) => canonical_quantity(&number.to_string()).unwrap_or_default(),
        _ => "0".to_owned(),
    }
}

/// Returns a `metav1.Time` in canonical form; `None` for the zero time.
pub(crate) fn canonical_time(text: &str) -> Result<Option<String>, String> {
    parse_instant(text).map(|at| at.map(time::format))
}

/// Returns a `metav1.MicroTime` in canonical form; `None` for the zero time.
pub(crate) fn canonical_micro_time(text: &str) -> Result<Option<String>, String> {
    parse_instant(text).map(|at| at.map(time::format_micro))
}

fn parse_instant(text: &str) -> Result<Option<Timestamp>, String> {
    // Go treats year 1 as zero.
    if text == "0001-01-01T00:00:00Z" {
        return Ok(None);
    }
    match time::parse(text) {
        Some(at) => Ok(Some(at)),
        None => Err(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        )),
    }
}

/// Returns seconds and nanoseconds since 1970 of a canonical time.
pub(crate) fn unix_time(text: &str) -> Option<(i64, i32)> {
    let at = time::parse(text)?;
    let nanos = at.as_nanosecond();
    // Times before 1970 have a negative second and a positive rest, as in Go.
    let second = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    let nano = i32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?;
    Some((second, nano))
}

/// Returns the canonical time of seconds and nanoseconds since 1970; `None` for the zero time and
/// after the year 9999.
pub(crate) fn from_unix(seconds: i64, nanos: i32, micro: bool) -> Option<String> {
    let at = Timestamp::new(seconds, nanos).ok()?;
    Some(if micro {
        time::format_micro(at)
    } else {
        time::format(at)
    })
}

/// Decodes base64 text, which may contain line breaks.
pub(crate) fn base64_decode(text: &str) -> Result<Vec<u8>, String> {
    // Go's decoder skips line breaks, which `base64` of coreutils adds after 76 characters.
    let decoded = if text.bytes().any(|byte| byte == b'\n' || byte == b'\r') {
        STANDARD.decode(text.replace(['\n', '\r'], ""))
    } else {
        STANDARD.decode(text)
    };
    decoded.map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            _ => text.len() / 4 * 4,
        };
        format!("illegal base64 data at input byte {at}")
    })
}

/// Encodes bytes as base64.
pub(crate) fn base64_encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_canonical_form() {
        let check = |text: &str, back: &str| {
            assert_eq!(canonical_time(text), Ok(Some(back.to_owned())), "{text}")
        };
        check("2024-02-03T04:05:06Z", "2024-02-03T04:05:06Z");
        check("2024-02-03T04:05:06.789+02:00", "2024-02-03T02:05:06Z");
        assert_eq!(canonical_time("0001-01-01T00:00:00Z"), Ok(None));
        assert!(canonical_time("2024-02-03 04:05:06Z").is_err());
        assert_eq!(
            canonical_micro_time("2024-02-03T04:05:06Z"),
            Ok(Some("2024-02-03T04:05:06.000000Z".to_owned()))
        );
    }
}
