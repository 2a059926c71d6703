//! Conversions between types.

use jiff::{SignedDuration, Timestamp};

use super::numbers::{format_double, parse_bool, parse_double};
use crate::cost::{
    CallEstimate, CallSite, Range, STRING_TRAVERSAL_FACTOR, actual_size, scale_cost,
};
use crate::error::EvalError;
use crate::format::{in_range, parse_duration, parse_timestamp};
use crate::function::{Function, Implementation, Overload};
use crate::types::Type;
use crate::value::Value;

type Eval<'v> = Result<Value<'v>, EvalError>;

// The greatest `i64` and `u64` are no doubles, but the powers of two above them are.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// Declares the functions.
pub fn functions() -> Vec<Function> {
    let mut functions = declare_type_functions();
    functions.extend(declare_numbers());
    functions.extend(declare_texts());
    functions.extend(declare_times());
    functions
}

/// Declares the conversions of a function, one overload per type that it accepts.
fn declare(
    name: &'static str,
    result: Type,
    from: &[(&'static str, Type)],
    convert: Implementation,
) -> Function {
    let overloads = from.iter().map(|(id, argument)| {
        let overload = Overload::global(id, vec![argument.clone()], result.clone(), convert);
        // Only these two read a whole text in cel-go's cost table. All other conversions cost 1.
        match *id {
            "string_to_bytes" => overload.with_cost(traversal_cost, estimate_to_bytes),
            "bytes_to_string" => overload.with_cost(traversal_cost, estimate_to_string),
            _ => overload,
        }
    });
    Function::new(name, overloads.collect())
}

/// Declares `type` and `dyn`, which accept every type.
fn declare_type_functions() -> Vec<Function> {
    let any = Type::param("A");
    let type_of_any = Type::type_of(any.clone());
    vec![
        declare("type", type_of_any, &[("type", any.clone())], find_type),
        declare("dyn", Type::Dyn, &[("to_dyn", any)], keep),
    ]
}

/// Declares the conversions to numbers and to `bool`.
fn declare_numbers() -> Vec<Function> {
    use Type::{Bool, Double, Duration, Int, String, Timestamp, Uint};
    vec![
        declare(
            "bool",
            Bool,
            &[("bool_to_bool", Bool), ("string_to_bool", String)],
            to_bool,
        ),
        declare(
            "double",
            Double,
            &[
                ("double_to_double", Double),
                ("int64_to_double", Int),
                ("string_to_double", String),
                ("uint64_to_double", Uint),
            ],
            to_double,
        ),
        declare(
            "int",
            Int,
            &[
                ("int64_to_int64", Int),
                ("double_to_int64", Double),
                ("duration_to_int64", Duration),
                ("string_to_int64", String),
                ("timestamp_to_int64", Timestamp),
                ("uint64_to_int64", Uint),
            ],
            to_int,
        ),
        declare(
            "uint",
            Uint,
            &[
                ("uint64_to_uint64", Uint),
                ("double_to_uint64", Double),
                ("int64_to_uint64", Int),
                ("string_to_uint64", String),
            ],
            to_uint,
        ),
    ]
}

/// Declares the conversions to `string` and `bytes`.
fn declare_texts() -> Vec<Function> {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    vec![
        declare(
            "bytes",
            Bytes,
            &[("bytes_to_bytes", Bytes), ("string_to_bytes", String)],
            to_bytes,
        ),
        declare(
            "string",
            String,
            &[
                ("string_to_string", String),
                ("bool_to_string", Bool),
                ("bytes_to_string", Bytes),
                ("double_to_string", Double),
                ("duration_to_string", Duration),
                ("int64_to_string", Int),
                ("timestamp_to_string", Timestamp),
                ("uint64_to_string", Uint),
            ],
            to_string,
        ),
    ]
}

/// Declares the conversions to `duration` and `timestamp`.
fn declare_times() -> Vec<Function> {
    use Type::{Duration, Int, String, Timestamp};
    vec![
        declare(
            "duration",
            Duration,
            &[
                ("duration_to_duration", Duration),
                ("int64_to_duration", Int),
                ("string_to_duration", String),
            ],
            to_duration,
        ),
        declare(
            "timestamp",
            Timestamp,
            &[
                ("timestamp_to_timestamp", Timestamp),
                ("int64_to_timestamp", Int),
                ("string_to_timestamp", String),
            ],
            to_timestamp,
        ),
    ]
}

fn single<'a, 'v>(arguments: &'a [Value<'v>]) -> Result<&'a Value<'v>, EvalError> {
    arguments.first().ok_or(EvalError::NoSuchOverload)
}

fn fail<'v>(value: &Value<'v>, to: &str) -> EvalError {
    let found = value.type_of();
    let from = found.runtime_name();
    EvalError::message(format!("type conversion error from '{from}' to '{to}'"))
}

fn keep<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    single(arguments).cloned()
}

fn find_type<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    Ok(Value::Type(single(arguments)?.type_of()))
}

fn to_bool<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match single(arguments)? {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        value @ Value::String(text) => parse_bool(text)
            .map(Value::Bool)
            .ok_or_else(|| fail(value, "bool")),
        other => Err(fail(other, "bool")),
    }
}

