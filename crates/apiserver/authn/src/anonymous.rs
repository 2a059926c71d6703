//! Requests without credentials.

/// Paths that accept requests without credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// All paths; authorization decides.
    AllPaths,
    /// Exactly these paths.
    Paths(Vec<String>),
    /// No path.
    #[default]
    Disabled,
}

impl Anonymous {
    /// Returns whether a path is open.
    pub fn allows_path(&self, path: &str) -> bool {
        match self {
            Anonymous::AllPaths => true,
            Anonymous::Paths(paths) => paths.iter().any(|allowed| allowed == path),
            Anonymous::Disabled => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_paths_are_exact() {
        let health = Anonymous::Paths(vec!["/livez".into()]);
        for (path, expect) in [
            ("/livez", true),
            ("/livez/etcd", false),
            ("/livezz", false),
            ("/api", false),
        ] {
            assert_eq!(health.allows_path(path), expect, "{path}");
        }
        assert!(Anonymous::AllPaths.allows_path("/api"));
        assert!(!Anonymous::Disabled.allows_path("/livez"));
    }
}
