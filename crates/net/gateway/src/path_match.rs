//! Matches of paths, by whole elements.

/// A match of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// The whole path, including a trailing slash.
    Exact(String),
    /// Whole elements of the path, without a trailing slash; empty for all paths.
    Prefix(String),
}

impl PathMatch {
    /// Returns a match of a prefix. A trailing slash is ignored.
    pub fn prefix(path: &str) -> Self {
        Self::Prefix(path.strip_suffix('/').unwrap_or(path).to_owned())
    }

    /// Returns whether a path matches.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_as_in_the_table_of_the_ingress_documentation() {
        let exact = |path: &str| PathMatch::Exact(path.to_owned());
        for (path, request, is_match) in [
            (PathMatch::prefix("/"), "/any/path", true),
            (exact("/foo"), "/foo", true),
            (exact("/foo"), "/bar", false),
            (exact("/foo"), "/foo/", false),
            (exact("/foo/"), "/foo", false),
            (PathMatch::prefix("/foo"), "/foo", true),
            (PathMatch::prefix("/foo"), "/foo/", true),
            (PathMatch::prefix("/foo/"), "/foo", true),
            (PathMatch::prefix("/foo/"), "/foo/", true),
            (PathMatch::prefix("/aaa/bb"), "/aaa/bbb", false),
            (PathMatch::prefix("/aaa/bbb"), "/aaa/bbb", true),
            (PathMatch::prefix("/aaa/bbb/"), "/aaa/bbb", true),
            (PathMatch::prefix("/aaa/bbb"), "/aaa/bbb/", true),
            (PathMatch::prefix("/aaa/bbb"), "/aaa/bbb/ccc", true),
            (PathMatch::prefix("/aaa/bbb"), "/aaa/bbbxyz", false),
        ] {
            assert_eq!(path.matches(request), is_match, "{path:?} {request}");
        }
    }
}
