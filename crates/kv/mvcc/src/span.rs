//! Ranges of keys as in requests.

use std::ops::Bound;

/// Bounds of a range for an ordered map.
pub type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A range of keys. `end` empty: a single key. `end` a zero byte: all keys from `from` on.
/// Otherwise `end` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    from: &'a [u8],
    end: &'a [u8],
}

impl<'a> Span<'a> {
    /// Creates a range from the fields of a request.
    pub fn new(from: &'a [u8], end: &'a [u8]) -> Self {
        Span { from, end }
    }

    /// Returns the key if the range is a single key.
    pub fn single_key(self) -> Option<&'a [u8]> {
        self.end.is_empty().then_some(self.from)
    }

    /// Returns whether the range has no end.
    pub fn is_unbounded(self) -> bool {
        self.end == [0]
    }

    /// Returns the first key.
    pub fn first_key(self) -> &'a [u8] {
        self.from
    }

    /// Returns the bounds for an ordered map, or `None` if the range is empty.
    pub fn bounds(self) -> Option<Bounds<'a>> {
        let from = Bound::Included(self.from);
        if self.end.is_empty() {
            Some((from, Bound::Included(self.from)))
        } else if self.is_unbounded() {
            Some((from, Bound::Unbounded))
        } else {
            (self.from < self.end).then_some((from, Bound::Excluded(self.end)))
        }
    }

    /// Returns whether the range contains a key.
    pub fn contains(self, key: &[u8]) -> bool {
        if self.end.is_empty() {
            return key == self.from;
        }
        key >= self.from && (self.is_unbounded() || key < self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_contains_a_key_a_range_or_the_rest() {
        let one = Span::new(b"a", b"");
        assert!(one.contains(b"a") && !one.contains(b"a\0"));
        let half = Span::new(b"a", b"c");
        assert!(half.contains(b"a") && half.contains(b"b") && !half.contains(b"c"));
        let rest = Span::new(b"b", b"\0");
        assert!(rest.contains(b"\xff") && !rest.contains(b"a"));
        assert!(Span::new(b"c", b"a").bounds().is_none());
    }
}
