//! Numbers, as Go's decoder and validators see them.

use crate::format::NumberFormat;
use crate::model::{Checks, ValueType};
use serde_json::{Number, Value};

/// Largest whole number up to which all are exact in a float.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// A number: whole numbers of 64 bits, or else a float.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GoNumber {
    Int(i64),
    Float(f64),
}

impl GoNumber {
    pub(crate) fn from_json(number: &Number) -> Self {
        match number.as_i64() {
            Some(n) => Self::Int(n),
            None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    pub(crate) fn to_float(self) -> f64 {
        match self {
            Self::Int(n) => n as f64,
            Self::Float(f) => f,
        }
    }

    pub(crate) fn to_json(self) -> Value {
        match self {
            Self::Int(n) => n.into(),
            Self::Float(f) => f.into(),
        }
    }
}

/// Returns whether a float has no fraction worth mentioning.
pub(crate) fn is_whole(f: f64) -> bool {
    // Beyond this, each float is a whole number, and the difference says nothing.
    if !f.is_finite() || f.abs() > MAX_EXACT {
        return false;
    }
    let whole = f.round();
    let difference = (f - whole).abs();
    // The tolerance of upstream's library, which hides rounding in quotients.
    f == whole || difference / (f.abs() + whole.abs()) < 1e-9
}

/// Formats a float like Go's `%v`.
pub(crate) fn format_float(f: f64) -> String {
    // The logarithm of zero has no exponent.
    let exponent = if f == 0.0 {
        0
    } else {
        f.abs().log10().floor() as i32
    };
    if f.is_finite() && !(-4..6).contains(&exponent) {
        let text = format!("{f:e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, power) = match power.strip_prefix('-') {
            Some(power) => ('-', power),
            None => ('+', power),
        };
        return format!("{digits}e{sign}{power:0>2}");
    }
    format!("{f}")
}

/// A violated rule: the part of the message after the path, and whether it stands for the field.
pub(crate) enum NumberProblem {
    /// About the field: `spec.x in body should be ...`
    Field(String),
    /// About the schema: `Checked value must be of type ... in spec.x`
    Range(String),
    /// `factor MultipleOf declared for spec.x must be positive: 0`
    Factor(String),
}

/// Validates a number. Boundaries that aren't whole apply to whole numbers without their fraction,
/// as upstream compares them.
pub(crate) fn check_number(
    number: GoNumber,
    value_type: Option<ValueType>,
    checks: Option<&Checks>,
) -> Vec<NumberProblem> {
    let mut out = Vec::new();
    let format = checks.and_then(|checks| checks.number_format);
    // The range of the type is checked before the limits, because upstream's validator for numbers
    // has this order.
    let range = Range { value_type, format };
    range.check(number, "Checked", &mut out);
    let Some(checks) = checks else {
        return out;
    };
    if let Some(factor) = checks.multiple_of {
        // A factor or limit that the type can't represent is the fault of the definition. Upstream
        // reports it for each object.
        let exact = range.check(GoNumber::Float(factor), "MultipleOf", &mut out);
        check_multiple(number, factor, exact, &mut out);
    }
    if let Some(max) = checks.maximum {
        let exact = range.check(GoNumber::Float(max), "Maximum boundary", &mut out);
        let (above, limit) = compare(number, max, exact);
        if above == std::cmp::Ordering::Greater
            || checks.exclusive_maximum && above == std::cmp::Ordering::Equal
        {
            let relation = if checks.exclusive_maximum {
                ""
            } else {
                " or equal to"
            };
            out.push(NumberProblem::Field(format!(
                "should be less than{relation} {limit}"
            )));
        }
    }
    if let Some(min) = checks.minimum {
        let exact = range.check(GoNumber::Float(min), "Minimum boundary", &mut out);
        let (below, limit) = compare(number, min, exact);
        if below == std::cmp::Ordering::Less
            || checks.exclusive_minimum && below == std::cmp::Ordering::Equal
        {
            let relation = if checks.exclusive_minimum {
                ""
            } else {
                " or equal to"
            };
            out.push(NumberProblem::Field(format!(
                "should be greater than{relation} {limit}"
            )));
        }
    }
    out
}

/// Compares with a boundary. Returns the boundary as the message shows it.
fn compare(number: GoNumber, limit: f64, exact: bool) -> (std::cmp::Ordering, String) {
    match number {
        GoNumber::Int(n) if exact => {
            // A whole number is compared as one: as a float it would lose digits above 53 bits.
            let limit = limit as i64;
            (n.cmp(&limit), limit.to_string())
        }
        other => (other.to_float().total_cmp(&limit), format_float(limit)),
    }
}

fn check_multiple(number: GoNumber, factor: f64, exact: bool, out: &mut Vec<NumberProblem>) {
    let (whole, text, positive) = match number {
        GoNumber::Int(n) if exact => {
            let factor = factor as i64;
            (
                // A factor of zero, or minus one with the smallest number, would otherwise end the
                // process.
                n.checked_rem(factor) == Some(0),
                factor.to_string(),
                factor > 0,
            )
        }
        other => {
            let f = other.to_float();
            // Upstream multiplies by the inverse, which rounds differently from a division. Clients
            // compare the verdict.
            let quotient = if factor < 1.0 {
                1.0 / factor * f
            } else {
                f / factor
            };
            (is_whole(quotient), format_float(factor), factor > 0.0)
        }
    };
    if !positive {
        out.push(NumberProblem::Factor(text));
    } else if !whole {
        out.push(NumberProblem::Field(format!(
            "should be a multiple of {text}"
        )));
    }
}

struct Range {
    value_type: Option<ValueType>,
    format: Option<NumberFormat>,
}

impl Range {
    /// Checks that a number fits into the type and format.
    fn check(&self, number: GoNumber, what: &str, out: &mut Vec<NumberProblem>) -> bool {
        let whole = match number {
            GoNumber::Int(n) => Some(n),
            // `1.0` is a whole number in JSON Schema, so it is valid for an integer.
            GoNumber::Float(f) if f.fract() == 0.0 && f.abs() < 9.3e18 => Some(f as i64),
            GoNumber::Float(_) => None,
        };
        let fits = match (self.value_type, self.format) {
            (Some(ValueType::Integer), Some(NumberFormat::Int32)) => {
                whole.is_some_and(|n| i32::try_from(n).is_ok())
            }
            (Some(ValueType::Integer), _) => whole.is_some(),
            (_, Some(NumberFormat::Float)) => number.to_float().abs() <= f64::from(f32::MAX),
            _ => true,
        };
        if !fits {
            let name = self.value_type.map_or("", ValueType::name);
            let format = match self.format {
                Some(format) => format!("with format {}", format.name()),
                None => "(default format)".to_owned(),
            };
            let text = format!("{what} value must be of type {name} {format}");
            out.push(NumberProblem::Range(text));
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn floats_are_written_like_in_go() {
        let cases = [
            (1.0, "1"),
            (0.5, "0.5"),
            (100_000.0, "100000"),
            (1_234_567.0, "1.234567e+06"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (-2.5, "-2.5"),
            (0.0, "0"),
            (1e100, "1e+100"),
        ];
        for (f, text) in cases {
            assert_eq!(format_float(f), text);
        }
    }

    #[test]
    fn whole_floats_are_recognized() {
        for f in [0.0, 1.0, -3.0, 0.3 / 0.1, 9_007_199_254_740_991.0] {
            assert!(is_whole(f), "{f}");
        }
        for f in [0.5, 1.1, f64::NAN, f64::INFINITY, 1e300] {
            assert!(!is_whole(f), "{f}");
        }
    }

    #[test]
    fn large_numbers_are_floats() {
        let number = |text: &str| serde_json::from_str::<Number>(text).unwrap();
        assert!(matches!(
            GoNumber::from_json(&number("5")),
            GoNumber::Int(5)
        ));
        assert!(matches!(
            GoNumber::from_json(&number("5.0")),
            GoNumber::Float(_)
        ));
        assert!(matches!(
            GoNumber::from_json(&number("18446744073709551615")),
            GoNumber::Float(_)
        ));
    }
}
