//! Library `strings` of cel-go: versions 0 (until Kubernetes 1.28) and 2. Positions count
//! characters, not bytes.

use crate::cost::PER_CALL_LIMIT;
use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{Text, Value};

use super::costs::{check_text, check_work, estimate_target, traverse_once, traverse_twice};
use super::lists::{estimate_list, list_cost};
use super::string_costs::{
    estimate_join, estimate_quote, estimate_replace, estimate_split, join_cost, replace_cost,
};
use super::string_format::{estimate_format, format_cost, format_values};

/// Returns version 0, which newer environments replace by version 2.
pub fn old_library() -> Library {
    Library {
        name: "cel.lib.ext.strings",
        since: 0,
        until: Some(29),
        functions: old_functions(),
        ..Library::default()
    }
}

/// Returns version 2.
pub fn library() -> Library {
    let mut functions = old_functions();
    let format = member(
        "string_format",
        &[Type::list(Type::Dyn)],
        Type::String,
        format,
    );
    let quote = Overload::global("strings_quote", vec![Type::String], Type::String, quote);
    functions.push(Function::new(
        "format",
        vec![format.with_cost(format_cost, estimate_format)],
    ));
    functions.push(Function::new(
        "strings.quote",
        vec![quote.with_cost(traverse_once, estimate_quote)],
    ));
    Library {
        name: "cel.lib.ext.strings",
        since: 29,
        functions,
        ..Library::default()
    }
}

fn member(id: &'static str, arguments: &[Type], result: Type, run: Implementation) -> Overload {
    let arguments = [&[Type::String], arguments].concat();
    Overload::receiver(id, arguments, result, run)
}

fn old_functions() -> Vec<Function> {
    let mut functions = declare_positions();
    functions.extend(declare_changes());
    functions.extend(declare_parts());
    functions
}

/// Declares the functions that find a position, or the character at one.
fn declare_positions() -> Vec<Function> {
    use Type::{Int, String as Str};
    // `indexOf` of lists has the same name, and upstream keeps costs by name.
    let position = |name, id, id_int, run| {
        let overloads = [
            member(id, &[Str], Int, run),
            member(id_int, &[Str, Int], Int, run),
        ];
        Function::new(
            name,
            overloads
                .map(|o| o.with_cost(list_cost, estimate_list))
                .into(),
        )
    };
    vec![
        // Without a cost of its own: upstream's table lacks `charAt`, so it costs 1.
        Function::new(
            "charAt",
            vec![member("string_char_at_int", &[Int], Str, char_at)],
        ),
        position(
            "indexOf",
            "string_index_of_string",
            "string_index_of_string_int",
            index_of as _,
        ),
        position(
            "lastIndexOf",
            "string_last_index_of_string",
            "string_last_index_of_string_int",
            last_index_of,
        ),
    ]
}

/// Declares the functions that return a changed copy of the whole string.
fn declare_changes() -> Vec<Function> {
    use Type::{Int, String as Str};
    let whole = |name, id, run| {
        let overload = member(id, &[], Str, run);
        Function::new(
            name,
            vec![overload.with_cost(traverse_once, estimate_target)],
        )
    };
    let replace = [
        member("string_replace_string_string", &[Str, Str], Str, replace),
        member(
            "string_replace_string_string_int",
            &[Str, Str, Int],
            Str,
            replace,
        ),
    ];
    vec![
        whole("lowerAscii", "string_lower_ascii", lower_ascii as _),
        whole("upperAscii", "string_upper_ascii", upper_ascii),
        whole("trim", "string_trim", trim),
        Function::new(
            "replace",
            replace
                .map(|o| o.with_cost(replace_cost, estimate_replace))
                .into(),
        ),
    ]
}

/// Declares the functions that take strings apart and join them.
fn declare_parts() -> Vec<Function> {
    use Type::{Int, String as Str};
    let list = || Type::list(Str);
    let split = [
        member("string_split_string", &[Str], list(), split),
        member("string_split_string_int", &[Str, Int], list(), split),
    ];
    let substring = [
        member("string_substring_int", &[Int], Str, substring),
        member("string_substring_int_int", &[Int, Int], Str, substring),
    ];
    let join = [
        Overload::receiver("list_join", vec![list()], Str, join),
        Overload::receiver("list_join_string", vec![list(), Str], Str, join),
    ];
    vec![
        Function::new(
            "split",
            split
                .map(|o| o.with_cost(traverse_twice, estimate_split))
                .into(),
        ),
        Function::new(
            "substring",
            substring
                .map(|o| o.with_cost(traverse_once, estimate_target))
                .into(),
        ),
        Function::new(
            "join",
            join.map(|o| o.with_cost(join_cost, estimate_join)).into(),
        ),
    ]
}

