//! `+`, `-`, `*`, `/`, `%`, `!`, and the declarations of operators that the evaluator implements
//! itself.

use jiff::{SignedDuration, Timestamp};

use crate::cost::{
    CallEstimate, CallSite, Range, STRING_TRAVERSAL_FACTOR, actual_size, scale_cost,
};
use crate::error::EvalError;
use crate::format::in_range;
use crate::function::{Function, Overload};
use crate::types::Type;
use crate::value::Value;

type Eval<'v> = Result<Value<'v>, EvalError>;

const INT: EvalError = EvalError::Overflow("integer");
const UINT: EvalError = EvalError::Overflow("unsigned integer");
const TIMESTAMP: EvalError = EvalError::Overflow("timestamp");
/// Nanoseconds of the least duration.
const LEAST: i128 = i64::MIN as i128;

fn same(
    id: &'static str,
    operand: &Type,
    implementation: crate::function::Implementation,
) -> Overload {
    Overload::global(
        id,
        vec![operand.clone(); 2],
        operand.clone(),
        implementation,
    )
}

fn mixed(
    id: &'static str,
    left: Type,
    right: Type,
    result: Type,
    implementation: crate::function::Implementation,
) -> Overload {
    Overload::global(id, vec![left, right], result, implementation)
}

/// Declares the functions.
pub fn functions() -> Vec<Function> {
    let mut functions = declare_logic();
    functions.extend([
        declare_addition(),
        declare_subtraction(),
        declare_multiplication(),
        declare_division(),
        declare_modulo(),
        declare_negation(),
    ]);
    functions
}

/// Declares the conditional, the logical operators and both equalities.
fn declare_logic() -> Vec<Function> {
    // The checker needs these signatures. The evaluator implements the operators, because `&&`,
    // `||` and the conditional skip operands.
    let a = Type::param("A");
    let logical = |id| Overload::global(id, vec![Type::Bool; 2], Type::Bool, evaluator_only);
    let equality = |id| Overload::global(id, vec![Type::param("A"); 2], Type::Bool, evaluator_only);
    vec![
        Function::new(
            "_?_:_",
            vec![Overload::global(
                "conditional",
                vec![Type::Bool, a.clone(), a.clone()],
                a,
                evaluator_only,
            )],
        ),
        Function::new("_&&_", vec![logical("logical_and")]),
        Function::new("_||_", vec![logical("logical_or")]),
        Function::new(
            "!_",
            vec![Overload::global(
                "logical_not",
                vec![Type::Bool],
                Type::Bool,
                negate_bool,
            )],
        ),
        Function::new(
            crate::macros::NOT_STRICTLY_FALSE,
            vec![Overload::global(
                "not_strictly_false",
                vec![Type::Bool],
                Type::Bool,
                not_strictly_false,
            )],
        ),
        Function::new("_==_", vec![equality("equals")]),
        Function::new("_!=_", vec![equality("not_equals")]),
    ]
}

fn declare_addition() -> Function {
    let list = Type::list(Type::param("A"));
    Function::new(
        "_+_",
        vec![
            same("add_bytes", &Type::Bytes, add)
                .with_cost(concatenation_cost, estimate_concatenation),
            same("add_double", &Type::Double, add),
            same("add_duration_duration", &Type::Duration, add),
            mixed(
                "add_duration_timestamp",
                Type::Duration,
                Type::Timestamp,
                Type::Timestamp,
                add,
            ),
            mixed(
                "add_timestamp_duration",
                Type::Timestamp,
                Type::Duration,
                Type::Timestamp,
                add,
            ),
            same("add_int64", &Type::Int, add),
            // Without a cost of its own: cel-go assumes O(1), and lists are joined without a copy.
            same("add_list", &list, add),
            same("add_string", &Type::String, add)
                .with_cost(concatenation_cost, estimate_concatenation),
            same("add_uint64", &Type::Uint, add),
        ],
    )
}

