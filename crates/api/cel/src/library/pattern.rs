//! Library of Kubernetes for regular expressions: `find`, `findAll`.

use crate::cost::{PER_CALL_LIMIT, actual_size};
use crate::error::EvalError;
use crate::function::{Function, Overload};
use crate::library::Library;
use crate::regex::compile_pattern;
use crate::types::Type;
use crate::value::{Text, Value};

use super::costs::{estimate_search, search_cost};

/// Returns the library.
pub fn library() -> Library {
    let overload = |id, arguments, result, run| {
        Overload::receiver(id, arguments, result, run).with_cost(find_cost, estimate_search)
    };
    let strings = || vec![Type::String, Type::String];
    let limited = || vec![Type::String, Type::String, Type::Int];
    let list = || Type::list(Type::String);
    Library {
        name: "kubernetes.regex",
        functions: vec![
            Function::new(
                "find",
                vec![overload(
                    "string_find_string",
                    strings(),
                    Type::String,
                    find as _,
                )],
            ),
            Function::new(
                "findAll",
                vec![
                    overload("string_find_all_string", strings(), list(), find_all),
                    overload("string_find_all_string_int", limited(), list(), find_all),
                ],
            ),
        ],
        ..Library::default()
    }
}

/// Matches without a cost of their own. An empty pattern costs nothing, and matches everywhere.
const FREE_MATCHES: u64 = 256;

/// Returns the cost of the search and of many matches.
fn find_cost<'v>(values: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    let matches = match result {
        Value::List(_) => actual_size(result).saturating_sub(FREE_MATCHES),
        _ => 0,
    };
    Some(search_cost(values, result)?.saturating_add(matches))
}

fn find_matches<'a>(text: &'a str, pattern: &str, limit: usize) -> Result<Vec<&'a str>, EvalError> {
    let regex = compile_pattern(pattern)
        .map_err(|error| EvalError::message(format!("Illegal regex: {error}")))?;
    // One match more than allowed shows that the cost exceeds each limit.
    let allowed = usize::try_from(PER_CALL_LIMIT).unwrap_or(usize::MAX);
    let found: Vec<&str> = regex
        .find_iter(text)
        .take(limit.min(allowed.saturating_add(1)))
        .map(|found| found.as_str())
        .collect();
    if found.len() > allowed {
        return Err(EvalError::CostLimitExceeded);
    }
    Ok(found)
}

/// Finds matches; parts of a JSON value are borrowed from it.
fn find_values<'v>(
    text: &Text<'v>,
    pattern: &str,
    limit: usize,
) -> Result<Vec<Value<'v>>, EvalError> {
    Ok(match text {
        Text::Borrowed(text) => {
            let found = find_matches(text, pattern, limit)?;
            found
                .into_iter()
                .map(|part| Value::String(Text::Borrowed(part)))
                .collect()
        }
        Text::Shared(text) => find_matches(text, pattern, limit)?
            .into_iter()
            .map(Value::string)
            .collect(),
    })
}

fn find<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [Value::String(text), Value::String(pattern)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    let found = find_values(text, pattern, 1)?;
    // Without a match, upstream returns an empty text, which looks like an empty match.
    Ok(found
        .into_iter()
        .next()
        .unwrap_or(Value::String(Text::Borrowed(""))))
}

fn find_all<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (text, pattern, limit) = match values {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [
            Value::String(text),
            Value::String(pattern),
            Value::Int(limit),
        ] => (text, pattern, *limit),
        _ => return Err(EvalError::NoSuchOverload),
    };
    // A negative limit means no limit.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    find_values(text, pattern, limit).map(Value::list)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all(text: &str, pattern: &str, limit: i64) -> Vec<String> {
        let values = [
            Value::string(text),
            Value::string(pattern),
            Value::Int(limit),
        ];
        let Value::List(found) = find_all(&values).unwrap() else {
            panic!("no list")
        };
        found
            .iter()
            .map(|value| value.as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn matches_are_found_up_to_the_limit() {
        assert_eq!(all("123 abc 456", "[0-9]+", -1), ["123", "456"]);
        assert_eq!(all("123 abc 456", "[0-9]+", 1), ["123"]);
        assert!(all("123", "[0-9]+", 0).is_empty());
        assert_eq!(all("123 a 4", "[0-9]*", -1), ["123", "", "", "4"]);
    }

    #[test]
    fn text_without_a_match_gives_an_empty_text() {
        let found = find(&[Value::string("abc"), Value::string("x")]).unwrap();
        assert_eq!(found.as_str(), Some(""));
    }

    #[test]
    fn many_matches_are_charged_and_bounded() {
        let values = [Value::string("a".repeat(1_255)), Value::string("")];
        let result = find_all(&values).unwrap();
        assert_eq!(find_cost(&values, &result), Some(1_000));
        let values = [Value::string("a".repeat(1_000_001)), Value::string("")];
        assert_eq!(find_all(&values).err(), Some(EvalError::CostLimitExceeded));
    }

    #[test]
    fn bad_pattern_is_an_error() {
        let error = find(&[Value::string("abc"), Value::string("[")]).unwrap_err();
        assert!(error.to_string().starts_with("Illegal regex: "), "{error}");
    }
}