fn out_of_range<T>(index: i64) -> Result<T, EvalError> {
    Err(EvalError::message(format!("index out of range: {index}")))
}

/// Returns the byte at which a character starts; the length of the text for the index after the
/// last character.
fn byte_at(text: &str, index: usize) -> Option<usize> {
    // The end is a valid position, for instance of an empty substring.
    let after = (text.chars().count() == index).then_some(text.len());
    text.char_indices()
        .nth(index)
        .map(|(byte, _)| byte)
        .or(after)
}

/// Returns a part of a text, borrowed if the text is.
fn part<'v>(text: &Text<'v>, start: usize, end: usize) -> Value<'v> {
    match text {
        Text::Borrowed(text) => {
            Value::String(Text::Borrowed(text.get(start..end).unwrap_or_default()))
        }
        Text::Shared(text) => Value::string(text.get(start..end).unwrap_or_default()),
    }
}

fn char_at<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [Value::String(text), Value::Int(index)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    let start = usize::try_from(*index)
        .ok()
        .and_then(|index| byte_at(text, index));
    let Some(start) = start else {
        return out_of_range(*index);
    };
    let first = text.get(start..).and_then(|rest| rest.chars().next());
    Ok(part(text, start, start + first.map_or(0, char::len_utf8)))
}

fn count_value<'v>(text: &str, byte: Option<usize>) -> Value<'v> {
    let count = byte
        .and_then(|byte| text.get(..byte))
        .map(|front| front.chars().count());
    Value::Int(
        count
            .and_then(|count| i64::try_from(count).ok())
            .unwrap_or(-1),
    )
}

/// Takes text, wanted text and offset; an offset is valid if the wanted text is empty.
fn take_search<'a>(values: &'a [Value<'_>]) -> Result<(&'a str, &'a str, Option<i64>), EvalError> {
    match values {
        [Value::String(text), Value::String(wanted)] => Ok((text, wanted, None)),
        [
            Value::String(text),
            Value::String(wanted),
            Value::Int(offset),
        ] => Ok((text, wanted, Some(*offset))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn index_of<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (text, wanted, offset) = take_search(values)?;
    let offset = offset.unwrap_or(0);
    // cel-go returns the offset unchecked, even if it is outside of the text.
    if wanted.is_empty() {
        return Ok(Value::Int(offset));
    }
    let Ok(index) = usize::try_from(offset) else {
        return out_of_range(offset);
    };
    // An offset behind the end finds nothing, and only a negative one is an error.
    let Some(start) = byte_at(text, index) else {
        return Ok(Value::Int(-1));
    };
    let found = text.get(start..).and_then(|rest| rest.find(wanted));
    Ok(count_value(text, found.map(|byte| byte + start)))
}

fn last_index_of<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (text, wanted, offset) = take_search(values)?;
    // As for `indexOf`, the offset is returned unchecked.
    if wanted.is_empty() {
        let end = count_value(text, Some(text.len()));
        return Ok(offset.map_or(end, Value::Int));
    }
    let Some(offset) = offset else {
        return Ok(count_value(text, text.rfind(wanted)));
    };
    let Ok(index) = usize::try_from(offset) else {
        return out_of_range(offset);
    };
    let start = byte_at(text, index).filter(|start| *start < text.len());
    let Some(start) = start else {
        return Ok(Value::Int(-1));
    };
    // The last match may start at the offset, and must end inside the text.
    let mut end = start.saturating_add(wanted.len()).min(text.len());
    // The end may be inside of a character, which then belongs to no match.
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Ok(count_value(
        text,
        text.get(..end).and_then(|front| front.rfind(wanted)),
    ))
}

fn take_text<'a, 'v>(values: &'a [Value<'v>]) -> Result<&'a Text<'v>, EvalError> {
    match values {
        [Value::String(text)] => Ok(text),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn lower_ascii<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(take_text(values)?.to_ascii_lowercase()))
}

fn upper_ascii<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(take_text(values)?.to_ascii_uppercase()))
}

fn trim<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let text = take_text(values)?;
    // A part of the text is returned without a copy if the text is borrowed from the object.
    let start = text.len() - text.trim_start().len();
    Ok(part(text, start, start + text.trim().len()))
}

fn replace<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (text, old, new, limit) = match values {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [
            Value::String(text),
            Value::String(old),
            Value::String(new),
            Value::Int(limit),
        ] => (text, old, new, *limit),
        _ => return Err(EvalError::NoSuchOverload),
    };
    // A negative limit means no limit.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = text.matches(&**old).take(limit).count();
    // The size is computed before the text is built: each match of one character may insert a long
    // text.
    let growth = count.saturating_mul(new.len().saturating_sub(old.len()));
    check_text(text.len().saturating_add(growth))?;
    Ok(Value::string(text.replacen(&**old, new, limit)))
}

