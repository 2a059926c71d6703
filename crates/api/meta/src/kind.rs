//! Kind of an object, as the rules of the API select on it.

/// Group, version and kind of an object, and its scope.
#[derive(Clone, Copy, Debug)]
pub struct Kind<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// True if the kind is namespaced.
    pub namespaced: bool,
}
