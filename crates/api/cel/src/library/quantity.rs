//! Library of Kubernetes for resource quantities.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;

use api_meta::Quantity;
use api_meta::quantity::Format;

use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{Object, Value};

use super::costs::{estimate_once, traverse_once};

/// Digits of a decimal number that upstream keeps as a 64-bit integer.
const MAX_DIGITS: usize = 18;

/// A quantity as a value.
#[derive(Clone, Copy)]
struct Amount {
    quantity: Quantity,
    /// The integer and the power of ten by which upstream holds the quantity, unless it holds it
    /// as a decimal of any size. `isInteger()` answers for this form, not for the number: `1.0`
    /// and `2000m` are no integers.
    parts: Option<Parts>,
}

#[derive(Debug, Clone, Copy)]
struct Parts {
    value: i64,
    scale: i32,
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "quantity({})", self.quantity)
    }
}

fn quantity_type() -> Type {
    Type::object("kubernetes.Quantity")
}

impl Object for Amount {
    fn object_type(&self) -> Type {
        quantity_type()
    }

    fn is_equal(&self, other: &dyn Object) -> bool {
        let other: Option<&Amount> = other.as_any().downcast_ref();
        other.is_some_and(|other| self.quantity == other.quantity)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Creates the value of a quantity in an object, as of a device's capacity.
pub fn create_value(text: &str) -> Result<Value<'static>, EvalError> {
    parse_amount(text).map(Value::object)
}

/// Returns the library.
pub fn library() -> Library {
    let two = || vec![quantity_type(), quantity_type()];
    let with_int = || vec![quantity_type(), Type::Int];
    let parser = |name, id, result, run: Implementation| {
        let overload = Overload::global(id, vec![Type::String], result, run);
        Function::new(name, vec![overload.with_cost(traverse_once, estimate_once)])
    };
    let getter = |name, id, result, run: Implementation| {
        Function::new(
            name,
            vec![Overload::receiver(id, vec![quantity_type()], result, run)],
        )
    };
    let comparison = |name, id, result, run: Implementation| {
        Function::new(name, vec![Overload::receiver(id, two(), result, run)])
    };
    let arithmetic = |name, id, id_int, run: Implementation| {
        let overloads = vec![
            Overload::receiver(id, two(), quantity_type(), run),
            Overload::receiver(id_int, with_int(), quantity_type(), run),
        ];
        Function::new(name, overloads)
    };
    // Upstream declares `sign` as a global function only, so `q.sign()` does not compile.
    let sign = Overload::global("quantity_sign", vec![quantity_type()], Type::Int, sign);
    Library {
        name: "kubernetes.quantity",
        since: 28,
        functions: vec![
            parser("quantity", "string_to_quantity", quantity_type(), quantity),
            parser("isQuantity", "is_quantity_string", Type::Bool, is_quantity),
            Function::new("sign", vec![sign]),
            comparison(
                "isGreaterThan",
                "quantity_is_greater_than",
                Type::Bool,
                is_greater,
            ),
            comparison("isLessThan", "quantity_is_less_than", Type::Bool, is_less),
            comparison("compareTo", "quantity_compare_to", Type::Int, compare_to),
            getter(
                "asApproximateFloat",
                "quantity_get_float",
                Type::Double,
                to_float,
            ),
            getter("asInteger", "quantity_get_int", Type::Int, to_integer),
            getter("isInteger", "quantity_is_integer", Type::Bool, is_integer),
            arithmetic("add", "quantity_add", "quantity_add_int", add),
            arithmetic("sub", "quantity_sub", "quantity_sub_int", subtract),
        ],
        ..Library::default()
    }
}

fn parse_amount(text: &str) -> Result<Amount, EvalError> {
    let quantity: Quantity = text
        .parse()
        .map_err(|error: api_meta::quantity::ParseError| EvalError::message(error.to_string()))?;
    Ok(Amount {
        quantity,
        parts: Parts::parse(text),
    })
}

impl Parts {
    /// Reads a text that is a quantity; `None` if upstream keeps it as a decimal of any size.
    fn parse(text: &str) -> Option<Parts> {
        let is_negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at_checked(digits(unsigned))?;
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at_checked(digits(rest))?,
            None => ("", rest),
        };
        let whole = whole.trim_start_matches('0');
        let length = whole.len().max(1) + fraction.len();
        let (factor, exponent, precision) = match binary_bits(suffix) {
            Some(_) if !fraction.is_empty() => return None,
            Some(bits) => (1_i64 << bits, 0, 14_usize.checked_sub(bits * 3 / 10)?),
            None => (1, decimal_exponent(suffix)?, MAX_DIGITS),
        };
        let scale = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        if length > precision || scale < -9 {
            return None;
        }
        let value: i64 = format!("0{whole}{fraction}").parse().ok()?;
        let value = value.checked_mul(factor)?;
        Some(Parts {
            value: if is_negative { -value } else { value },
            scale,
        })
    }

    /// Returns the sum in the smaller of both scales; `None` if it does not fit.
    fn add(self, other: Parts) -> Option<Parts> {
        // A zero leaves the scale of the other operand as it is, as upstream.
        if other.value == 0 {
            return Some(self);
        }
        if self.value == 0 {
            return Some(other);
        }
        let scale = self.scale.min(other.scale);
        let value = self.rescale(scale)?.checked_add(other.rescale(scale)?)?;
        Some(Parts { value, scale })
    }

    /// Returns the value as a multiple of `10^scale`, which must not be above the own scale.
    fn rescale(self, scale: i32) -> Option<i64> {
        if self.value == 0 {
            return Some(0);
        }
        let power = u32::try_from(self.scale.checked_sub(scale)?).ok()?;
        self.value.checked_mul(10_i64.checked_pow(power)?)
    }

