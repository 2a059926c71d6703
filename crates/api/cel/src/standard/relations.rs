//! `<`, `<=`, `>` and `>=`.

use std::cmp::Ordering;

use crate::compare::compare;
use crate::cost::{
    Argument, CallEstimate, CallSite, Range, STRING_TRAVERSAL_FACTOR, actual_size, scale_cost,
};
use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::types::Type;
use crate::value::Value;

type Eval<'v> = Result<Value<'v>, EvalError>;

/// The ids of the overloads of one operator, in the order of `operands`.
type Ids = [&'static str; 14];

const LESS: Ids = [
    "less_bool",
    "less_int64",
    "less_int64_double",
    "less_int64_uint64",
    "less_uint64",
    "less_uint64_double",
    "less_uint64_int64",
    "less_double",
    "less_double_int64",
    "less_double_uint64",
    "less_string",
    "less_bytes",
    "less_timestamp",
    "less_duration",
];
const LESS_EQUALS: Ids = [
    "less_equals_bool",
    "less_equals_int64",
    "less_equals_int64_double",
    "less_equals_int64_uint64",
    "less_equals_uint64",
    "less_equals_uint64_double",
    "less_equals_uint64_int64",
    "less_equals_double",
    "less_equals_double_int64",
    "less_equals_double_uint64",
    "less_equals_string",
    "less_equals_bytes",
    "less_equals_timestamp",
    "less_equals_duration",
];
const GREATER: Ids = [
    "greater_bool",
    "greater_int64",
    "greater_int64_double",
    "greater_int64_uint64",
    "greater_uint64",
    "greater_uint64_double",
    "greater_uint64_int64",
    "greater_double",
    "greater_double_int64",
    "greater_double_uint64",
    "greater_string",
    "greater_bytes",
    "greater_timestamp",
    "greater_duration",
];
const GREATER_EQUALS: Ids = [
    "greater_equals_bool",
    "greater_equals_int64",
    "greater_equals_int64_double",
    "greater_equals_int64_uint64",
    "greater_equals_uint64",
    "greater_equals_uint64_double",
    "greater_equals_uint64_int64",
    "greater_equals_double",
    "greater_equals_double_int64",
    "greater_equals_double_uint64",
    "greater_equals_string",
    "greater_equals_bytes",
    "greater_equals_timestamp",
    "greater_equals_duration",
];

fn operands() -> [(Type, Type); 14] {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    // Numbers of different types compare since Kubernetes 1.28, which all environments here
    // include.
    [
        (Bool, Bool),
        (Int, Int),
        (Int, Double),
        (Int, Uint),
        (Uint, Uint),
        (Uint, Double),
        (Uint, Int),
        (Double, Double),
        (Double, Int),
        (Double, Uint),
        (String, String),
        (Bytes, Bytes),
        (Timestamp, Timestamp),
        (Duration, Duration),
    ]
}

/// Declares the functions.
pub fn functions() -> Vec<Function> {
    let declare = |name, ids: Ids, implementation: Implementation| {
        let overloads = ids.into_iter().zip(operands()).map(|(id, (left, right))| {
            // cel-go charges for the length of strings and bytes only. All other comparisons cost
            // 1.
            let traverses = matches!(left, Type::String | Type::Bytes);
            let overload = Overload::global(id, vec![left, right], Type::Bool, implementation);
            match traverses {
                true => overload.with_cost(comparison_cost, estimate_comparison),
                false => overload,
            }
        });
        Function::new(name, overloads.collect())
    };
    vec![
        declare("_<_", LESS, |arguments| test(arguments, Ordering::is_lt)),
        declare("_<=_", LESS_EQUALS, |arguments| {
            test(arguments, Ordering::is_le)
        }),
        declare("_>_", GREATER, |arguments| test(arguments, Ordering::is_gt)),
        declare("_>=_", GREATER_EQUALS, |arguments| {
            test(arguments, Ordering::is_ge)
        }),
    ]
}

fn test<'v>(arguments: &[Value<'v>], holds: fn(Ordering) -> bool) -> Eval<'v> {
    match arguments {
        // cel-go rejects NaN here, whereas `==` with NaN is false.
        [Value::Double(value), _] | [_, Value::Double(value)] if value.is_nan() => {
            Err(EvalError::message("NaN values cannot be ordered"))
        }
        [left, right] => compare(left, right)
            .map(|order| Value::Bool(holds(order)))
            .ok_or(EvalError::NoSuchOverload),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn comparison_cost(arguments: &[Value<'_>], _: &Value<'_>) -> Option<u64> {
    // A comparison ends at the end of the shorter operand.
    let size = arguments.iter().map(actual_size).min().unwrap_or(1);
    Some(scale_cost(size, STRING_TRAVERSAL_FACTOR))
}

/// Estimates the cost of comparing two values up to the end of the shorter.
pub fn estimate_comparison(site: &CallSite) -> Option<CallEstimate> {
    let max = site
        .arguments
        .iter()
        .map(|argument| Argument::size(argument).max)
        .min()?;
    // The least size is 1, unless an operand is always empty.
    let range = Range::new(u64::from(max > 0), max);
    Some(CallEstimate::new(range.scale(STRING_TRAVERSAL_FACTOR)))
}
