//! Library of Kubernetes for lists: order, sums and positions.

use std::cmp::Ordering;

use jiff::SignedDuration;

use crate::compare::{compare, equal_within};
use crate::cost::{Argument, CallEstimate, CallSite, Range, STRING_TRAVERSAL_FACTOR};
use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{List, Value};

/// Comparisons of values inside values that one call may need. 20 million take about a second.
const MAX_COMPARISONS: u64 = 20_000_000;

/// Returns the library.
pub fn library() -> Library {
    let with_cost = |overload: Overload| overload.with_cost(list_cost, estimate_list);
    let one = |id, element: Type, result, run: Implementation| {
        with_cost(Overload::receiver(
            id,
            vec![Type::list(element)],
            result,
            run,
        ))
    };
    let is_sorted =
        COMPARABLE.map(|(id, _, _, element)| one(id, element.clone(), Type::Bool, is_sorted));
    let max = COMPARABLE.map(|(_, id, _, element)| one(id, element.clone(), element, max));
    let min = COMPARABLE.map(|(_, _, id, element)| one(id, element.clone(), element, min));
    let sum = |id, element: Type, run| one(id, element.clone(), element, run);
    let sum = vec![
        sum("list_int_sum_int", Type::Int, sum_int as _),
        sum("list_uint_sum_uint", Type::Uint, sum_uint),
        sum("list_double_sum_double", Type::Double, sum_double),
        sum("list_duration_sum_duration", Type::Duration, sum_duration),
    ];
    let position = |id, run: Implementation| {
        let element = Type::param("A");
        // The parameter ties the element to the list, so a search for another type fails when the
        // rule is compiled.
        let arguments = vec![Type::list(element.clone()), element];
        vec![with_cost(Overload::receiver(id, arguments, Type::Int, run))]
    };
    Library {
        name: "kubernetes.lists",
        functions: vec![
            Function::new("isSorted", is_sorted.into()),
            Function::new("sum", sum),
            Function::new("max", max.into()),
            Function::new("min", min.into()),
            Function::new("indexOf", position("list_a_index_of_int", index_of)),
            Function::new(
                "lastIndexOf",
                position("list_a_last_index_of_int", last_index_of),
            ),
        ],
        ..Library::default()
    }
}

/// Types that have an order, with the ids of `isSorted`, `max` and `min`.
const COMPARABLE: [(&str, &str, &str, Type); 8] = [
    (
        "list_int_is_sorted_bool",
        "list_int_max_int",
        "list_int_min_int",
        Type::Int,
    ),
    (
        "list_uint_is_sorted_bool",
        "list_uint_max_uint",
        "list_uint_min_uint",
        Type::Uint,
    ),
    (
        "list_double_is_sorted_bool",
        "list_double_max_double",
        "list_double_min_double",
        Type::Double,
    ),
    (
        "list_bool_is_sorted_bool",
        "list_bool_max_bool",
        "list_bool_min_bool",
        Type::Bool,
    ),
    (
        "list_duration_is_sorted_bool",
        "list_duration_max_duration",
        "list_duration_min_duration",
        Type::Duration,
    ),
    (
        "list_timestamp_is_sorted_bool",
        "list_timestamp_max_timestamp",
        "list_timestamp_min_timestamp",
        Type::Timestamp,
    ),
    (
        "list_string_is_sorted_bool",
        "list_string_max_string",
        "list_string_min_string",
        Type::String,
    ),
    (
        "list_bytes_is_sorted_bool",
        "list_bytes_max_bytes",
        "list_bytes_min_bytes",
        Type::Bytes,
    ),
];

