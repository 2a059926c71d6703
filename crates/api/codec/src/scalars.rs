//! Scalars with a text form of their own: quantities, times, durations, base64.

use api_meta::{Quantity, time};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

/// Returns a quantity in canonical form, or upstream's error message.
pub(crate) fn quantity(text: &str) -> Result<String, String> {
    match text.trim().parse::<Quantity>() {
        Ok(quantity) => Ok(quantity.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a `metav1.Time` in canonical form; `None` for the zero time.
pub(crate) fn time(text: &str) -> Result<Option<String>, String> {
    instant(text).map(|at| at.map(time::format))
}

/// Returns a `metav1.MicroTime` in canonical form; `None` for the zero time.
pub(crate) fn micro_time(text: &str) -> Result<Option<String>, String> {
    instant(text).map(|at| at.map(time::format_micro))
}

fn instant(text: &str) -> Result<Option<Timestamp>, String> {
    // Go treats year 1 as zero, and its RFC 3339 requires a capital T.
    if text == "0001-01-01T00:00:00Z" {
        return Ok(None);
    }
    let looks_right = text.as_bytes().get(10) == Some(&b'T') && text.len() >= 20 && text.is_ascii();
    match time::parse(text).filter(|_| looks_right) {
        Some(at) => Ok(Some(at)),
        None => Err(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        )),
    }
}

/// Returns seconds and nanoseconds since 1970 of a canonical time.
pub(crate) fn unix(text: &str) -> Option<(i64, i32)> {
    let at = time::parse(text)?;
    let nanos = at.as_nanosecond();
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

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration in Go's form (`1h2m3.5s`) to nanoseconds.
pub(crate) fn duration(text: &str) -> Result<i64, String> {
    parse_duration(text).ok_or_else(|| format!("time: invalid duration {text:?}"))
}

fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let factor = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        total = total.checked_add(scaled(number, factor)?)?;
        rest = tail;
    }
    let total = if text.len() > usize::from(text.starts_with(['-', '+'])) {
        total
    } else {
        return None;
    };
    i64::try_from(if negative { -total } else { total }).ok()
}

fn scaled(number: &str, factor: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || whole.len() > 19 {
        return None;
    }
    let mut total = if whole.is_empty() {
        0
    } else {
        whole.parse::<i128>().ok()?
    }
    .checked_mul(factor)?;
    let mut unit = factor;
    for digit in fraction.bytes().take(18) {
        unit /= 10;
        total += i128::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?) * unit;
    }
    Some(total)
}

/// Formats a duration like Go.
pub(crate) fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let small = |unit: u64, name: &str| format!("{sign}{}{name}", decimal(n, unit));
    match n {
        0 => "0s".to_owned(),
        1..1_000 => small(1, "ns"),
        1_000..1_000_000 => small(1_000, "µs"),
        1_000_000..1_000_000_000 => small(1_000_000, "ms"),
        _ => {
            let seconds = decimal(n % 60_000_000_000, 1_000_000_000);
            let minutes = n / 60_000_000_000;
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

fn decimal(n: u64, unit: u64) -> String {
    let rest = n % unit;
    if rest == 0 {
        return (n / unit).to_string();
    }
    let width = unit.to_string().len() - 1;
    let fraction = format!("{rest:0width$}");
    format!("{}.{}", n / unit, fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, back: &str| {
            assert_eq!(
                duration(text).map(format_duration).as_deref(),
                Ok(back),
                "{text}"
            )
        };
        check("1h", "1h0m0s");
        check("90s", "1m30s");
        check("1.5s", "1.5s");
        check("-2m", "-2m0s");
        check("300ms", "300ms");
        check("0", "0s");
        check("1us", "1µs");
        for bad in ["", "-", "1", "x", "1x", ".s", "1h-1m"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times() {
        let check =
            |text: &str, back: &str| assert_eq!(time(text), Ok(Some(back.to_owned())), "{text}");
        check("2024-02-03T04:05:06Z", "2024-02-03T04:05:06Z");
        check("2024-02-03T04:05:06.789+02:00", "2024-02-03T02:05:06Z");
        assert_eq!(time("0001-01-01T00:00:00Z"), Ok(None));
        assert!(time("2024-02-03 04:05:06Z").is_err());
        assert_eq!(
            micro_time("2024-02-03T04:05:06Z"),
            Ok(Some("2024-02-03T04:05:06.000000Z".to_owned()))
        );
    }
}
