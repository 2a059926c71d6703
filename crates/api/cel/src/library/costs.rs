//! Cost functions that several libraries share. Kubernetes keeps costs by the name of a function,
//! so all overloads of one name have the same.

use crate::cost::{
    Argument, CallEstimate, CallSite, PER_CALL_LIMIT, REGEX_LENGTH_FACTOR, Range,
    STRING_TRAVERSAL_FACTOR, actual_size, scale_cost,
};
use crate::error::EvalError;
use crate::value::Value;

/// Longest text in bytes that a function creates. To traverse a longer one costs more than an
/// evaluation may.
pub(crate) const MAX_TEXT: usize = 10_000_000;
/// Longest text in bytes of a URL or a version. Comparing two of them costs 1.
const MAX_PARSED: usize = 65_536;
/// Growth of a text in bytes that has no cost of its own, as upstream.
const FREE_GROWTH: usize = 1024;

/// Returns an error for work that no cost limit allows, before it is done.
pub(crate) fn check_work(cost: u64) -> Result<(), EvalError> {
    // Some hosts allow one expression what upstream allows all expressions of a request.
    if cost > 10 * PER_CALL_LIMIT {
        Err(EvalError::CostLimitExceeded)
    } else {
        Ok(())
    }
}

/// Returns an error for a text from which an object is parsed that later calls read at a cost of 1.
pub(crate) fn check_parsed(text: &str) -> Result<(), EvalError> {
    if text.len() > MAX_PARSED {
        return Err(EvalError::message(format!(
            "text is longer than {MAX_PARSED} bytes"
        )));
    }
    Ok(())
}

/// Returns an error for a text that is longer than [`MAX_TEXT`].
pub(crate) fn check_text(bytes: usize) -> Result<(), EvalError> {
    if bytes > MAX_TEXT {
        Err(EvalError::CostLimitExceeded)
    } else {
        Ok(())
    }
}

/// Returns the cost of a text that is longer than the texts it was made from. Upstream charges
/// nothing, so that a short expression fills the memory.
pub(crate) fn growth_cost(result: &Value<'_>, source: usize) -> u64 {
    let bytes = result.as_str().map_or(0, str::len);
    let growth = bytes
        .saturating_sub(source.saturating_mul(2))
        .saturating_sub(FREE_GROWTH);
    scale_cost(growth as u64, STRING_TRAVERSAL_FACTOR)
}

/// Returns the cost of an accessor: 1, and that of a long text that it copies.
pub(crate) fn accessor_cost<'v>(_: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    Some(growth_cost(result, 0).saturating_add(1))
}

/// Returns the cost of a call that creates an object with as many bytes of text.
pub(crate) fn copy_cost(bytes: usize) -> u64 {
    scale_cost(
        bytes.saturating_sub(FREE_GROWTH) as u64,
        STRING_TRAVERSAL_FACTOR,
    )
    .saturating_add(1)
}

/// Estimates the cost of an accessor. The cost of long texts is not part of it, as upstream.
pub(crate) fn estimate_accessor(_: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(Range::fixed(1)))
}

pub(crate) fn size_at(values: &[Value<'_>], index: usize) -> u64 {
    values.get(index).map_or(0, actual_size)
}

/// Returns the cost of one traversal of the first argument.
pub(crate) fn traverse_once<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    // Upstream rounds up the product, so a short text costs at least 1.
    Some(scale_cost(size_at(values, 0), STRING_TRAVERSAL_FACTOR))
}

/// Returns the cost of two traversals of the first argument.
pub(crate) fn traverse_twice<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    Some(scale_cost(
        size_at(values, 0).saturating_mul(2),
        STRING_TRAVERSAL_FACTOR,
    ))
}

pub(crate) fn argument_size(site: &CallSite, index: usize) -> Range {
    site.arguments
        .get(index)
        .map_or(Range::UNKNOWN, Argument::size)
}

pub(crate) fn target_size(site: &CallSite) -> Range {
    site.target.as_ref().map_or(Range::UNKNOWN, Argument::size)
}

/// Estimates one traversal of the first argument.
pub(crate) fn estimate_once(site: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(
        argument_size(site, 0).scale(STRING_TRAVERSAL_FACTOR),
    ))
}

/// Estimates one traversal of the first argument, of which the result has the size.
pub(crate) fn estimate_conversion(site: &CallSite) -> Option<CallEstimate> {
    let size = argument_size(site, 0);
    Some(CallEstimate::sized(
        size.scale(STRING_TRAVERSAL_FACTOR),
        size,
    ))
}

/// Estimates two traversals of the first argument.
pub(crate) fn estimate_twice(site: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(
        argument_size(site, 0).scale(2.0 * STRING_TRAVERSAL_FACTOR),
    ))
}

/// Estimates one traversal of the receiver, of which the result has the size.
pub(crate) fn estimate_target(site: &CallSite) -> Option<CallEstimate> {
    let size = target_size(site);
    Some(CallEstimate::sized(
        size.scale(STRING_TRAVERSAL_FACTOR),
        size,
    ))
}

/// Returns the cost of a search with a pattern.
pub(crate) fn search_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    Some(match_cost(size_at(values, 0), size_at(values, 1)))
}

/// Returns the cost to match a text of `size` with a pattern of `pattern` characters.
pub(crate) fn match_cost(size: u64, pattern: u64) -> u64 {
    // An empty text still costs, because the pattern may be expensive.
    let text = scale_cost(size.saturating_add(1), STRING_TRAVERSAL_FACTOR);
    text.saturating_mul(scale_cost(pattern, REGEX_LENGTH_FACTOR))
}

/// Estimates a search with a pattern. In the worst case each character is a match.
pub(crate) fn estimate_search(site: &CallSite) -> Option<CallEstimate> {
    let size = target_size(site);
    let text = size.add(Range::fixed(1)).scale(STRING_TRAVERSAL_FACTOR);
    let pattern = argument_size(site, 0).scale(REGEX_LENGTH_FACTOR);
    Some(CallEstimate::sized(
        text.multiply(pattern),
        Range::new(0, size.max),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_of_a_text_is_charged_beyond_an_allowance() {
        let text = |bytes: usize| Value::string("a".repeat(bytes));
        assert_eq!(growth_cost(&text(1_024), 0), 0);
        assert_eq!(growth_cost(&text(3_000), 1_000), 0);
        assert_eq!(growth_cost(&text(11_024), 0), 1_000);
        assert_eq!(growth_cost(&Value::Null, 0), 0);
    }

    #[test]
    fn empty_text_still_costs_a_search() {
        assert_eq!(match_cost(0, 100), 25);
        assert_eq!(match_cost(9, 4), 1);
        assert_eq!(match_cost(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn work_and_texts_have_a_limit() {
        assert!(check_work(10 * PER_CALL_LIMIT).is_ok());
        assert!(check_work(10 * PER_CALL_LIMIT + 1).is_err());
        assert!(check_text(MAX_TEXT).is_ok());
        assert!(check_text(MAX_TEXT + 1).is_err());
    }
}
