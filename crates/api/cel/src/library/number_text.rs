//! Numbers as text: Go's shortest form, and the fixed-point and exponent forms of the American
//! English locale.

use std::fmt::Write as _;

/// Decimal places of the exact value of any 64-bit number; more are zeros.
const MAX_PLACES: usize = 1_100;
const DEFAULT_PLACES: usize = 6;

/// Returns the shortest text that reads back as the same number, with an exponent below 10^-4 and
/// from 10^6 on.
pub(crate) fn format_shortest(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "+Inf".to_owned()
        } else {
            "-Inf".to_owned()
        };
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{number}")
}

/// Returns a number with a fixed number of decimal places and with separators of thousands.
pub(crate) fn format_fixed(number: f64, precision: Option<usize>) -> String {
    if let Some(text) = name_special(number) {
        return text.to_owned();
    }
    let precision = precision.unwrap_or(DEFAULT_PLACES);
    let exact = format!("{:.*}", precision.min(MAX_PLACES), number.abs());
    let (whole, places) = exact.split_once('.').unwrap_or((&exact, ""));
    // Upstream keeps the least number of places in 8 bits.
    let padding = if precision > 255 {
        precision & 255
    } else {
        precision
    };
    let places = if precision > 255 {
        places.trim_end_matches('0')
    } else {
        places
    };
    // Upstream's zero has no sign.
    let mut text = String::from(if number < 0.0 { "-" } else { "" });
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if padding > 0 || !places.is_empty() {
        let _ = write!(text, ".{places:0<padding$}");
    }
    text
}

/// Returns a number with six decimal places and a power of ten. Upstream takes the precision of the
/// clause for the least width of the text.
pub(crate) fn format_exponent(number: f64, width: Option<usize>) -> String {
    let width = width.unwrap_or(DEFAULT_PLACES);
    let text = match name_special(number) {
        Some(text) => text.to_owned(),
        None => {
            let scientific = format!("{:.*e}", DEFAULT_PLACES, number.abs());
            let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
            let sign = if number < 0.0 { "-" } else { "" };
            format!("{sign}{mantissa}×10{}", raise_exponent(exponent))
        }
    };
    format!("{text:>width$}")
}

fn name_special(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("∞"),
        f64::NEG_INFINITY => Some("-∞"),
        _ => None,
    }
}

/// Returns an exponent of at least two digits in superscript.
fn raise_exponent(exponent: &str) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ("⁻", digits),
        None => ("", exponent),
    };
    let mut raised = String::from(sign);
    for digit in format!("{digits:0>2}").chars() {
        let index = digit
            .to_digit(10)
            .and_then(|digit| usize::try_from(digit).ok());
        raised.extend(index.and_then(|index| DIGITS.get(index)));
    }
    raised
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_form_is_that_of_go() {
        for (number, text) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (123_456.0, "123456"),
            (1_000_000.0, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (1_234_567.5, "1.2345675e+06"),
            (1e20, "1e+20"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(format_shortest(number), text);
        }
    }

    #[test]
    fn fixed_form_has_separators_and_places() {
        for (number, precision, text) in [
            (1_234_567.891, Some(3), "1,234,567.891"),
            (999.999, Some(2), "1,000.00"),
            (2.5, Some(0), "2"),
            (-0.04, Some(1), "-0.0"),
            (-0.0, None, "0.000000"),
            (f64::NEG_INFINITY, None, "-∞"),
        ] {
            assert_eq!(format_fixed(number, precision), text);
        }
        assert_eq!(format_fixed(0.5, Some(1000)).len(), 234);
        assert_eq!(format_fixed(1e-300, Some(300)).len(), 302);
    }

    #[test]
    fn exponent_form_is_raised_and_padded() {
        for (number, width, text) in [
            (1_052.032_911_275, None, "1.052033×10⁰³"),
            (-1.5e-10, None, "-1.500000×10⁻¹⁰"),
            (0.0, Some(2), "0.000000×10⁰⁰"),
            (f64::NAN, None, "   NaN"),
        ] {
            assert_eq!(format_exponent(number, width), text);
        }
    }
}
