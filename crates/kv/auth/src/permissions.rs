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
    fn intervals_join() {
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
}
