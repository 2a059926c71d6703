//! All libraries of Kubernetes with the versions that have them.

use super::{
    authorizer, ip, list_extensions, lists, named_format, pattern, quantity, semver, sets, strings,
    urls,
};
use crate::library::Library;

/// Returns the libraries of all environments, with the versions of Kubernetes that have them, as
/// upstream's `baseOpts` (`pkg/cel/environment/base.go` of apiserver): strings in version 2, lists
/// in version 3. Not among them: the library for JSON Patch, which only mutating policies have, the
/// macro `cel.bind` of device selectors, and the libraries of cel-go that no environment of v1.36
/// has: `math`, `encoders`, `protos` and `regex`.
pub fn kubernetes_libraries() -> Vec<Library> {
    vec![
        urls::library(),
        pattern::library(),
        lists::library(),
        authorizer::library(),
        quantity::library(),
        // Two versions with one name, of which an environment has one: the older until 1.28.
        strings::old_library(),
        strings::library(),
        sets::library(),
        ip::ip_library(),
        ip::cidr_library(),
        named_format::library(),
        authorizer::selectors_library(),
        semver::library(),
        list_extensions::library(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(minor: u16) -> Vec<&'static str> {
        let all = kubernetes_libraries();
        all.iter()
            .filter(|library| library.is_enabled(minor))
            .map(|library| library.name)
            .collect()
    }

    #[test]
    fn libraries_appear_in_the_version_that_introduced_them() {
        let base = ["kubernetes.urls", "kubernetes.regex", "kubernetes.lists"];
        assert_eq!(
            names(25),
            [base.as_slice(), &["cel.lib.ext.strings"]].concat()
        );
        for (minor, name) in [
            (27, "kubernetes.authz"),
            (28, "kubernetes.quantity"),
            (29, "cel.lib.ext.sets"),
            (30, "kubernetes.net.ip"),
            (30, "kubernetes.net.cidr"),
            (31, "kubernetes.format"),
            (31, "kubernetes.authzSelectors"),
            (33, "kubernetes.Semver"),
            (34, "cel.lib.ext.lists"),
        ] {
            assert!(!names(minor - 1).contains(&name), "{name}");
            assert!(names(minor).contains(&name), "{name}");
        }
    }

    #[test]
    fn every_version_has_one_library_of_strings() {
        for minor in 0..40 {
            let count = names(minor)
                .iter()
                .filter(|name| **name == "cel.lib.ext.strings")
                .count();
            assert_eq!(count, 1, "1.{minor}");
        }
    }

    #[test]
    fn ids_of_overloads_are_unique_in_a_version() {
        let mut seen = BTreeSet::new();
        for library in kubernetes_libraries()
            .into_iter()
            .filter(|library| library.is_enabled(36))
        {
            for overload in library
                .functions
                .iter()
                .flat_map(|function| &function.overloads)
            {
                assert!(seen.insert(overload.id), "{}", overload.id);
            }
        }
        assert!(seen.len() > 100, "{}", seen.len());
    }
}
