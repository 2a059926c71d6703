//! `resource.Quantity`: a decimal number with a suffix, exact to 10^-9, written in upstream's
//! canonical form.
//!
//! Invariant: `parse(q.to_string()) == q`. The format (binary, decimal, exponent) of the input is
//! preserved. Values are 128-bit multiples of 10^-9, which includes upstream's int64 and everything
//! that a resource needs. Rejected: arbitrary-precision decimals, because nothing is counted beyond
//! 10^29.
//!
//! Upstream writes a text that is close to the canonical form as it came (`+1`, `1.500`, `1E3`).
//! Here every quantity is written in canonical form, so that equal objects are equal texts.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

const NANO: i128 = 1_000_000_000;
const MILLI: i128 = NANO / 1000;
/// Upstream caps binary quantities when it parses them, and no others.
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;
/// Largest amount that 128 bits hold with all digits.
const MAX: i128 = 10_i128.pow(38);
/// Digits of a number whose product with the largest factor, 2^60, fits into 128 bits.
const FAST_DIGITS: usize = 18;

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

/// The text is not a quantity. The messages are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text has not the form of a quantity.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The number is missing.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

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
            nanos: millis as i128 * MILLI,
            format: Format::DecimalSi,
        }
    }

    /// Returns whole units, rounded up (away from zero), like upstream's `Value()`.
    pub fn value(&self) -> i64 {
        clamp_to_i64(round_up(self.nanos, NANO))
    }

    /// Returns thousandths, rounded up (away from zero), like upstream's `MilliValue()`.
    pub fn milli_value(&self) -> i64 {
        clamp_to_i64(round_up(self.nanos, MILLI))
    }

    /// Returns the quantity rounded up (away from zero) to whole thousandths.
    #[must_use]
    pub fn round_up_to_milli(self) -> Quantity {
        Quantity {
            nanos: round_up(self.nanos, MILLI) * MILLI,
            format: self.format,
        }
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
        // Upstream's `Add` does so: a sum that starts at zero shows the format of its parts.
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        Quantity {
            // A sum that wrapped around would be negative, and a quota would admit everything.
            nanos: self.nanos.saturating_add(other.nanos).clamp(-MAX, MAX),
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
        // Formats do not count: `1` and `1000m` are one amount, as for upstream's `Cmp`.
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
    // Never towards zero: a request of a fraction must not become a request of nothing.
    let (quotient, rest) = (n / unit, n % unit);
    if rest == 0 {
        quotient
    } else {
        quotient + n.signum()
    }
}

fn clamp_to_i64(n: i128) -> i64 {
    i64::try_from(n.clamp(i128::from(i64::MIN), i128::from(i64::MAX))).unwrap_or(i64::MAX)
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError::Format);
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        if !is_suffix_form(suffix) {
            return Err(ParseError::Format);
        }
        let (scale, format) = parse_suffix(suffix)?;
        if whole.is_empty() && fraction.is_empty() {
            // Upstream reads a missing number as zero, unless the suffix is so large or so small
            // that it parses the text with its decimal library, which rejects it.
            return match scale {
                Scale::Binary(50..) | Scale::Decimal(..-9) => Err(ParseError::Number),
                _ => Ok(Quantity { nanos: 0, format }),
            };
        }
        let nanos = match scale {
            Scale::Binary(bits) => scale_number(whole, fraction, 0, 1 << bits).min(MAX_BINARY),
            Scale::Decimal(exponent) => scale_number(whole, fraction, exponent, 1),
        };
        // A binary fraction of one would have no canonical form with a binary suffix.
        let is_fraction = format == Format::BinarySi && (1..NANO).contains(&nanos);
        Ok(Quantity {
            nanos: if negative { -nanos } else { nanos },
            format: if is_fraction {
                Format::DecimalSi
            } else {
                format
            },
        })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// Returns whether a suffix has the form that the regular expression of the message shows.
fn is_suffix_form(suffix: &str) -> bool {
    let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    digits.bytes().all(|b| b.is_ascii_digit())
}

enum Scale {
    Binary(u32),
    Decimal(i64),
}

fn parse_suffix(suffix: &str) -> Result<(Scale, Format), ParseError> {
    if let Some((_, bits)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::Binary(*bits), Format::BinarySi));
    }
    // `E` alone is 10^18, not an exponent without digits.
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::Decimal(i64::from(*exponent)), Format::DecimalSi));
    }
    let digits = suffix.strip_prefix(['e', 'E']).ok_or(ParseError::Suffix)?;
    let exponent = digits.parse().map_err(|_| ParseError::Suffix)?;
    Ok((Scale::Decimal(exponent), Format::DecimalExponent))
}

/// Returns `whole.fraction * 10^exponent * factor` in multiples of 10^-9, rounded up and capped at
/// [`MAX`].
fn scale_number(whole: &str, fraction: &str, exponent: i64, factor: u64) -> i128 {
    let zeros = |b: &u8| *b == b'0';
    let mut digits = whole.bytes().chain(fraction.bytes()).skip_while(zeros);
    let count = digits.clone().count();
    let fraction_len = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    // Nine digits lead from units to multiples of 10^-9, and each digit of the fraction is one
    // less.
    let shift = exponent.saturating_add(9).saturating_sub(fraction_len);
    // Nearly all quantities are short, and this path allocates nothing.
    if count <= FAST_DIGITS {
        let number = digits.fold(0_i128, |n, b| n * 10 + i128::from(b - b'0'));
        return shift_number(number * i128::from(factor), shift);
    }
    multiply_digits(&mut digits, factor, shift)
}

