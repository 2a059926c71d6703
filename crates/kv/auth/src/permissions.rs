//! Coverage of key ranges by permissions.

use proto_etcd::authpb::Permission;
use proto_etcd::authpb::permission::Type;

/// Requested access to a key or range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
}

/// A range with an exclusive end; `None`: no end.
type Interval<'a> = (&'a [u8], Option<Vec<u8>>);

fn to_interval<'a>(key: &'a [u8], end: &[u8]) -> Interval<'a> {
    match end {
        [] => {
            let mut next = key.to_vec();
            next.push(0);
            (key, Some(next))
        }
        [0] => (key, None),
        end => (key, Some(end.to_vec())),
    }
}

fn permission_allows(permission: &Permission, access: Access) -> bool {
    match (permission.perm_type(), access) {
        (Type::Readwrite, _) | (Type::Read, Access::Read) | (Type::Write, Access::Write) => true,
        (Type::Read, Access::Write) | (Type::Write, Access::Read) => false,
    }
}

/// Returns whether the permissions together cover every key of a range.
pub(crate) fn covers_range<'a>(
    permissions: impl Iterator<Item = &'a Permission>,
    key: &[u8],
    end: &[u8],
    access: Access,
) -> bool {
    let mut granted: Vec<Interval<'_>> = permissions
        .filter(|permission| permission_allows(permission, access))
        .map(|permission| to_interval(&permission.key, &permission.range_end))
        .collect();
    // The union of all permissions counts, as in etcd's interval tree. Sorted by start, one pass
    // finds a gap.
    granted.sort();
    let (from, wanted_end) = to_interval(key, end);
    let mut reached = from.to_vec();
    for (from, end) in granted {
        if from > reached.as_slice() {
            break;
        }
        match end {
            None => return true,
            Some(end) if end > reached => reached = end,
            Some(_) => {}
        }
    }
    // A request without an end is covered only by a permission without one. An empty range is
    // covered by none.
    wanted_end.is_some_and(|end| reached >= end && end.as_slice() > key)
}

/// Returns whether the range of a permission is valid.
pub(crate) fn is_valid_range(key: &[u8], end: &[u8]) -> bool {
    end.is_empty() || end == [0] || key < end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(kind: Type, key: &'static str, end: &'static str) -> Permission {
        Permission {
            perm_type: kind.into(),
            key: key.into(),
            range_end: end.into(),
        }
    }

    #[test]
    fn adjacent_permissions_cover_a_range_together() {
        let granted = [
            permission(Type::Read, "a", "c"),
            permission(Type::Readwrite, "c", "e"),
            permission(Type::Write, "x", "\0"),
            permission(Type::Read, "k", ""),
        ];
        let read = |key: &str, end: &str| {
            covers_range(granted.iter(), key.as_bytes(), end.as_bytes(), Access::Read)
        };
        let write = |key: &str, end: &str| {
            covers_range(
                granted.iter(),
                key.as_bytes(),
                end.as_bytes(),
                Access::Write,
            )
        };
        assert!(
            read("a", "") && read("a", "e") && read("b", "d") && read("k", "") && read("dzz", "")
        );
        assert!(
            !read("a", "f")
                && !read("e", "")
                && !read("a", "\0")
                && !read("k", "l")
                && !read("x", "")
        );
        assert!(write("c", "e") && write("x", "") && write("x", "\0") && write("y", "\0"));
        assert!(!write("a", "") && !write("w", "\0") && !write("b", "d"));
    }

    /// Permissions, a requested range, and whether the range is covered.
    #[test]
    fn range_is_covered_only_without_gaps() {
        type Ranges = &'static [(&'static str, &'static str)];
        let cases: [(Ranges, &str, &str, bool); 16] = [
            (&[], "a", "", false),
            (&[("a", "")], "a", "", true),
            (&[("a", "")], "a\0", "", false),
            (&[("a", "")], "a", "a\0", true),
            (&[("a", "b")], "b", "", false),
            (&[("a", "b"), ("b", "c")], "a", "c", true),
            (&[("b", "c"), ("a", "b")], "a", "c", true),
            (&[("a", "b"), ("bb", "c")], "a", "c", false),
            (&[("a", "d"), ("b", "c")], "a", "d", true),
            (&[("a", "c"), ("b", "e")], "a", "d", true),
            (&[("a", "\0")], "b", "\0", true),
            (&[("a", "z")], "a", "\0", false),
            (&[("a", "m"), ("k", "\0")], "a", "\0", true),
            (&[("\0", "\0")], "\0", "\0", true),
            (&[("b", "\0")], "\0", "\0", false),
            (&[("a", "z")], "c", "b", false),
        ];
        for (granted, key, end, expect) in cases {
            let granted: Vec<_> = granted
                .iter()
                .map(|(key, end)| permission(Type::Read, key, end))
                .collect();
            let covered =
                covers_range(granted.iter(), key.as_bytes(), end.as_bytes(), Access::Read);
            assert_eq!(covered, expect, "{key:?} to {end:?} with {granted:?}");
        }
    }

    #[test]
    fn permission_type_must_match_the_access() {
        for (kind, read, write) in [
            (Type::Read, true, false),
            (Type::Write, false, true),
            (Type::Readwrite, true, true),
        ] {
            let granted = [permission(kind, "a", "")];
            for (access, expect) in [(Access::Read, read), (Access::Write, write)] {
                assert_eq!(
                    covers_range(granted.iter(), b"a", b"", access),
                    expect,
                    "{kind:?} for {access:?}"
                );
            }
        }
    }

    #[test]
    fn permission_range_must_not_be_empty() {
        for (key, end, valid) in [
            ("a", "", true),
            ("a", "b", true),
            ("a", "\0", true),
            ("a", "a", false),
            ("b", "a", false),
        ] {
            assert_eq!(
                is_valid_range(key.as_bytes(), end.as_bytes()),
                valid,
                "{key:?} to {end:?}"
            );
        }
    }
}
