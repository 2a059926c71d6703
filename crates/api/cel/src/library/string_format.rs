//! `string.format` of cel-go, versions 1 to 3: the clauses `%s %d %f %e %b %x %X %o`, the check of
//! literal formats, and the cost.
//!
//! Numbers of `%f` and `%e` have the form of the American English locale, as upstream has them.

use std::fmt::Write as _;

use crate::ast::ExprId;
use crate::cost::{CallEstimate, CallSite, STRING_TRAVERSAL_FACTOR, actual_size, scale_cost};
use crate::error::EvalError;
use crate::types::Type;
use crate::value::{Key, List, Map, Value};

use super::costs::{check_text, growth_cost, target_size};
use super::error::Error;
use super::number_text::{format_exponent, format_fixed, format_shortest};
use super::quote::{quote, quote_bytes};

/// Values inside values that a format shows. Expressions and objects nest less deep.
const MAX_DEPTH: usize = 256;
/// Precision that upstream understands.
const MAX_PRECISION: usize = 32_767;

/// A clause of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clause {
    Text,
    Decimal,
    Fixed(Option<usize>),
    Exponent(Option<usize>),
    Binary,
    Hexadecimal { upper: bool },
    Octal,
}

/// An argument of a literal format whose clauses are checked before any evaluation.
#[derive(Debug, Clone)]
pub struct FormatArgument {
    /// The expression, for the position of an error.
    pub id: ExprId,
    /// The type of the expression.
    pub result_type: Type,
    /// Elements of a list literal; keys and values of a map literal.
    pub children: Vec<FormatArgument>,
}

/// An error of a literal format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatProblem {
    /// The argument that is wrong; the call if it is none.
    pub id: Option<ExprId>,
    /// The message.
    pub message: String,
}

/// Parts of a format in their order.
enum Piece<'a> {
    Literal(&'a str),
    Clause(Clause),
}

impl Clause {
    /// Returns whether a value of the type can be shown.
    fn admits(self, shown: &Type) -> bool {
        let shown = match shown {
            Type::Nullable(inner) => inner,
            other => other,
        };
        // A dynamic argument is checked when its value is known.
        if matches!(shown, Type::Dyn | Type::Error) {
            return true;
        }
        match self {
            Clause::Text => !matches!(shown, Type::Opaque(..) | Type::Struct(_) | Type::Param(_)),
            Clause::Decimal | Clause::Octal => matches!(shown, Type::Int | Type::Uint),
            // The names of infinity and NaN are texts.
            Clause::Fixed(_) | Clause::Exponent(_) => matches!(shown, Type::Double | Type::String),
            Clause::Binary => matches!(shown, Type::Int | Type::Uint | Type::Bool),
            Clause::Hexadecimal { .. } => {
                matches!(shown, Type::Int | Type::Uint | Type::String | Type::Bytes)
            }
        }
    }

    fn reject(self, shown: &Type) -> Error {
        let rule = match self {
            Clause::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
                 lists, types, durations, and timestamps"
            }
            Clause::Decimal => "decimal clause can only be used on integers",
            Clause::Fixed(_) => "fixed-point clause can only be used on doubles",
            Clause::Exponent(_) => "scientific clause can only be used on doubles",
            Clause::Binary => "only integers and bools can be formatted as binary",
            Clause::Hexadecimal { .. } => {
                "only integers, byte buffers, and strings can be formatted as hex"
            }
            Clause::Octal => "octal clause can only be used on integers",
        };
        Error(format!("{rule}, was given {}", shown.runtime_name()))
    }
}

/// Reads a format and hands its parts over until one is rejected. `count` is the number of
/// arguments. Errors have the order of upstream: a missing argument before a bad clause.
fn read_format(
    format: &str,
    count: usize,
    take: &mut dyn FnMut(Piece<'_>, usize) -> Result<(), Error>,
) -> Result<usize, Error> {
    let mut rest = format;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        let (literal, clause) = rest.split_at_checked(at).unwrap_or((rest, ""));
        take(Piece::Literal(literal), index)?;
        let clause = clause.get(1..).unwrap_or_default();
        // `%%` is a percent sign and takes no argument.
        if let Some(tail) = clause.strip_prefix('%') {
            take(Piece::Literal("%"), index)?;
            rest = tail;
            continue;
        }
        if index >= count {
            return Err(Error(format!("index {index} out of range")));
        }
        if clause.is_empty() {
            return Err(Error::new("unexpected end of string"));
        }
        let (clause, tail) = parse_clause(clause)
            .map_err(|error| Error(format!("could not parse formatting clause: {error}")))?;
        take(Piece::Clause(clause), index)?;
        index += 1;
        rest = tail;
    }
    take(Piece::Literal(rest), index)?;
    Ok(index)
}

