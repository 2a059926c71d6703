//! Costs of the library `strings`.

use crate::cost::{
    CallEstimate, CallSite, Range, STRING_TRAVERSAL_FACTOR, actual_size, scale_cost,
};
use crate::value::Value;

use super::costs::{argument_size, growth_cost, target_size, traverse_twice};

pub(crate) fn replace_cost<'v>(values: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    let source = values.first().and_then(Value::as_str).map_or(0, str::len);
    Some(traverse_twice(values, result)?.saturating_add(growth_cost(result, source)))
}

pub(crate) fn join_cost<'v>(_: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    let size = actual_size(result);
    Some(scale_cost(size.saturating_mul(2), STRING_TRAVERSAL_FACTOR))
}

pub(crate) fn estimate_quote(site: &CallSite) -> Option<CallEstimate> {
    let size = argument_size(site, 0);
    // In the worst case each character is escaped.
    let result = size.multiply(Range::new(1, 2)).add(Range::fixed(2));
    Some(CallEstimate::sized(
        size.scale(STRING_TRAVERSAL_FACTOR),
        result,
    ))
}

fn divide_up(dividend: u64, divisor: u64) -> u64 {
    (dividend as f64 / divisor as f64).ceil() as u64
}

/// Returns the size of the result of `replace`: the longest with as many and as long replacements
/// as possible, and the shortest.
fn replaced_size(text: Range, old: Range, new: Range) -> Range {
    let (longest_count, longest_rest) = if old.min == 0 {
        // An empty text is between all characters.
        (text.max.saturating_add(1), text.max)
    // Replacements that are not longer than the text they replace can't lengthen the result.
    } else if new.max <= old.min {
        (0, text.max)
    } else {
        // The shortest matches, as many of them as fit into the text.
        (divide_up(text.max, old.min), 0)
    };
    let (shortest_count, shortest_rest) = if old.max == 0 {
        (text.min.saturating_add(1), text.min)
    // Replacements that are not shorter than the text they replace can't shorten the result.
    } else if old.max <= new.min {
        (0, text.min)
    } else {
        // The longest matches, as few of them as cover the text.
        (divide_up(text.min, old.max), 0)
    };
    let count = Range::new(shortest_count, longest_count);
    count
        .multiply(new)
        .add(Range::new(shortest_rest, longest_rest))
}

pub(crate) fn estimate_replace(site: &CallSite) -> Option<CallEstimate> {
    let text = target_size(site);
    let size = replaced_size(text, argument_size(site, 0), argument_size(site, 1));
    Some(CallEstimate::sized(
        text.scale(2.0 * STRING_TRAVERSAL_FACTOR),
        size,
    ))
}

pub(crate) fn estimate_split(site: &CallSite) -> Option<CallEstimate> {
    let text = target_size(site);
    let limit = site
        .arguments
        .get(1)
        .and_then(|argument| argument.literal.as_ref());
    let max = match limit {
        // A negative limit becomes a huge one, as by upstream's conversion to `uint64`.
        Some(Value::Int(limit)) => limit.cast_unsigned(),
        _ => text.max,
    };
    Some(CallEstimate::sized(
        text.scale(2.0 * STRING_TRAVERSAL_FACTOR),
        Range::new(0, max),
    ))
}

pub(crate) fn estimate_join(site: &CallSite) -> Option<CallEstimate> {
    let target = site.target.as_ref()?;
    let count = target.size();
    let mut size = match target.element_type() {
        Some(_) => count.multiply(target.element_size()),
        // Upstream counts nothing for elements of unknown type, so only separators add to the size.
        None => Range::ZERO,
    };
    if let Some(separator) = site.arguments.first() {
        let separators = Range::new(count.min.saturating_sub(1), count.max.saturating_sub(1));
        size = size.add(separator.size().multiply(separators));
    }
    Some(CallEstimate::sized(
        size.scale(STRING_TRAVERSAL_FACTOR),
        size,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_a_replaced_text_is_estimated() {
        let fixed = Range::fixed;
        for (text, old, new, expected) in [
            (fixed(3), fixed(0), fixed(1), fixed(7)),
            (fixed(3), fixed(1), fixed(0), Range::new(0, 3)),
            (fixed(4), fixed(2), fixed(4), Range::new(4, 8)),
            (
                fixed(4),
                Range::new(0, 1),
                Range::new(0, 2),
                Range::new(0, 14),
            ),
            (fixed(4), fixed(1), Range::new(1, 2), Range::new(4, 8)),
            (fixed(4), Range::new(1, 2), fixed(1), Range::new(2, 4)),
        ] {
            assert_eq!(
                replaced_size(text, old, new),
                expected,
                "{text:?} {old:?} {new:?}"
            );
        }
    }

    #[test]
    fn size_of_unknown_arguments_is_not_bounded() {
        let size = replaced_size(Range::UNKNOWN, Range::UNKNOWN, Range::UNKNOWN);
        assert_eq!(size, Range::new(0, u64::MAX));
    }
}
