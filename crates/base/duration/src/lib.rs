//! Durations in Go's notation (`1h2m3.5s`), as flags, configuration files and API objects have
//! them.
//!
//! Invariant: accepts and rejects exactly what Go's `time.ParseDuration` does, with its messages;
//! [`format`] writes what `Duration.String` does.

use std::time::Duration;

/// A text that is no duration, with Go's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Grammar or overflow of 64-bit nanoseconds.
    #[error("time: invalid duration {}", quote_text(.0))]
    Invalid(String),
    /// A number without unit.
    #[error("time: missing unit in duration {}", quote_text(.0))]
    MissingUnit(String),
    /// A unit that is not ns, us, ms, s, m or h.
    #[error("time: unknown unit {} in duration {}", quote_text(.unit), quote_text(.text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
    /// A negative duration where none may be.
    #[error("duration {} is negative", quote_text(.0))]
    Negative(String),
}

/// Magnitude of the smallest `i64`.
const MAX: u64 = 1 << 63;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration to nanoseconds.
pub fn parse_duration(text: &str) -> Result<i64, ParseError> {
    let invalid = || ParseError::Invalid(text.to_owned());
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    // The only number without a unit, with a sign as well.
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    // Unsigned, as in Go: the magnitude of the smallest value does not fit a signed number.
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(find_or_end(rest, |c| !is_number(c)));
        // A second point ends the number, and is then no unit.
        // Go reads one number with at most one point, and takes what follows as the unit.
        let second = number.match_indices('.').nth(1).map(|(at, _)| at);
        let (number, tail) = match second {
            Some(at) => rest.split_at(at),
            None => (number, tail),
        };
        if !number.contains(|c: char| c.is_ascii_digit()) {
            return Err(invalid());
        }
        let (unit, tail) = tail.split_at(find_or_end(tail, is_number));
        if unit.is_empty() {
            return Err(ParseError::MissingUnit(text.to_owned()));
        }
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(ParseError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            });
        };
        let amount = multiply_number(number, *factor).ok_or_else(invalid)?;
        // One more than the largest positive value is valid for negative durations, so that the
        // smallest one can be written.
        let sum = total.checked_add(amount).filter(|sum| *sum <= MAX);
        total = sum.ok_or_else(invalid)?;
        rest = tail;
    }
    match (is_negative, i64::try_from(total)) {
        // Wraps only for the magnitude of the smallest value, whose negation is itself.
        (true, _) => Ok(0_i64.wrapping_sub_unsigned(total)),
        (false, Ok(total)) => Ok(total),
        (false, Err(_)) => Err(invalid()),
    }
}

/// Parses a duration that is not negative.
pub fn parse_unsigned(text: &str) -> Result<Duration, ParseError> {
    let nanos =
        u64::try_from(parse_duration(text)?).map_err(|_| ParseError::Negative(text.to_owned()))?;
    Ok(Duration::from_nanos(nanos))
}