fn take_list<'a, 'v>(values: &'a [Value<'v>]) -> Result<&'a List<'v>, EvalError> {
    match values.first() {
        Some(Value::List(list)) => Ok(list),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn check_comparable(value: &Value<'_>) -> Result<(), EvalError> {
    match value {
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Timestamp(_) => Ok(()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_sorted<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let mut previous: Option<Value<'v>> = None;
    for element in take_list(values)?.iter() {
        check_comparable(&element)?;
        // Elements that have no order among each other count as sorted.
        if previous.is_some_and(|previous| compare(&previous, &element) == Some(Ordering::Greater))
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(element);
    }
    Ok(Value::Bool(true))
}

/// Returns the element that is on the wanted side of all before it.
fn select<'v>(values: &[Value<'v>], name: &str, side: Ordering) -> Result<Value<'v>, EvalError> {
    let mut best: Option<Value<'v>> = None;
    for element in take_list(values)?.iter() {
        check_comparable(&element)?;
        let replaces = best
            .as_ref()
            .is_none_or(|best| compare(&element, best) == Some(side));
        if replaces {
            best = Some(element);
        }
    }
    // No value would be right for an empty list, so upstream has an error and rules ask for the
    // size first.
    best.ok_or_else(|| EvalError::message(format!("{name} called on empty list")))
}

fn max<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    select(values, "max", Ordering::Greater)
}

fn min<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    select(values, "min", Ordering::Less)
}

fn fold<'v, T>(
    values: &[Value<'v>],
    zero: T,
    add: fn(T, &Value<'v>) -> Result<T, EvalError>,
) -> Result<T, EvalError> {
    take_list(values)?
        .iter()
        .try_fold(zero, |sum, element| add(sum, &element))
}

fn sum_int<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    fold(values, 0_i64, |sum, element| match element {
        // Overflow is an error and never wraps, so that a rule can't be satisfied by a huge number.
        Value::Int(number) => sum
            .checked_add(*number)
            .ok_or(EvalError::Overflow("integer")),
        _ => Err(EvalError::NoSuchOverload),
    })
    .map(Value::Int)
}

fn sum_uint<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    fold(values, 0_u64, |sum, element| match element {
        Value::Uint(number) => sum
            .checked_add(*number)
            .ok_or(EvalError::Overflow("unsigned integer")),
        _ => Err(EvalError::NoSuchOverload),
    })
    .map(Value::Uint)
}

fn sum_double<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    fold(values, 0_f64, |sum, element| match element {
        Value::Double(number) => Ok(sum + number),
        _ => Err(EvalError::NoSuchOverload),
    })
    .map(Value::Double)
}

fn sum_duration<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    fold(values, SignedDuration::ZERO, |sum, element| match element {
        // Upstream adds the nanoseconds as integers, so this is the overflow of integers.
        Value::Duration(duration) => sum
            .checked_add(*duration)
            .filter(|sum| i64::try_from(sum.as_nanos()).is_ok())
            .ok_or(EvalError::Overflow("integer")),
        _ => Err(EvalError::NoSuchOverload),
    })
    .map(Value::Duration)
}

/// Returns the first of the indices at which the list has the element, or -1.
fn find_position<'v>(
    values: &[Value<'v>],
    indices: impl Iterator<Item = usize>,
) -> Result<Value<'v>, EvalError> {
    let [Value::List(list), wanted] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    // The cost counts texts and elements, but nested values are compared again for each position.
    let mut fuel = MAX_COMPARISONS;
    for index in indices {
        let Some(element) = list.get(index) else {
            continue;
        };
        if equal_within(&element, wanted, &mut fuel).ok_or(EvalError::CostLimitExceeded)? {
            return Ok(Value::Int(i64::try_from(index).unwrap_or(i64::MAX)));
        }
    }
    Ok(Value::Int(-1))
}

fn index_of<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    find_position(values, 0..take_list(values)?.len())
}

fn last_index_of<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    find_position(values, (0..take_list(values)?.len()).rev())
}

/// Values inside a value that have no cost of their own beyond that of their texts.
const FREE_VALUES: u64 = 1_024;

/// Cost and number of the values inside a value.
#[derive(Default)]
struct Traversal {
    cost: u64,
    values: u64,
}

