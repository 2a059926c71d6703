//! The error of a path.

/// A path that is rejected before it is parsed further.
#[derive(Debug, PartialEq, Eq)]
pub enum BadPath {
    /// Not UTF-8, or a broken escape, or a NUL.
    Malformed,
    /// Has `.`, `..` or empty segments; holds the clean form.
    Unclean(String),
}
