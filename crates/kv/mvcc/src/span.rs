//! Intervals of keys as requests write them.

use std::ops::Bound;

/// Both ends of an interval, as an ordered map's `range` takes them.
pub type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// `end` empty: one key. A single zero byte: everything from `from` on. Otherwise half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    from: &'a [u8],
    end: &'a [u8],
}

impl<'a> Span<'a> {
    /// As in a request.
    pub fn new(from: &'a [u8], end: &'a [u8]) -> Self {
        Span { from, end }
    }

    /// The one key, if it is one.
    pub fn single(self) -> Option<&'a [u8]> {
        self.end.is_empty().then_some(self.from)
    }

    /// Whether there is no end.
    pub fn unbounded(self) -> bool {
        self.end == [0]
    }

    /// First key.
    pub fn from(self) -> &'a [u8] {
        self.from
    }

    /// Bounds for an ordered map; none: the interval is empty.
    pub fn bounds(self) -> Option<Bounds<'a>> {
        let from = Bound::Included(self.from);
        if self.end.is_empty() {
            Some((from, Bound::Included(self.from)))
        } else if self.unbounded() {
            Some((from, Bound::Unbounded))
        } else {
            (self.from < self.end).then_some((from, Bound::Excluded(self.end)))
        }
    }

    /// Whether a key lies in it.
    pub fn contains(self, key: &[u8]) -> bool {
        if self.end.is_empty() {
            return key == self.from;
        }
        key >= self.from && (self.unbounded() || key < self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms() {
        let one = Span::new(b"a", b"");
        assert!(one.contains(b"a") && !one.contains(b"a\0"));
        let half = Span::new(b"a", b"c");
        assert!(half.contains(b"a") && half.contains(b"b") && !half.contains(b"c"));
        let rest = Span::new(b"b", b"\0");
        assert!(rest.contains(b"\xff") && !rest.contains(b"a"));
        assert!(Span::new(b"c", b"a").bounds().is_none());
    }
}