/// Returns `number * 10^shift`, rounded up and capped.
fn shift_number(number: i128, shift: i64) -> i128 {
    if number == 0 {
        return 0;
    }
    let power = u32::try_from(shift.unsigned_abs()).ok();
    let power = power.and_then(|power| 10_i128.checked_pow(power));
    match (power, shift >= 0) {
        (Some(power), true) => number.saturating_mul(power).min(MAX),
        (Some(power), false) => round_up(number, power).min(MAX),
        (None, true) => MAX,
        // Something small is requested, not nothing.
        (None, false) => 1,
    }
}

/// Returns `digits * factor * 10^shift` like [`shift_number`], for any number of digits.
fn multiply_digits(digits: &mut dyn Iterator<Item = u8>, factor: u64, shift: i64) -> i128 {
    // Least significant digit first.
    let mut product: Vec<u8> = digits.map(|b| b - b'0').collect();
    product.reverse();
    let mut carry = 0_u128;
    for digit in &mut product {
        carry += u128::from(*digit) * u128::from(factor);
        *digit = u8::try_from(carry % 10).unwrap_or_default();
        carry /= 10;
    }
    while carry > 0 {
        product.push(u8::try_from(carry % 10).unwrap_or_default());
        carry /= 10;
    }
    let cut = usize::try_from(-shift.min(0)).unwrap_or(usize::MAX);
    let (dropped, kept) = product.split_at(cut.min(product.len()));
    let kept_len = i64::try_from(kept.len()).unwrap_or(i64::MAX);
    // 38 digits fit into 128 bits. More would overflow in the sum below.
    if kept_len.saturating_add(shift.max(0)) > 38 {
        return MAX;
    }
    let number = kept.iter().rev().fold(0, |n, d| n * 10 + i128::from(*d));
    let rest = dropped.iter().any(|d| *d != 0);
    shift_number(number, shift.max(0))
        .saturating_add(i128::from(rest))
        .min(MAX)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Zero has no suffix, whatever it was parsed from.
        if self.nanos == 0 {
            return f.write_str("0");
        }
        match self.format {
            // Smaller amounts and fractions are written in decimal, because no binary suffix shows
            // them exactly.
            Format::BinarySi if self.nanos.abs() >= 1024 * NANO && self.nanos % NANO == 0 => {
                self.write_binary(f)
            }
            // The largest decimal suffix is `E`. Upstream drops the suffix of larger multiples of
            // 1000 (`1000E` becomes `1`); the number is kept here.
            Format::BinarySi | Format::DecimalSi => self.write_decimal(f, 18, |e| {
                DECIMAL
                    .iter()
                    .find(|(_, x)| *x == e)
                    .map(|(s, _)| (*s).to_owned())
                    .unwrap_or_default()
            }),
            Format::DecimalExponent => self.write_decimal(f, i32::MAX, |e| {
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
            // Only exact steps: the text must parse to the same amount.
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
        last: i32,
        suffix: impl Fn(i32) -> String,
    ) -> fmt::Result {
        let mut n = self.nanos;
        let mut exponent = -9;
        // Exponents are multiples of 3, also without suffixes: `1e4` becomes `10e3`.
        while exponent < last && n % 1000 == 0 {
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

    fn parse(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn sum_keeps_the_format_of_the_first_amount_that_is_not_zero() {
        for (first, second, sum) in [
            ("0", "100m", "100m"),
            ("0", "1Gi", "1Gi"),
            ("1Gi", "0", "1Gi"),
            ("1Gi", "1G", "2073741824"),
            ("1Gi", "1024Mi", "2Gi"),
            ("500m", "500m", "1"),
            ("1e3", "1k", "2e3"),
        ] {
            let found = parse(first).plus(parse(second)).to_string();
            assert_eq!(found, sum, "{first} + {second}");
        }
    }

    #[test]
    fn difference_of_zero_has_the_format_of_the_subtrahend() {
        for (first, second, difference) in [
            ("0", "1Gi", "-1Gi"),
            ("2Gi", "1Gi", "1Gi"),
            ("1", "1500m", "-500m"),
        ] {
            let found = parse(first).minus(parse(second)).to_string();
            assert_eq!(found, difference, "{first} - {second}");
        }
    }

    #[test]
    fn amounts_are_compared_by_value_and_not_by_text() {
        assert_eq!(parse("1024Mi"), parse("1Gi"));
        assert_eq!(parse("1.500"), parse("1500m"));
        assert_eq!(parse("0Ki"), Quantity::ZERO);
        assert!(parse("10000T") > parse("100Gi"));
        assert!(parse("-1") < parse("-999m"));
    }

    #[test]
    fn many_digits_keep_their_value() {
        for (text, canonical) in [
            (
                "0.00000123456789012345678901234567890Ei",
                "1423359869420436337656n",
            ),
            (
                "1234567890123456789012345678",
                "1234567890123456789012345678",
            ),
            ("1000000000000000000000e-18", "1e3"),
            ("0.0000000000000000000000000000001", "1n"),
            ("1e400", "100e27"),
            ("1e-400", "1e-9"),
        ] {
            assert_eq!(parse(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn canonical_form_parses_to_the_same_amount_and_format() {
        for text in [
            "1", "1500m", "3n", "12e6", "1e-9", "7Pi", "512Mi", "12E", "-4u", "1e21",
        ] {
            let quantity = parse(text);
            let again = parse(&quantity.to_string());
            assert_eq!(
                (again, again.format()),
                (quantity, quantity.format()),
                "{text}"
            );
        }
    }

    #[test]
    fn values_beyond_int64_are_capped() {
        assert_eq!(parse("12E").value(), i64::MAX);
        assert_eq!(parse("-12E").value(), i64::MIN);
        assert_eq!(parse("1Ei").milli_value(), i64::MAX);
        assert_eq!(
            parse("12E").plus(parse("1e400")).to_string(),
            "100000000000E"
        );
    }
}
