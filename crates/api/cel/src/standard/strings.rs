//! Functions of strings.

use crate::cost::{
    CallEstimate, CallSite, REGEX_LENGTH_FACTOR, Range, STRING_TRAVERSAL_FACTOR, actual_size,
    scale_cost,
};
use crate::error::EvalError;
use crate::function::{Function, Overload};
use crate::regex::compile_pattern;
use crate::types::Type;
use crate::value::Value;

type Eval<'v> = Result<Value<'v>, EvalError>;

/// Declares the functions.
pub fn functions() -> Vec<Function> {
    let two = || vec![Type::String; 2];
    let receiver = |id, implementation| Overload::receiver(id, two(), Type::Bool, implementation);
    vec![
        Function::new(
            "contains",
            vec![receiver("contains_string", contains).with_cost(contains_cost, estimate_contains)],
        ),
        Function::new(
            "startsWith",
            vec![receiver("starts_with_string", starts_with).with_cost(affix_cost, estimate_affix)],
        ),
        Function::new(
            "endsWith",
            vec![receiver("ends_with_string", ends_with).with_cost(affix_cost, estimate_affix)],
        ),
        Function::new(
            "matches",
            vec![
                // The global form costs 1: cel-go's cost tables have the id of the receiver's form
                // only.
                Overload::global("matches", two(), Type::Bool, matches),
                receiver("matches_string", matches).with_cost(matches_cost, estimate_matches),
            ],
        ),
    ]
}

fn contains<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.contains(&**part))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn starts_with<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.starts_with(&**part))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn ends_with<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.ends_with(&**part))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn matches<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::String(text), Value::String(pattern)] => {
            Ok(Value::Bool(compile_pattern(pattern)?.is_match(text)))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn affix_cost(arguments: &[Value<'_>], _: &Value<'_>) -> Option<u64> {
    // The actual cost counts the receiver, and the estimate the argument, as in cel-go.
    Some(scale_cost(
        actual_size(arguments.first()?),
        STRING_TRAVERSAL_FACTOR,
    ))
}

fn estimate_affix(site: &CallSite) -> Option<CallEstimate> {
    let [part] = site.arguments.as_slice() else {
        return None;
    };
    Some(CallEstimate::new(
        part.size().scale(STRING_TRAVERSAL_FACTOR),
    ))
}

fn contains_cost(arguments: &[Value<'_>], _: &Value<'_>) -> Option<u64> {
    let [text, part] = arguments else { return None };
    // A naive search compares the part at each position of the text.
    let text = scale_cost(actual_size(text), STRING_TRAVERSAL_FACTOR);
    Some(text.saturating_mul(scale_cost(actual_size(part), STRING_TRAVERSAL_FACTOR)))
}

fn estimate_contains(site: &CallSite) -> Option<CallEstimate> {
    let (Some(text), [part]) = (&site.target, site.arguments.as_slice()) else {
        return None;
    };
    let text = text.size().scale(STRING_TRAVERSAL_FACTOR);
    Some(CallEstimate::new(
        text.multiply(part.size().scale(STRING_TRAVERSAL_FACTOR)),
    ))
}

fn matches_cost(arguments: &[Value<'_>], _: &Value<'_>) -> Option<u64> {
    let [text, pattern] = arguments else {
        return None;
    };
    // The added character keeps the product above 0, because a pattern can be expensive even for an
    // empty text.
    let text = scale_cost(actual_size(text).saturating_add(1), STRING_TRAVERSAL_FACTOR);
    Some(text.saturating_mul(scale_cost(actual_size(pattern), REGEX_LENGTH_FACTOR)))
}

fn estimate_matches(site: &CallSite) -> Option<CallEstimate> {
    let (Some(text), [pattern]) = (&site.target, site.arguments.as_slice()) else {
        return None;
    };
    // As for the actual cost, an empty text must not make the product 0.
    let text = text
        .size()
        .add(Range::fixed(1))
        .scale(STRING_TRAVERSAL_FACTOR);
    Some(CallEstimate::new(
        text.multiply(pattern.size().scale(REGEX_LENGTH_FACTOR)),
    ))
}
