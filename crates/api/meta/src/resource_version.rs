//! Comparison of resourceVersions, as in upstream's `apimachinery/pkg/util/resourceversion`. It has
//! a meaning for two objects of the same resource only.

use std::cmp::Ordering;

/// Returns whether a text is a resourceVersion: a number of any length without leading zeros. Zero
/// is none, because lists and watches give it a meaning of its own.
#[must_use]
pub fn is_resource_version(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Compares two resourceVersions; `None` if a text is none.
#[must_use]
pub fn compare_resource_versions(a: &str, b: &str) -> Option<Ordering> {
    // Without leading zeros, the longer number is the greater one.
    let is_comparable = is_resource_version(a) && is_resource_version(b);
    is_comparable.then(|| (a.len(), a).cmp(&(b.len(), b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ordering::{Equal, Greater, Less};

    #[test]
    fn resource_versions_are_compared_as_numbers_of_any_length() {
        for (a, b, expect) in [
            ("5", "5", Some(Equal)),
            ("4", "5", Some(Less)),
            ("6", "5", Some(Greater)),
            ("10", "9", Some(Greater)),
            ("9", "10", Some(Less)),
            (
                "18446744073709551617",
                "18446744073709551616",
                Some(Greater),
            ),
            ("", "5", None),
            ("x", "5", None),
            ("-5", "5", None),
            ("05", "5", None),
            ("5", "0", None),
        ] {
            assert_eq!(compare_resource_versions(a, b), expect, "{a} {b}");
        }
    }
}