    fn negate(self) -> Option<Parts> {
        Some(Parts {
            value: self.value.checked_neg()?,
            scale: self.scale,
        })
    }
}

fn binary_bits(suffix: &str) -> Option<usize> {
    let index = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
        .iter()
        .position(|known| *known == suffix)?;
    Some((index + 1) * 10)
}

fn decimal_exponent(suffix: &str) -> Option<i32> {
    let known = [
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
    match known.iter().find(|(known, _)| *known == suffix) {
        Some((_, exponent)) => Some(*exponent),
        None => suffix.strip_prefix(['e', 'E'])?.parse().ok(),
    }
}

fn take_amount(values: &[Value<'_>], index: usize) -> Result<Amount, EvalError> {
    let amount: Option<&Amount> = values.get(index).and_then(Value::downcast);
    amount.copied().ok_or(EvalError::NoSuchOverload)
}

/// Takes the second operand of an arithmetic function, which may be a whole number.
fn take_operand(values: &[Value<'_>]) -> Result<Amount, EvalError> {
    match values.get(1) {
        Some(Value::Int(units)) => Ok(Amount {
            quantity: Quantity::from_units(*units, Format::DecimalExponent),
            parts: Some(Parts {
                value: *units,
                scale: 0,
            }),
        }),
        _ => take_amount(values, 1),
    }
}

fn quantity<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match values {
        [Value::String(text)] => parse_amount(text).map(Value::object),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_quantity<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match values {
        [Value::String(text)] => Ok(Value::Bool(parse_amount(text).is_ok())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn sign<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let quantity = take_amount(values, 0)?.quantity;
    Ok(Value::Int(quantity.cmp(&Quantity::ZERO) as i64))
}

fn compare(values: &[Value<'_>]) -> Result<Ordering, EvalError> {
    Ok(take_amount(values, 0)?
        .quantity
        .cmp(&take_amount(values, 1)?.quantity))
}

fn is_greater<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(compare(values)?.is_gt()))
}

fn is_less<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(compare(values)?.is_lt()))
}

fn compare_to<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(compare(values)? as i64))
}

fn whole_number(amount: Amount) -> Option<i64> {
    let parts = amount.parts?;
    // A negative scale means decimal places, even if all of them are zeros.
    if parts.scale < 0 {
        None
    } else {
        parts.rescale(0)
    }
}

fn is_integer<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(whole_number(take_amount(values, 0)?).is_some()))
}

fn to_integer<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    whole_number(take_amount(values, 0)?)
        .map(Value::Int)
        .ok_or_else(|| EvalError::message("cannot convert value to integer"))
}

fn to_float<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let amount = take_amount(values, 0)?;
    let parts = amount.parts.filter(|parts| parts.scale == 0);
    let float = match parts {
        Some(parts) => parts.value as f64,
        None => approximate(&amount.quantity.to_string()),
    };
    Ok(Value::Double(float))
}

/// Returns the number that a quantity in canonical form stands for.
fn approximate(canonical: &str) -> f64 {
    let end = canonical
        .find(|c: char| !c.is_ascii_digit() && c != '-')
        .unwrap_or(canonical.len());
    let (digits, suffix) = canonical.split_at_checked(end).unwrap_or((canonical, ""));
    let mantissa: f64 = digits.parse().unwrap_or(0.0);
    match binary_bits(suffix) {
        Some(bits) => mantissa * (1_u64 << bits) as f64,
        // The parser of the standard library rounds once, a multiplication twice.
        None => {
            let exponent = decimal_exponent(suffix).unwrap_or(0);
            format!("{digits}e{exponent}").parse().unwrap_or(mantissa)
        }
    }
}

fn add<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (left, right) = (take_amount(values, 0)?, take_operand(values)?);
    let parts = left
        .parts
        .zip(right.parts)
        .and_then(|(left, right)| left.add(right));
    Ok(Value::object(Amount {
        quantity: left.quantity.plus(right.quantity),
        parts,
    }))
}

fn subtract<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (left, right) = (take_amount(values, 0)?, take_operand(values)?);
    let parts = left
        .parts
        .zip(right.parts)
        .and_then(|(left, right)| left.add(right.negate()?));
    Ok(Value::object(Amount {
        quantity: left.quantity.minus(right.quantity),
        parts,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_amounts_in_units_are_integers() {
        for (text, integer) in [
            ("50", Some(50)),
            ("50k", Some(50_000)),
            ("1Ki", Some(1024)),
            ("9E", Some(9_000_000_000_000_000_000)),
            ("1e18", Some(1_000_000_000_000_000_000)),
            ("0", Some(0)),
            ("-3", Some(-3)),
            ("1.0", None),
            ("2000m", None),
            ("0.5Ki", None),
            ("7Ei", None),
            ("1e19", None),
            ("-9223372036854775808", None),
        ] {
            assert_eq!(whole_number(parse_amount(text).unwrap()), integer, "{text}");
        }
    }

    #[test]
    fn floats_are_approximate() {
        for (text, float) in [
            ("1.5", 1.5),
            ("1Ki", 1024.0),
            ("1n", 1e-9),
            ("0.1", 0.1),
            ("1e20", 1e20),
            ("0", 0.0),
        ] {
            let value = to_float(&[create_value(text).unwrap()]).unwrap();
            assert!(
                matches!(value, Value::Double(found) if found == float),
                "{text} {value:?}"
            );
        }
    }

    #[test]
    fn huge_exponents_are_read_at_once() {
        // Upstream computes with all zeros of this number, which takes minutes.
        for text in ["1e1000000000", "1e-1000000000", "1e99999999999999999999"] {
            let _ = create_value(text);
        }
    }
}