fn split_text<'a>(text: &'a str, separator: &str, limit: usize) -> Vec<&'a str> {
    // Go's `SplitN` returns no parts for a limit of 0.
    if limit == 0 {
        return Vec::new();
    }
    if !separator.is_empty() {
        return text.splitn(limit, separator).collect();
    }
    // Without a separator each character is an element, and the last one has the rest.
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            break;
        }
        let (character, tail) = rest
            .split_at_checked(first.len_utf8())
            .unwrap_or((rest, ""));
        parts.push(character);
        rest = tail;
    }
    parts
}

fn split<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (text, separator, limit) = match values {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [
            Value::String(text),
            Value::String(separator),
            Value::Int(limit),
        ] => (text, separator, *limit),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // An element takes many times the memory of a character.
    if text.len() as u64 > PER_CALL_LIMIT {
        check_work(10 * text.matches(&**separator).take(limit).count() as u64)?;
    }
    let parts = match text {
        Text::Borrowed(text) => split_text(text, separator, limit)
            .into_iter()
            .map(|part| Value::String(Text::Borrowed(part)))
            .collect(),
        Text::Shared(text) => split_text(text, separator, limit)
            .into_iter()
            .map(Value::string)
            .collect(),
    };
    Ok(Value::list(parts))
}

fn substring<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (text, start, end) = match values {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(EvalError::NoSuchOverload),
    };
    // Upstream reports a reversed range before indices out of range.
    if let Some(end) = end.filter(|end| start > *end) {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalError::message(message));
    }
    let find = |index: i64| {
        usize::try_from(index)
            .ok()
            .and_then(|index| byte_at(text, index))
    };
    let Some(first) = find(start) else {
        return out_of_range(start);
    };
    let last = match end {
        Some(end) => match find(end) {
            Some(last) => last,
            None => return out_of_range(end),
        },
        None => text.len(),
    };
    Ok(part(text, first, last))
}

fn join<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (list, separator) = match values {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let mut joined = String::new();
    for (index, element) in list.iter().enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        let Value::String(text) = &element else {
            let shown = super::string_format::describe(&element);
            return Err(EvalError::message(format!("join: invalid input: {shown}")));
        };
        // Checked for each element, so that a long separator or element can't fill the memory
        // first.
        check_text(joined.len().saturating_add(text.len()))?;
        joined.push_str(text);
    }
    Ok(Value::string(joined))
}

fn format<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [Value::String(format), Value::List(arguments)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    format_values(format, arguments).map(Value::string)
}

fn quote<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let text = take_text(values)?;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    // All other characters stay as they are, unlike in Go's `strconv.Quote`.
    for c in text.chars() {
        let escaped = match c {
            '\x07' => 'a',
            '\x08' => 'b',
            '\x0c' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\x0b' => 'v',
            '\\' | '"' => c,
            _ => {
                quoted.push(c);
                continue;
            }
        };
        quoted.extend(['\\', escaped]);
    }
    quoted.push('"');
    Ok(Value::string(quoted))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn amplified_text_is_bounded_and_charged() {
        let long = || Value::string("a".repeat(100_000));
        let huge = replace(&[long(), Value::string("a"), long()]);
        assert_eq!(huge.err(), Some(EvalError::CostLimitExceeded));
        let values = [Value::string("aa"), Value::string("a"), long()];
        let result = replace(&values).unwrap();
        assert!(replace_cost(&values, &result).unwrap() > 19_000);
        let list = Value::list(vec![long(); 200]);
        assert_eq!(join(&[list]).err(), Some(EvalError::CostLimitExceeded));
    }

    #[test]
    fn positions_count_characters() {
        let at = |run: Implementation, offset: i64| match run(&[
            Value::string("ta©o©αT"),
            Value::string("©"),
            Value::Int(offset),
        ]) {
            Ok(Value::Int(position)) => position,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (at(index_of, 0), at(index_of, 3), at(index_of, 5)),
            (2, 4, -1)
        );
        assert_eq!(
            (
                at(last_index_of, 6),
                at(last_index_of, 3),
                at(last_index_of, 9)
            ),
            (4, 2, -1)
        );
    }

    #[test]
    fn split_of_a_borrowed_text_borrows() {
        let json = serde_json::Value::String("a,b".to_owned());
        let text = Value::from_json(&json, None);
        let Value::List(parts) = split(&[text, Value::string(",")]).unwrap() else {
            panic!("no list")
        };
        assert!(matches!(
            parts.get(1),
            Some(Value::String(Text::Borrowed("b")))
        ));
    }
}
