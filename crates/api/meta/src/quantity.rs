//! `resource.Quantity`: a decimal number with a suffix, exact to 10^-9, written in upstream's
//! canonical form.
//!
//! Invariant: `parse(q.to_string()) == q`. The format (binary, decimal, exponent) of the input is
//! preserved. Values are 128-bit multiples of 10^-9, which includes upstream's int64 and everything
//! that a resource needs. Rejected: arbitrary-precision decimals, because upstream caps values at
//! 2^63-1.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

const NANO: i128 = 1_000_000_000;
const MAX: i128 = i64::MAX as i128 * NANO;

/// Format of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// A resource quantity.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)]
pub struct ParseError;

const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

impl Quantity {
    /// Zero, decimal.
    pub const ZERO: Quantity = Quantity {
        nanos: 0,
        format: Format::DecimalSi,
    };

    /// Creates a quantity from a whole number.
    pub const fn from_units(units: i64, format: Format) -> Self {
        Quantity {
            nanos: units as i128 * NANO,
            format,
        }
    }

    /// Creates a quantity from thousandths, as for CPU.
    pub const fn from_millis(millis: i64) -> Self {
        Quantity {
            nanos: millis as i128 * (NANO / 1000),
            format: Format::DecimalSi,
        }
    }

    /// Returns whole units, rounded up (away from zero), like upstream's `Value()`.
    pub fn value(&self) -> i64 {
        clamp(round_up(self.nanos, NANO))
    }

    /// Returns thousandths, rounded up (away from zero), like upstream's `MilliValue()`.
    pub fn milli_value(&self) -> i64 {
        clamp(round_up(self.nanos, NANO / 1000))
    }

    /// Returns whether the quantity is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Returns whether the quantity is negative.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Returns the format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the sum. Its format is that of `self`, unless `self` is zero.
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        Quantity {
            nanos: (self.nanos + other.nanos).clamp(-MAX, MAX),
            format,
        }
    }

    /// Returns the difference.
    #[must_use]
    pub fn minus(self, other: Quantity) -> Quantity {
        self.plus(Quantity {
            nanos: -other.nanos,
            format: other.format,
        })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

fn round_up(n: i128, unit: i128) -> i128 {
    let (quotient, rest) = (n / unit, n % unit);
    if rest == 0 {
        quotient
    } else {
        quotient + n.signum()
    }
}

fn clamp(n: i128) -> i64 {
    i64::try_from(n.clamp(i128::from(i64::MIN), i128::from(i64::MAX))).unwrap_or(i64::MAX)
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
            None => return Err(ParseError),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(ParseError);
        }
        let (scale, format) = scale_of(suffix)?;
        let nanos = match scale {
            Scale::Binary(bits) => scaled(whole, fraction, 0, 1_i128 << bits),
            Scale::Decimal(exponent) => scaled(whole, fraction, exponent, 1),
        };
        Ok(Quantity {
            nanos: if negative { -nanos } else { nanos },
            format,
        })
    }
}

enum Scale {
    Binary(u32),
    Decimal(i32),
}

fn scale_of(suffix: &str) -> Result<(Scale, Format), ParseError> {
    if let Some((_, bits)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::Binary(*bits), Format::BinarySi));
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::Decimal(*exponent), Format::DecimalSi));
    }
    let digits = suffix.strip_prefix(['e', 'E']).ok_or(ParseError)?;
    let exponent: i32 = digits.parse().map_err(|_| ParseError)?;
    Ok((Scale::Decimal(exponent), Format::DecimalExponent))
}

/// Returns `whole.fraction * 10^exponent * factor` in multiples of 10^-9, rounded up and capped at
/// the maximum.
fn scaled(whole: &str, fraction: &str, exponent: i32, factor: i128) -> i128 {
    let digits: String = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let fraction_len = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let mut shift = exponent.saturating_add(9).saturating_sub(fraction_len);
    let mut kept = digits;
    let mut round = false;
    // More than 30 digits are irrelevant: above the cap on the left, below 10^-9 on the right.
    if kept.len() > 30 {
        let cut = kept.len() - 30;
        round = kept[30..].bytes().any(|b| b != b'0');
        kept = &kept[..30];
        shift = shift.saturating_add(i32::try_from(cut).unwrap_or(i32::MAX));
    }
    let Ok(mut n) = kept.parse::<i128>() else {
        return MAX;
    };
    let Some(product) = n.checked_mul(factor) else {
        return if shift >= -20 { MAX } else { 1 };
    };
    n = product;
    for _ in 0..shift.clamp(0, 60) {
        n = match n.checked_mul(10) {
            Some(n) if n <= MAX => n,
            _ => return MAX,
        };
    }
    for _ in 0..(-shift).clamp(0, 60) {
        round |= n % 10 != 0;
        n /= 10;
    }
    (n + i128::from(round)).min(MAX)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        match self.format {
            Format::BinarySi if self.nanos.abs() >= 1024 * NANO && self.nanos % NANO == 0 => {
                self.write_binary(f)
            }
            Format::BinarySi | Format::DecimalSi => self.write_decimal(f, |e| {
                DECIMAL
                    .iter()
                    .find(|(_, x)| *x == e)
                    .map(|(s, _)| (*s).to_owned())
                    .unwrap_or_default()
            }),
            Format::DecimalExponent => self.write_decimal(f, |e| {
                if e == 0 {
                    String::new()
                } else {
                    format!("e{e}")
                }
            }),
        }
    }
}

impl Quantity {
    fn write_binary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut n = self.nanos / NANO;
        let mut suffix = "";
        for (s, _) in BINARY {
            if n % 1024 != 0 {
                break;
            }
            n /= 1024;
            suffix = s;
        }
        write!(f, "{n}{suffix}")
    }

    fn write_decimal(
        &self,
        f: &mut fmt::Formatter<'_>,
        suffix: impl Fn(i32) -> String,
    ) -> fmt::Result {
        let mut n = self.nanos;
        let mut exponent = -9;
        while exponent < 18 && n % 1000 == 0 {
            n /= 1000;
            exponent += 3;
        }
        write!(f, "{n}{}", suffix(exponent))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn canonical_forms() {
        let check = |from: &str, to: &str| {
            assert_eq!(from.parse::<Quantity>().unwrap().to_string(), to, "{from}")
        };
        check("0", "0");
        check("0.5", "500m");
        check("1000m", "1");
        check("1500m", "1500m");
        check("1024Mi", "1Gi");
        check("1.5Gi", "1536Mi");
        check("100Mi", "100Mi");
        check("1000", "1k");
        check("1001", "1001");
        check("12e6", "12e6");
        check("123000E3", "123e6");
        check("0.1n", "1n");
        check("-1.5", "-1500m");
        check("1Ki", "1Ki");
        check("0.5Ki", "512");
        check(".5", "500m");
        check("9Ei", "9223372036854775807");
    }

    #[test]
    fn what_is_not_a_quantity() {
        for bad in ["", "-", "x", "1.2.3", "1x", "1 ", "1kk", "e3", "1e", "1Kib"] {
            assert!(bad.parse::<Quantity>().is_err(), "{bad}");
        }
    }

    #[test]
    fn values_round_up() {
        let q: Quantity = "1500m".parse().unwrap();
        assert_eq!((q.value(), q.milli_value()), (2, 1500));
    }
}