fn parse_clause(text: &str) -> Result<(Clause, &str), Error> {
    let (precision, rest) = parse_precision(text)
        .map_err(|error| Error(format!("error while parsing precision: {error}")))?;
    let clause = match rest.bytes().next() {
        Some(b's') => Clause::Text,
        Some(b'd') => Clause::Decimal,
        Some(b'f') => Clause::Fixed(precision),
        Some(b'e') => Clause::Exponent(precision),
        Some(b'b') => Clause::Binary,
        Some(b'x') => Clause::Hexadecimal { upper: false },
        Some(b'X') => Clause::Hexadecimal { upper: true },
        Some(b'o') => Clause::Octal,
        // Upstream reads the format byte by byte.
        other => {
            let shown = char::from(other.unwrap_or_default());
            return Err(Error(format!("unrecognized formatting clause \"{shown}\"")));
        }
    };
    Ok((clause, rest.get(1..).unwrap_or_default()))
}

fn parse_precision(text: &str) -> Result<(Option<usize>, &str), Error> {
    let Some(text) = text.strip_prefix('.') else {
        return Ok((None, text));
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .ok_or_else(|| Error::new("could not find end of precision specifier"))?;
    let (digits, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    let fail = |reason: &str| {
        Err(Error(format!(
            "error while converting precision to integer: strconv.Atoi: parsing {}: {reason}",
            quote(digits)
        )))
    };
    if digits.is_empty() {
        return fail("invalid syntax");
    }
    match digits.parse::<usize>() {
        Ok(precision) if precision <= MAX_PRECISION => Ok((Some(precision), rest)),
        _ => fail("value out of range"),
    }
}

/// Checks a literal format against the arguments of a list literal.
pub fn check_format(format: &str, arguments: &[FormatArgument]) -> Result<(), FormatProblem> {
    let mut wrong = None;
    let result = read_format(format, arguments.len(), &mut |piece, index| {
        if let (Piece::Clause(clause), Some(argument)) = (piece, arguments.get(index)) {
            let found = find_rejected(clause, argument);
            if let Some(found) = found {
                wrong = Some(found.id);
                let error = clause.reject(&found.result_type);
                return Err(Error(format!("error during formatting: {error}")));
            }
        }
        Ok(())
    });
    match result {
        Err(error) => Err(FormatProblem {
            id: wrong,
            message: error.0,
        }),
        Ok(used) if used < arguments.len() => Err(FormatProblem {
            id: None,
            message: format!(
                "too many arguments supplied to string.format (expected {used}, got {})",
                arguments.len()
            ),
        }),
        Ok(_) => Ok(()),
    }
}

/// Returns the argument or the part of it that a clause cannot show. Literals nest no deeper than
/// the parser allows.
fn find_rejected(clause: Clause, argument: &FormatArgument) -> Option<&FormatArgument> {
    if !clause.admits(&argument.result_type) {
        return Some(argument);
    }
    // Only `%s` shows a list or map, and with it the values inside.
    if clause != Clause::Text {
        return None;
    }
    argument
        .children
        .iter()
        .find_map(|child| find_rejected(clause, child))
}

/// Formats the arguments.
pub(crate) fn format_values(format: &str, arguments: &List<'_>) -> Result<String, EvalError> {
    let mut text = String::new();
    let mut is_too_long = false;
    let result = read_format(format, arguments.len(), &mut |piece, index| {
        match piece {
            Piece::Literal(literal) => text.push_str(literal),
            Piece::Clause(clause) => {
                let argument = arguments.get(index).unwrap_or(Value::Null);
                format_argument(&mut text, clause, &argument)
                    .map_err(|error| Error(format!("error during formatting: {error}")))?;
            }
        }
        // Later clauses can only lengthen the text, so formatting ends here.
        is_too_long = check_text(text.len()).is_err();
        if is_too_long {
            Err(Error::new("too long"))
        } else {
            Ok(())
        }
    });
    match result {
        _ if is_too_long => Err(EvalError::CostLimitExceeded),
        Ok(_) => Ok(text),
        Err(error) => Err(EvalError::message(error.0)),
    }
}

fn format_argument(text: &mut String, clause: Clause, value: &Value<'_>) -> Result<(), Error> {
    let rejected = || Err(clause.reject(&value.type_of()));
    match (clause, value) {
        (Clause::Text, _) => return format_text(text, value),
        (Clause::Decimal, Value::Int(number)) => push(text, format_args!("{number}")),
        (Clause::Decimal, Value::Uint(number)) => push(text, format_args!("{number}")),
        (Clause::Fixed(precision), _) => match read_double(value) {
            Some(number) => text.push_str(&format_fixed(number, precision)),
            None => return rejected(),
        },
        (Clause::Exponent(width), _) => match read_double(value) {
            Some(number) => text.push_str(&format_exponent(number, width)),
            None => return rejected(),
        },
        (Clause::Binary, Value::Bool(flag)) => push(text, format_args!("{}", u8::from(*flag))),
        (Clause::Hexadecimal { upper }, Value::String(bytes)) => {
            push_hexadecimal(text, bytes.as_bytes(), upper);
        }
        (Clause::Hexadecimal { upper }, Value::Bytes(bytes)) => {
            push_hexadecimal(text, bytes, upper);
        }
        (_, Value::Int(number)) => {
            // Rust shows negative numbers as two's complement in these bases, Go with a minus sign.
            let sign = if *number < 0 { "-" } else { "" };
            push_radix(text, clause, sign, number.unsigned_abs());
        }
        (_, Value::Uint(number)) => push_radix(text, clause, "", *number),
        _ => return rejected(),
    }
    Ok(())
}

/// Writes to a string, which cannot fail.
fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

fn push_radix(text: &mut String, clause: Clause, sign: &str, number: u64) {
    match clause {
        Clause::Binary => push(text, format_args!("{sign}{number:b}")),
        Clause::Octal => push(text, format_args!("{sign}{number:o}")),
        Clause::Hexadecimal { upper: true } => push(text, format_args!("{sign}{number:X}")),
        _ => push(text, format_args!("{sign}{number:x}")),
    }
}

fn push_hexadecimal(text: &mut String, bytes: &[u8], upper: bool) {
    for byte in bytes {
        if upper {
            push(text, format_args!("{byte:02X}"));
        } else {
            push(text, format_args!("{byte:02x}"));
        }
    }
}

/// Returns a number, or what the name of infinity or NaN stands for.
fn read_double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn format_text(text: &mut String, value: &Value<'_>) -> Result<(), Error> {
    match value {
        Value::Double(number) => text.push_str(&format_shortest(*number)),
        Value::String(inner) => text.push_str(inner),
        Value::Bytes(bytes) => text.push_str(read_bytes(bytes)?),
        Value::Timestamp(time) => push(text, format_args!("{time}")),
        Value::Duration(duration) => text.push_str(&format_duration(*duration)),
        other => return format_literal(text, other, MAX_DEPTH, Clause::Text),
    }
    Ok(())
}

fn read_bytes(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| {
        Error::new(
            "could not convert argument \"invalid UTF-8 in bytes, cannot convert to string\" to \
             string",
        )
    })
}

/// Returns seconds with as many digits as needed, the form of durations in JSON.
fn format_duration(duration: jiff::SignedDuration) -> String {
    let sign = if duration.is_negative() { "-" } else { "" };
    let nanos = duration.as_nanos().unsigned_abs();
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let fraction = format!(".{fraction:09}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{sign}{seconds}{fraction}s")
}

/// Writes a value as a literal of the language, as inside of lists and maps.
fn format_literal(
    text: &mut String,
    value: &Value<'_>,
    depth: usize,
    clause: Clause,
) -> Result<(), Error> {
    if depth == 0 {
        return Err(Error::new("value nests too deeply"));
    }
    if check_text(text.len()).is_err() {
        // The caller sees the length and ends the evaluation.
        return Ok(());
    }
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(flag) => push(text, format_args!("{flag}")),
        Value::Int(number) => push(text, format_args!("{number}")),
        Value::Uint(number) => push(text, format_args!("{number}")),
        Value::Double(number) if number.is_nan() => text.push_str("\"NaN\""),
        Value::Double(number) if number.is_infinite() => {
            push(
                text,
                format_args!("\"{}Inf\"", if *number > 0.0 { '+' } else { '-' }),
            );
        }
        Value::Double(number) => push(text, format_args!("{number:.6}")),
        Value::String(inner) => text.push_str(&quote(inner)),
        Value::Bytes(bytes) => {
            read_bytes(bytes)?;
            push(text, format_args!("b{}", quote_bytes(bytes)));
        }
        Value::Timestamp(time) => push(text, format_args!("timestamp(\"{time}\")")),
        Value::Duration(duration) => {
            push(
                text,
                format_args!("duration(\"{}\")", format_duration(*duration)),
            );
        }
        Value::Type(shown) => text.push_str(shown.runtime_name()),
        Value::List(list) => format_list(text, list, depth)?,
        Value::Map(map) if map.object_schema().is_none() => format_map(text, map, depth)?,
        // Upstream has another message inside of lists and maps.
        other if depth < MAX_DEPTH => {
            let shown = other.type_of();
            return Err(Error(format!(
                "no formatting function for {}",
                shown.runtime_name()
            )));
        }
        other => return Err(clause.reject(&other.type_of())),
    }
    Ok(())
}