fn declare_subtraction() -> Function {
    Function::new(
        "_-_",
        vec![
            same("subtract_double", &Type::Double, subtract),
            same("subtract_duration_duration", &Type::Duration, subtract),
            same("subtract_int64", &Type::Int, subtract),
            mixed(
                "subtract_timestamp_duration",
                Type::Timestamp,
                Type::Duration,
                Type::Timestamp,
                subtract,
            ),
            mixed(
                "subtract_timestamp_timestamp",
                Type::Timestamp,
                Type::Timestamp,
                Type::Duration,
                subtract,
            ),
            same("subtract_uint64", &Type::Uint, subtract),
        ],
    )
}

fn declare_multiplication() -> Function {
    Function::new(
        "_*_",
        vec![
            same("multiply_double", &Type::Double, multiply),
            same("multiply_int64", &Type::Int, multiply),
            same("multiply_uint64", &Type::Uint, multiply),
        ],
    )
}

fn declare_division() -> Function {
    Function::new(
        "_/_",
        vec![
            same("divide_double", &Type::Double, divide),
            same("divide_int64", &Type::Int, divide),
            same("divide_uint64", &Type::Uint, divide),
        ],
    )
}

fn declare_modulo() -> Function {
    Function::new(
        "_%_",
        // Doubles have no remainder in the language (cel-spec, arithmetic operators).
        vec![
            same("modulo_int64", &Type::Int, modulo),
            same("modulo_uint64", &Type::Uint, modulo),
        ],
    )
}

fn declare_negation() -> Function {
    Function::new(
        "-_",
        vec![
            // There is no negation of `uint`, because no result but zero would fit the type.
            Overload::global("negate_double", vec![Type::Double], Type::Double, negate),
            Overload::global("negate_int64", vec![Type::Int], Type::Int, negate),
        ],
    )
}

fn evaluator_only<'v>(_: &[Value<'v>]) -> Eval<'v> {
    Err(EvalError::NoSuchOverload)
}

fn negate_bool<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn not_strictly_false<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    // Only `false` ends the loop of `all`. The loop of `exists` negates its accumulator first.
    Ok(Value::Bool(!matches!(arguments, [Value::Bool(false)])))
}

/// Bounds a duration to 64 bits of nanoseconds, as Go's are.
fn duration<'v>(value: Option<SignedDuration>) -> Eval<'v> {
    value
        .filter(|value| i64::try_from(value.as_nanos()).is_ok())
        .map(Value::Duration)
        // cel-go calculates with the nanoseconds as integers, so this is an overflow of integers.
        .ok_or(INT)
}

fn timestamp<'v>(value: Result<Timestamp, jiff::Error>) -> Eval<'v> {
    value
        .ok()
        // jiff's range is wider than that of the language, the years 1 to 9999.
        .filter(|value| in_range(*value))
        .map(Value::Timestamp)
        .ok_or(TIMESTAMP)
}

