//! Sets of completion indexes, written as `0,2-4,7`.

use crate::field::go_quote;

/// An interval of indexes, both ends included.
pub(super) type Interval = (i64, i64);

fn parse_index(text: &str, completions: i64) -> Result<i64, String> {
    // A minus sign never gets here, because the interval is split at `-` first. A plus sign passes,
    // as in Go.
    let Ok(index) = text.parse::<i64>() else {
        return Err(format!(
            "cannot convert string to integer for index: {}",
            go_quote(text)
        ));
    };
    if index >= completions {
        return Err(format!("too large index: {}", go_quote(text)));
    }
    Ok(index)
}

fn parse_interval(text: &str, completions: i64) -> Result<Interval, String> {
    match text.split('-').collect::<Vec<_>>().as_slice() {
        [only] => parse_index(only, completions).map(|x| (x, x)),
        [first, last] => {
            let (x, y) = (
                parse_index(first, completions)?,
                parse_index(last, completions)?,
            );
            // `3-3` is rejected as well: a single index is written alone.
            if x >= y {
                return Err(format!("non-increasing order, previous: {x}, current: {y}"));
            }
            Ok((x, y))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            go_quote(text)
        )),
    }
}

/// Returns the number of indexes in a set. The intervals must be ordered.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut last: Option<i64> = None;
    let mut total = 0;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (x, y) = parse_interval(part, completions)?;
        if let Some(before) = last.filter(|before| *before >= x) {
            return Err(format!(
                "non-increasing order, previous: {before}, current: {x}"
            ));
        }
        total += y - x + 1;
        last = Some(y);
    }
    Ok(total)
}

/// Returns the first index that is in both sets. Malformed parts are reported elsewhere.
pub(super) fn find_common_index(one: &str, other: &str, completions: i64) -> Option<i64> {
    // Upstream's order: malformed sets are reported first, so here they only must not fail.
    let parse = |text: &str| -> Vec<Interval> {
        text.split(',')
            .filter_map(|part| parse_interval(part, completions).ok())
            .collect()
    };
    let (one, other) = (parse(one), parse(other));
    let (mut left, mut right) = (one.iter().peekable(), other.iter().peekable());
    // Both sets are ordered, so one pass over them is enough: their length is bounded only by the
    // size of the object.
    while let (Some((a, b)), Some((c, d))) = (left.peek(), right.peek()) {
        if a <= d && c <= b {
            return Some(*a.max(c));
        }
        if a <= c {
            left.next();
        } else {
            right.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_indexes_are_counted() {
        for (text, expect) in [
            ("", Ok(0)),
            ("0", Ok(1)),
            ("0,2-4,9", Ok(5)),
            ("10", Err("too large index: \"10\"")),
            ("0-10", Err("too large index: \"10\"")),
            (
                "a",
                Err("cannot convert string to integer for index: \"a\""),
            ),
            ("3-2", Err("non-increasing order, previous: 3, current: 2")),
            ("3,2", Err("non-increasing order, previous: 3, current: 2")),
            ("1-2-3", Err("the fragment \"1-2-3\" violates")),
            (
                "1,",
                Err("cannot convert string to integer for index: \"\""),
            ),
        ] {
            let found = count_indexes(text, 10);
            match (&found, expect) {
                (Ok(n), Ok(m)) => assert_eq!(*n, m, "{text}"),
                (Err(why), Err(prefix)) => assert!(why.starts_with(prefix), "{text}: {why}"),
                _ => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn common_indexes_are_found() {
        for (one, other, expect) in [
            ("0-2", "3,4", None),
            ("0-2,7", "3-8", Some(7)),
            ("x,5", "5", Some(5)),
            ("", "1", None),
        ] {
            assert_eq!(find_common_index(one, other, 10), expect, "{one} {other}");
        }
    }
}