fn format_list(text: &mut String, list: &List<'_>, depth: usize) -> Result<(), Error> {
    text.push('[');
    for (index, element) in list.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        format_literal(text, &element, depth - 1, Clause::Text)?;
    }
    text.push(']');
    Ok(())
}

fn format_map(text: &mut String, map: &Map<'_>, depth: usize) -> Result<(), Error> {
    let mut entries = Vec::with_capacity(map.len());
    for (key, value) in map.iter() {
        let key = match &key {
            Key::String(name) => quote(name),
            Key::Bool(flag) => flag.to_string(),
            Key::Int(number) => number.to_string(),
            Key::Uint(number) => number.to_string(),
        };
        entries.push((key, value));
    }
    // By the text of the key, not by the key: 10 is before 2.
    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
    text.push('{');
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        push(text, format_args!("{key}:"));
        format_literal(text, value, depth - 1, Clause::Text)?;
    }
    text.push('}');
    Ok(())
}

/// Returns a short text for a value in an error message.
pub(crate) fn describe(value: &Value<'_>) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => format_shortest(*number),
        Value::Bool(flag) => flag.to_string(),
        other => other.type_of().runtime_name().to_owned(),
    }
}

/// Returns the cost: a traversal of the format, and of what it grew by.
pub(crate) fn format_cost<'v>(values: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    let format = values.first()?;
    let cost = scale_cost(actual_size(format), STRING_TRAVERSAL_FACTOR);
    let source = format.as_str().map_or(0, str::len);
    let growth = match result {
        Value::String(_) => growth_cost(result, source),
        // The arguments were read, although the call failed.
        _ => values.get(1).map_or(0, super::lists::traversal_cost) / 10,
    };
    Some(cost.saturating_add(growth))
}

