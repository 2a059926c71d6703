//! Texts of numbers.

/// Formats a number as Go's `strconv.FormatFloat(value, 'g', -1, 64)` does: with an exponent
/// from a million on.
pub fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 {
            "+Inf".to_owned()
        } else {
            "-Inf".to_owned()
        };
    }
    if value == 0.0 {
        return if value.is_sign_negative() {
            "-0".to_owned()
        } else {
            "0".to_owned()
        };
    }
    // The scientific form has the fewest digits that read back as the same number, as Go's
    // precision of -1.
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Go decides with a precision of 6 if the shortest form is requested.
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    // Go writes at least two digits of the exponent.
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Parses a number in the notations of Go.
pub fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let is_number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let is_word = ["inf", "infinity", "nan"]
        .iter()
        .any(|word| unsigned.eq_ignore_ascii_case(word));
    if !is_number && !is_word {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    // Rust rounds a number that is too large to infinity. Go's `ParseFloat` returns an error.
    (is_word || value.is_finite()).then_some(value)
}

/// Parses a boolean in the notations of Go.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_have_the_shortest_text() {
        let cases = [
            (1.0, "1"),
            (-2.5, "-2.5"),
            (123_456.7, "123456.7"),
            (1e21, "1e+21"),
            (1_234_567.5, "1.2345675e+06"),
            (0.0001, "0.0001"),
            (0.000_012, "1.2e-05"),
            (f64::INFINITY, "+Inf"),
            (-0.0, "-0"),
        ];
        for (value, text) in cases {
            assert_eq!(format_double(value), text);
        }
    }

    #[test]
    fn double_texts_are_numbers_or_named_values() {
        assert_eq!(parse_double("-1.5e3"), Some(-1500.0));
        assert_eq!(parse_double("Inf"), Some(f64::INFINITY));
        for text in ["", "x", "1x", "1e999", "++1"] {
            assert_eq!(parse_double(text), None, "{text}");
        }
    }

    #[test]
    fn bool_texts_are_those_of_go() {
        assert_eq!(parse_bool("True"), Some(true));
        assert_eq!(parse_bool("tRUE"), None);
    }
}