impl Traversal {
    /// Adds a value. Values nest no deeper than an object or an expression.
    fn add(&mut self, value: &Value<'_>) {
        // Rounded down, unlike all other costs of strings.
        let text = |bytes: usize| (bytes as f64 * STRING_TRAVERSAL_FACTOR) as u64;
        self.values += 1;
        self.cost += match value {
            Value::String(value) => text(value.len()),
            Value::Bytes(value) => text(value.len()),
            Value::List(list) => {
                list.iter().for_each(|element| self.add(&element));
                0
            }
            Value::Map(map) => {
                for (key, value) in map.iter() {
                    self.add(&key.to_value());
                    self.add(&value);
                }
                0
            }
            _ => 1,
        };
    }
}

/// Returns the cost of one traversal of a value with everything inside it. Short texts and empty
/// lists cost nothing upstream; many of them cost a tenth each.
pub(crate) fn traversal_cost(value: &Value<'_>) -> u64 {
    let mut traversal = Traversal::default();
    traversal.add(value);
    traversal
        .cost
        .max(traversal.values.saturating_sub(FREE_VALUES) / 10)
}

/// Returns the cost of `indexOf` and the other functions of this library, also on strings.
pub(crate) fn list_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    Some(values.first().map_or(0, traversal_cost))
}

/// Estimates the cost of `indexOf` and the other functions of this library, also on strings.
pub(crate) fn estimate_list(site: &CallSite) -> Option<CallEstimate> {
    let target = site.target.as_ref()?;
    // The element's size counts for texts only, whose comparison may read all of it.
    let cost = match target.element_type() {
        Some(Type::String | Type::Bytes) => per_element(target),
        Some(_) => target.size(),
        None => target.size().scale(STRING_TRAVERSAL_FACTOR),
    };
    Some(CallEstimate::new(cost))
}

fn per_element(target: &Argument) -> Range {
    let element = target.element_size().scale(STRING_TRAVERSAL_FACTOR);
    target.size().multiply(Range::fixed(1).add(element))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn list(values: Vec<Value<'static>>) -> Value<'static> {
        Value::list(values)
    }

    #[test]
    fn sums_do_not_wrap_around() {
        let overflow = |run: Implementation, values| run(&[list(values)]).err();
        assert_eq!(
            overflow(sum_int, vec![Value::Int(i64::MAX), Value::Int(1)]),
            Some(EvalError::Overflow("integer"))
        );
        assert_eq!(
            overflow(sum_uint, vec![Value::Uint(u64::MAX), Value::Uint(1)]),
            Some(EvalError::Overflow("unsigned integer"))
        );
        let long = || Value::Duration(SignedDuration::from_nanos(i64::MAX));
        assert!(overflow(sum_duration, vec![long(), long()]).is_some());
    }

    #[test]
    fn elements_without_an_order_keep_their_place() {
        let mixed = list(vec![Value::Int(2), Value::string("a")]);
        assert!(matches!(
            is_sorted(std::slice::from_ref(&mixed)).unwrap(),
            Value::Bool(true)
        ));
        assert!(matches!(max(&[mixed]).unwrap(), Value::Int(2)));
        assert!(max(&[list(vec![Value::Null])]).is_err());
        assert!(min(&[list(Vec::new())]).is_err());
    }

    #[test]
    fn many_empty_values_are_charged() {
        let empty = |count| list(vec![Value::string(""); count]);
        assert_eq!(traversal_cost(&empty(1_000)), 0);
        assert_eq!(traversal_cost(&empty(11_023)), 1_000);
        assert_eq!(traversal_cost(&list(vec![Value::Int(1); 2_000])), 2_000);
    }

    #[test]
    fn position_is_the_first_or_the_last() {
        let letters = || list(["a", "b", "b"].map(Value::string).to_vec());
        let at = |run: Implementation, text: &str| match run(&[letters(), Value::string(text)]) {
            Ok(Value::Int(position)) => position,
            other => panic!("{other:?}"),
        };
        assert_eq!((at(index_of, "b"), at(last_index_of, "b")), (1, 2));
        assert_eq!((at(index_of, "c"), at(last_index_of, "c")), (-1, -1));
    }
}