/// Formats nanoseconds.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let small = |unit: u64, name: &str| format!("{sign}{}{name}", format_decimal(n, unit));
    match n {
        0 => "0s".to_owned(),
        1..1_000 => small(1, "ns"),
        1_000..1_000_000 => small(1_000, "µs"),
        1_000_000..1_000_000_000 => small(1_000_000, "ms"),
        _ => {
            let seconds = format_decimal(n % 60_000_000_000, 1_000_000_000);
            let minutes = n / 60_000_000_000;
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

fn is_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

fn find_or_end(text: &str, matches: impl Fn(char) -> bool) -> usize {
    text.find(matches).unwrap_or(text.len())
}

/// Returns `number * factor`; None on overflow. The fraction is computed in floating point, as Go
/// does.
fn multiply_number(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = match whole {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    let total = whole.checked_mul(factor).filter(|total| *total <= MAX)?;
    let (mut value, mut divisor) = (0_u64, 1_f64);
    for digit in fraction.bytes() {
        // Further digits are below the precision.
        let next = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
        let Some(next) = next.filter(|next| value <= (MAX - 1) / 10 && *next <= MAX) else {
            break;
        };
        value = next;
        divisor *= 10.0;
    }
    // Exactly Go's expression. Integer arithmetic would differ in the last nanosecond for some
    // inputs.
    let more = (value as f64 * (factor as f64 / divisor)) as u64;
    total.checked_add(more).filter(|total| *total <= MAX)
}

fn format_decimal(n: u64, unit: u64) -> String {
    let rest = n % unit;
    if rest == 0 {
        return (n / unit).to_string();
    }
    // Units are powers of ten, so the fraction has as many digits as the unit has zeros.
    let width = unit.to_string().len() - 1;
    let fraction = format!("{rest:0width$}");
    format!("{}.{}", n / unit, fraction.trim_end_matches('0'))
}

/// Quotes a text as Go's time package does: other than printable ASCII as escaped bytes.
fn quote_text(text: &str) -> String {
    let mut quoted = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            // Go's time package escapes bytes below the blank and outside of ASCII, so DEL stays.
            b' '..=b'~' | 0x7f => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_and_format_as_go_does() {
        for (text, nanos, shown) in [
            ("0", 0, "0s"),
            ("-0", 0, "0s"),
            ("+0", 0, "0s"),
            ("0s", 0, "0s"),
            ("1ns", 1, "1ns"),
            ("1us", 1_000, "1µs"),
            ("1µs", 1_000, "1µs"),
            ("1μs", 1_000, "1µs"),
            ("1.5us", 1_500, "1.5µs"),
            ("300ms", 300_000_000, "300ms"),
            ("1s", 1_000_000_000, "1s"),
            ("1.s", 1_000_000_000, "1s"),
            (".5s", 500_000_000, "500ms"),
            ("90s", 90_000_000_000, "1m30s"),
            ("-2m", -120_000_000_000, "-2m0s"),
            ("+5s", 5_000_000_000, "5s"),
            ("1h", 3_600_000_000_000, "1h0m0s"),
            ("30s1h", 3_630_000_000_000, "1h0m30s"),
            ("1h2m3.5s", 3_723_500_000_000, "1h2m3.5s"),
            ("0.3333333333333333333h", 1_200_000_000_000, "20m0s"),
            ("0.100000000000000000000h", 360_000_000_000, "6m0s"),
            (
                "9223372036854775807ns",
                i64::MAX,
                "2562047h47m16.854775807s",
            ),
            (
                "-9223372036854775808ns",
                i64::MIN,
                "-2562047h47m16.854775808s",
            ),
        ] {
            assert_eq!(parse_duration(text), Ok(nanos), "{text}");
            assert_eq!(format_duration(nanos), shown, "{text}");
        }
    }

    #[test]
    fn other_text_is_rejected_with_gos_message() {
        for (text, message) in [
            ("", r#"time: invalid duration """#),
            ("-", r#"time: invalid duration "-""#),
            ("x", r#"time: invalid duration "x""#),
            (".s", r#"time: invalid duration ".s""#),
            ("1h-1m", r#"time: unknown unit "h-" in duration "1h-1m""#),
            ("3", r#"time: missing unit in duration "3""#),
            ("1.2.3s", r#"time: missing unit in duration "1.2.3s""#),
            ("1x", r#"time: unknown unit "x" in duration "1x""#),
            ("5 s", r#"time: unknown unit " s" in duration "5 s""#),
            (
                "1é",
                r#"time: unknown unit "\xc3\xa9" in duration "1\xc3\xa9""#,
            ),
            (
                "9223372036854775808ns",
                r#"time: invalid duration "9223372036854775808ns""#,
            ),
            (
                "-9223372036854775809ns",
                r#"time: invalid duration "-9223372036854775809ns""#,
            ),
            (
                "9223372036854775807h",
                r#"time: invalid duration "9223372036854775807h""#,
            ),
            (
                "99999999999999999999s",
                r#"time: invalid duration "99999999999999999999s""#,
            ),
            ("2562047h48m", r#"time: invalid duration "2562047h48m""#),
        ] {
            let got = parse_duration(text).map_err(|error| error.to_string());
            assert_eq!(got, Err(message.to_owned()), "{text}");
        }
        assert_eq!(parse_unsigned("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(
            parse_unsigned("-1s"),
            Err(ParseError::Negative("-1s".into()))
        );
    }
}