pub(crate) fn estimate_format(site: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(
        target_size(site).scale(STRING_TRAVERSAL_FACTOR),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn list(values: Vec<Value<'static>>) -> List<'static> {
        match Value::list(values) {
            Value::List(list) => list,
            _ => unreachable!(),
        }
    }

    fn argument(result_type: Type) -> FormatArgument {
        FormatArgument {
            id: 7,
            result_type,
            children: Vec::new(),
        }
    }

    #[test]
    fn formats_without_an_argument_or_clause_are_rejected() {
        for (format, message) in [
            ("%s", "index 0 out of range"),
            ("%", "index 0 out of range"),
        ] {
            let error = format_values(format, &list(Vec::new())).err();
            assert_eq!(error, Some(EvalError::message(message)), "{format}");
        }
        for (format, message) in [
            ("%", "unexpected end of string"),
            (
                "%z",
                "could not parse formatting clause: unrecognized formatting clause \"z\"",
            ),
            (
                "%.",
                "could not parse formatting clause: error while parsing precision: could not find \
                 end of precision specifier",
            ),
        ] {
            let error = format_values(format, &list(vec![Value::Int(1)])).err();
            assert_eq!(error, Some(EvalError::message(message)), "{format}");
        }
    }

    #[test]
    fn literal_formats_are_checked_by_type() {
        assert_eq!(
            check_format("%d %s", &[argument(Type::Int), argument(Type::Dyn)]),
            Ok(())
        );
        let problem = check_format("%d", &[argument(Type::String)]).unwrap_err();
        assert_eq!(problem.id, Some(7));
        assert_eq!(
            problem.message,
            "error during formatting: decimal clause can only be used on integers, was given string"
        );
        let problem = check_format("", &[argument(Type::Int)]).unwrap_err();
        assert_eq!(
            problem.message,
            "too many arguments supplied to string.format (expected 0, got 1)"
        );
    }

    #[test]
    fn long_results_end_the_evaluation() {
        let long = Value::string("a".repeat(2_000_000));
        let format = "%s".repeat(6);
        let result = format_values(&format, &list(vec![long; 6]));
        assert_eq!(result.err(), Some(EvalError::CostLimitExceeded));
    }

    #[test]
    fn durations_are_seconds() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "0.000000001s"),
            (-1_500_000_000, "-1.5s"),
            (6_347_000_000_000, "6347s"),
        ] {
            assert_eq!(
                format_duration(jiff::SignedDuration::from_nanos(nanos)),
                text
            );
        }
    }
}
