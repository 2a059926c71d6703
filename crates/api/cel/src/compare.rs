//! Equality and order of values.

use std::cmp::Ordering;

use crate::schema::{JsonForm, JsonSchema};
use crate::value::{List, Map, Value};

/// Reports whether two values are equal. Values of different types are not, numbers excepted.
pub fn equal(left: &Value<'_>, right: &Value<'_>) -> bool {
    // Without a limit, for callers whose operands are small.
    let mut fuel = u64::MAX;
    equal_within(left, right, &mut fuel).unwrap_or(false)
}

/// The same with a limit: each pair of values takes one unit of fuel; `None` if there is none left.
pub fn equal_within(left: &Value<'_>, right: &Value<'_>, fuel: &mut u64) -> Option<bool> {
    // Charged before the comparison, so that a refusal has not done the work.
    *fuel = fuel.checked_sub(1)?;
    Some(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) => {
            // Comparing memory is fast, so 64 bytes cost as much as one step of the interpreter.
            *fuel = fuel.checked_sub(left.len().min(right.len()) as u64 / 64)?;
            left == right
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            *fuel = fuel.checked_sub(left.len().min(right.len()) as u64 / 64)?;
            left == right
        }
        (Value::List(left), Value::List(right)) => return lists_equal(left, right, fuel),
        (Value::Map(left), Value::Map(right)) => return maps_equal(left, right, fuel),
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        // Type parameters don't exist at run time: `type([1]) == type(['a'])` holds, as in cel-go.
        (Value::Type(left), Value::Type(right)) => left.runtime_name() == right.runtime_name(),
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(left)), Value::Optional(Some(right))) => {
            return equal_within(left, right, fuel);
        }
        (Value::Object(left), Value::Object(right)) => left.is_equal(&**right),
        // CEL has one line of numbers, on which `1`, `1u` and `1.0` are equal.
        (left, right) => compare_numbers(left, right) == Some(Ordering::Equal),
    })
}

fn lists_equal(left: &List<'_>, right: &List<'_>, fuel: &mut u64) -> Option<bool> {
    if left.len() != right.len() {
        return Some(false);
    }
    // One list of the pair may be a literal, which has no schema. The other one decides then.
    if let Some(schema) = left.unordered_schema().or(right.unordered_schema()) {
        return unordered_equal(schema, left, right, fuel);
    }
    for (left, right) in left.iter().zip(right.iter()) {
        if !equal_within(&left, &right, fuel)? {
            return Some(false);
        }
    }
    Some(true)
}

/// Compares lists of type `set` or `map`: every element of one has an equal element in the other.
fn unordered_equal(
    schema: &dyn JsonSchema,
    left: &List<'_>,
    right: &List<'_>,
    fuel: &mut u64,
) -> Option<bool> {
    // Quadratic, as upstream, so the fuel is what bounds it.
    for element in left.iter() {
        let mut found = false;
        for candidate in right.iter() {
            if is_same_element(schema, &element, &candidate, fuel)?
                && equal_within(&element, &candidate, fuel)?
            {
                found = true;
                break;
            }
        }
        if !found {
            return Some(false);
        }
    }
    Some(true)
}

/// Reports whether two elements of a list of type `set` or `map` stand for the same entry.
pub fn is_same_element(
    schema: &dyn JsonSchema,
    left: &Value<'_>,
    right: &Value<'_>,
    fuel: &mut u64,
) -> Option<bool> {
    if schema.form() != JsonForm::MapList {
        return equal_within(left, right, fuel);
    }
    let (Value::Map(left), Value::Map(right)) = (left, right) else {
        return Some(false);
    };
    for key in schema.list_keys() {
        // Fields with names that are no identifiers are visible in CEL under an escaped name only.
        let name = crate::escaping::escape(key).unwrap_or_default();
        *fuel = fuel.checked_sub(1)?;
        let same = match (left.get_field(&name), right.get_field(&name)) {
            (Some(left), Some(right)) => equal_within(&left, &right, fuel)?,
            (None, None) => true,
            _ => false,
        };
        if !same {
            return Some(false);
        }
    }
    Some(true)
}

fn maps_equal(left: &Map<'_>, right: &Map<'_>, fuel: &mut u64) -> Option<bool> {
    if left.len() != right.len() {
        return Some(false);
    }
    for (key, value) in left.iter() {
        let Some(other) = right.get_listed(&key) else {
            return Some(false);
        };
        if !equal_within(&value, &other, fuel)? {
            return Some(false);
        }
    }
    Some(true)
}

/// Compares two values of types that have an order; `None` for others and for NaN.
pub fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        // UTF-8 preserves the order of code points, which is the order that CEL demands.
        (Value::String(left), Value::String(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (Value::Duration(left), Value::Duration(right)) => Some(left.cmp(right)),
        (Value::Timestamp(left), Value::Timestamp(right)) => Some(left.cmp(right)),
        _ => compare_numbers(left, right),
    }
}

fn compare_numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(right)),
        // 128 bits hold both ranges, so no conversion can change the sign.
        (Value::Int(left), Value::Uint(right)) => Some(i128::from(*left).cmp(&(*right).into())),
        (Value::Uint(left), Value::Int(right)) => Some(i128::from(*left).cmp(&(*right).into())),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Double(left), other) => compare_double(*left, whole_number(other)?),
        (other, Value::Double(right)) => {
            compare_double(*right, whole_number(other)?).map(Ordering::reverse)
        }
        _ => None,
    }
}

fn whole_number(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(value) => Some((*value).into()),
        Value::Uint(value) => Some((*value).into()),
        _ => None,
    }
}

/// Compares as doubles: a whole number beyond 53 bits is rounded, as in cel-go.
fn compare_double(double: f64, whole: i128) -> Option<Ordering> {
    double.partial_cmp(&(whole as f64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn numbers_of_different_types_compare_by_value() {
        let cases = [
            (Value::Int(1), Value::Uint(1), Some(Ordering::Equal)),
            (Value::Int(-1), Value::Uint(u64::MAX), Some(Ordering::Less)),
            (Value::Double(1.5), Value::Int(1), Some(Ordering::Greater)),
            (
                Value::Int(i64::MAX),
                Value::Double(9.3e18),
                Some(Ordering::Less),
            ),
            (
                Value::Double(f64::INFINITY),
                Value::Uint(u64::MAX),
                Some(Ordering::Greater),
            ),
            (Value::Double(-0.5), Value::Int(0), Some(Ordering::Less)),
            (Value::Double(f64::NAN), Value::Int(0), None),
            (Value::string("a"), Value::Int(0), None),
        ];
        for (left, right, expected) in cases {
            assert_eq!(compare(&left, &right), expected, "{left:?} {right:?}");
            assert_eq!(compare(&right, &left), expected.map(Ordering::reverse));
        }
    }

    #[test]
    fn nan_equals_nothing() {
        assert!(!equal(&Value::Double(f64::NAN), &Value::Double(f64::NAN)));
    }

    #[test]
    fn lists_and_maps_compare_deeply() {
        let json: Vec<serde_json::Value> = [r#"[1, {"a": 2.0}]"#, r#"[1, {"a": 2}]"#, "[1, {}]"]
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        let value = |index: usize| Value::from_json(&json[index], None);
        assert!(equal(&value(0), &value(1)));
        assert!(!equal(&value(0), &value(2)));
    }

    #[test]
    fn comparison_ends_without_fuel() {
        let list = Value::list(vec![Value::Int(1); 100]);
        assert_eq!(equal_within(&list, &list, &mut 50), None);
        assert_eq!(equal_within(&list, &list, &mut 101), Some(true));
    }
}
