//! Paths of fields, as linked lists on the stack: the text is built when a problem needs it.

use api_meta::names::shorten_name;
use std::fmt;

/// A field path.
#[derive(Clone, Copy, Debug)]
pub struct FieldPath<'a> {
    parent: Option<&'a FieldPath<'a>>,
    segment: Segment<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Segment<'a> {
    Start(&'a str),
    Name(&'a str),
    Entry(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> FieldPath<'a> {
    /// Path of the object itself.
    pub const ROOT: FieldPath<'static> = FieldPath::start("");

    /// Returns a path that begins with `prefix`.
    pub const fn start(prefix: &'a str) -> FieldPath<'a> {
        FieldPath {
            parent: None,
            segment: Segment::Start(prefix),
        }
    }

    /// Returns the path of a field.
    pub fn child(&'a self, name: &'a str) -> FieldPath<'a> {
        self.extend(Segment::Name(name))
    }

    /// Returns the path of an entry of a map, in the form of value validation: `spec.key`, and with
    /// a dot even at the root.
    pub fn entry(&'a self, key: &'a str) -> FieldPath<'a> {
        self.extend(Segment::Entry(key))
    }

    /// Returns the path of an entry of a map: `spec[key]`.
    pub fn key(&'a self, key: &'a str) -> FieldPath<'a> {
        self.extend(Segment::Key(key))
    }

    /// Returns the path of an element of a list.
    pub fn index(&'a self, index: usize) -> FieldPath<'a> {
        self.extend(Segment::Index(index))
    }

    /// Returns whether the path has no text.
    pub fn is_root(&self) -> bool {
        matches!(self.segment, Segment::Start("")) && self.parent.is_none()
    }

    fn extend(&'a self, segment: Segment<'a>) -> FieldPath<'a> {
        FieldPath {
            parent: Some(self),
            segment,
        }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nested = self.parent.is_some_and(|parent| !parent.is_root());
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.segment {
            Segment::Start(text) => f.write_str(text),
            Segment::Name(name) if nested => write!(f, ".{name}"),
            Segment::Name(name) => f.write_str(name),
            Segment::Entry(key) => write!(f, ".{}", shorten_name(key)),
            Segment::Key(key) => write!(f, "[{}]", shorten_name(key)),
            Segment::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_joined_as_upstream_prints_them() {
        let spec = FieldPath::ROOT.child("spec");
        let list = spec.child("list");
        let element = list.index(2);
        assert_eq!(element.child("name").to_string(), "spec.list[2].name");
        assert_eq!(spec.key("a/b").to_string(), "spec[a/b]");
        assert_eq!(spec.entry("a").to_string(), "spec.a");
        assert_eq!(FieldPath::ROOT.entry("a").to_string(), ".a");
        assert_eq!(
            FieldPath::start("status").child("x").to_string(),
            "status.x"
        );
        assert_eq!(FieldPath::ROOT.index(0).to_string(), "[0]");
    }
}