fn to_bytes<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match single(arguments)? {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        other => Err(fail(other, "bytes")),
    }
}

fn to_double<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match single(arguments)? {
        Value::Double(value) => Ok(Value::Double(*value)),
        // Beyond 53 bits the nearest double is taken, as in Go.
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        value @ Value::String(text) => parse_double(text)
            .map(Value::Double)
            .ok_or_else(|| fail(value, "double")),
        other => Err(fail(other, "double")),
    }
}

fn to_int<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    let overflow = EvalError::Overflow("integer");
    match single(arguments)? {
        Value::Int(value) => Ok(Value::Int(*value)),
        Value::Uint(value) => i64::try_from(*value).map(Value::Int).map_err(|_| overflow),
        // -2^63 itself would fit, but cel-go's check excludes both ends.
        Value::Double(value) if *value > -TWO_TO_63 && *value < TWO_TO_63 => {
            Ok(Value::Int(*value as i64))
        }
        // NaN and the infinities fail both comparisons above.
        Value::Double(_) => Err(overflow),
        Value::Duration(length) => i64::try_from(length.as_nanos())
            .map(Value::Int)
            .map_err(|_| overflow),
        Value::Timestamp(time) => Ok(Value::Int(floor_seconds(*time))),
        value @ Value::String(text) => text.parse().map(Value::Int).map_err(|_| fail(value, "int")),
        other => Err(fail(other, "int")),
    }
}

/// Returns the whole seconds since 1970, rounded down.
fn floor_seconds(time: Timestamp) -> i64 {
    time.as_second() - i64::from(time.subsec_nanosecond() < 0)
}

fn to_uint<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    let overflow = EvalError::Overflow("unsigned integer");
    match single(arguments)? {
        Value::Uint(value) => Ok(Value::Uint(*value)),
        Value::Int(value) => u64::try_from(*value).map(Value::Uint).map_err(|_| overflow),
        // NaN fails the comparisons, and 2^64 is the first number that does not fit.
        Value::Double(value) if *value >= 0.0 && *value < TWO_TO_64 => {
            Ok(Value::Uint(*value as u64))
        }
        Value::Double(_) => Err(overflow),
        // Rust accepts a plus sign before an unsigned number, Go's `ParseUint` does not.
        value @ Value::String(text) if !text.starts_with('+') => text
            .parse()
            .map(Value::Uint)
            .map_err(|_| fail(value, "uint")),
        other => Err(fail(other, "uint")),
    }
}

fn to_duration<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    let name = "google.protobuf.Duration";
    match single(arguments)? {
        Value::Duration(length) => Ok(Value::Duration(*length)),
        // The unit is the nanosecond, that of Go's `time.Duration`.
        Value::Int(nanos) => Ok(Value::Duration(SignedDuration::from_nanos(*nanos))),
        value @ Value::String(text) => parse_duration(text)
            .map(Value::Duration)
            .ok_or_else(|| fail(value, name)),
        other => Err(fail(other, name)),
    }
}

fn to_timestamp<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    let name = "google.protobuf.Timestamp";
    match single(arguments)? {
        Value::Timestamp(time) => Ok(Value::Timestamp(*time)),
        // The unit is the second, unlike that of a duration.
        Value::Int(seconds) => Timestamp::from_second(*seconds)
            .ok()
            .filter(|time| in_range(*time))
            .map(Value::Timestamp)
            .ok_or(EvalError::Overflow("timestamp")),
        value @ Value::String(text) => parse_timestamp(text)
            .map(Value::Timestamp)
            .ok_or_else(|| fail(value, name)),
        other => Err(fail(other, name)),
    }
}

fn to_string<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    Ok(Value::string(match single(arguments)? {
        value @ Value::String(_) => return Ok(value.clone()),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => format_double(*value),
        // As in cel-go, invalid UTF-8 is an error and is not replaced.
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                let message = "invalid UTF-8 in bytes, cannot convert to string";
                return Err(EvalError::message(message));
            }
        },
        // Rust writes floats without an exponent, as Go's format `f` that cel-go uses here.
        Value::Duration(length) => format!("{}s", length.as_secs_f64()),
        Value::Timestamp(time) => time.to_string(),
        other => return Err(fail(other, "string")),
    }))
}

fn traversal_cost(arguments: &[Value<'_>], _: &Value<'_>) -> Option<u64> {
    Some(scale_cost(
        actual_size(arguments.first()?),
        STRING_TRAVERSAL_FACTOR,
    ))
}

/// A character takes at most 4 bytes.
fn estimate_to_bytes(site: &CallSite) -> Option<CallEstimate> {
    let size = site.arguments.first()?.size();
    let result = Range::new(size.min, size.max.saturating_mul(4));
    Some(CallEstimate::sized(
        size.scale(STRING_TRAVERSAL_FACTOR),
        result,
    ))
}

fn estimate_to_string(site: &CallSite) -> Option<CallEstimate> {
    let size = site.arguments.first()?.size();
    // A character takes 1 to 4 bytes, so at least a quarter of the bytes start one.
    let result = Range::new(size.min / 4, size.max);
    Some(CallEstimate::sized(
        size.scale(STRING_TRAVERSAL_FACTOR),
        result,
    ))
}