fn add<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        // Overflow of whole numbers is an error in the language, and never wraps around.
        [Value::Int(left), Value::Int(right)] => {
            left.checked_add(*right).map(Value::Int).ok_or(INT)
        }
        [Value::Uint(left), Value::Uint(right)] => {
            left.checked_add(*right).map(Value::Uint).ok_or(UINT)
        }
        // Doubles follow IEEE 754, so an overflow is infinite and no error.
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left + right)),
        [Value::String(left), Value::String(right)] => {
            Ok(Value::string([&**left, &**right].concat()))
        }
        [Value::Bytes(left), Value::Bytes(right)] => {
            Ok(Value::Bytes([&**left, &**right].concat().into()))
        }
        [Value::List(left), Value::List(right)] => super::collections::join_lists(left, right),
        [Value::Duration(left), Value::Duration(right)] => duration(left.checked_add(*right)),
        [Value::Duration(length), Value::Timestamp(start)]
        | [Value::Timestamp(start), Value::Duration(length)] => {
            timestamp(start.checked_add(*length))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn subtract<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => {
            left.checked_sub(*right).map(Value::Int).ok_or(INT)
        }
        [Value::Uint(left), Value::Uint(right)] => {
            left.checked_sub(*right).map(Value::Uint).ok_or(UINT)
        }
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left - right)),
        [Value::Duration(left), Value::Duration(right)] => duration(left.checked_sub(*right)),
        // cel-go adds the negated duration, and the least one has no negation.
        [Value::Timestamp(_), Value::Duration(length)] if length.as_nanos() == LEAST => Err(INT),
        [Value::Timestamp(start), Value::Duration(length)] => timestamp(start.checked_sub(*length)),
        [Value::Timestamp(left), Value::Timestamp(right)] => {
            duration(Some(left.duration_since(*right)))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn multiply<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => {
            left.checked_mul(*right).map(Value::Int).ok_or(INT)
        }
        [Value::Uint(left), Value::Uint(right)] => {
            left.checked_mul(*right).map(Value::Uint).ok_or(UINT)
        }
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left * right)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn divide<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::DivisionByZero)
        }
        // Only the least number divided by -1 overflows.
        [Value::Int(left), Value::Int(right)] => {
            left.checked_div(*right).map(Value::Int).ok_or(INT)
        }
        [Value::Uint(left), Value::Uint(right)] => {
            left.checked_div(*right).map(Value::Uint).ok_or(UINT)
        }
        // Division of doubles by zero is infinite or NaN (IEEE 754), and no error.
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left / right)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn modulo<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::ModulusByZero)
        }
        // The least number and -1 overflow here too, as in cel-go.
        [Value::Int(left), Value::Int(right)] => {
            left.checked_rem(*right).map(Value::Int).ok_or(INT)
        }
        [Value::Uint(left), Value::Uint(right)] => {
            left.checked_rem(*right).map(Value::Uint).ok_or(UINT)
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn negate<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        // The least number has no positive counterpart.
        [Value::Int(value)] => value.checked_neg().map(Value::Int).ok_or(INT),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn concatenation_cost(arguments: &[Value<'_>], _: &Value<'_>) -> Option<u64> {
    // In the worst case both operands are copied to a new place, so both sizes count.
    let size = arguments
        .iter()
        .map(actual_size)
        .fold(0, u64::saturating_add);
    Some(scale_cost(size, STRING_TRAVERSAL_FACTOR))
}

fn estimate_concatenation(site: &CallSite) -> Option<CallEstimate> {
    let size = site
        .arguments
        .iter()
        .map(crate::cost::Argument::size)
        .fold(Range::ZERO, Range::add);
    Some(CallEstimate::sized(
        size.scale(STRING_TRAVERSAL_FACTOR),
        size,
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn overflow_of_times_names_the_type_that_cel_go_names() {
        let long = || Value::Duration(SignedDuration::from_nanos(i64::MAX));
        let least = || Value::Duration(SignedDuration::from_nanos(i64::MIN));
        let tick = || Value::Duration(SignedDuration::from_nanos(1));
        let time = |text: &str| Value::Timestamp(text.parse().unwrap());
        let (first, last) = (time("0001-01-01T00:00:00Z"), time("9999-12-30T00:00:00Z"));
        for (case, found, expect) in [
            ("long + tick", add(&[long(), tick()]), INT),
            ("least - tick", subtract(&[least(), tick()]), INT),
            ("tick - least", subtract(&[tick(), least()]), INT),
            (
                "last - first",
                subtract(&[last.clone(), first.clone()]),
                INT,
            ),
            // A duration is negated and added.
            ("first - least", subtract(&[first.clone(), least()]), INT),
            ("last + long", add(&[last, long()]), TIMESTAMP),
            ("first - long", subtract(&[first, long()]), TIMESTAMP),
        ] {
            assert_eq!(found.err(), Some(expect), "{case}");
        }
    }
}
