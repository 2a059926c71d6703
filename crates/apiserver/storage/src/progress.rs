//! Versions of etcd whose notifications of progress can be relied on.

/// The first patch of each minor release of etcd in which a notification of progress comes after
/// all events that it includes. In earlier ones it can overtake events of a watch that has just
/// begun (etcd issue 15220), and none comes while the watch is behind (17507). Kubernetes has the
/// same limits.
const ORDERED: [((u32, u32), u32); 2] = [((3, 4), 31), ((3, 5), 13)];

/// Returns whether progress may be requested from a member of this version. An unknown one is not
/// trusted.
pub(crate) fn is_ordered(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| {
        let digits = number.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse::<u32>().ok())
    });
    let mut next = || numbers.next().flatten();
    let (Some(major), Some(minor), Some(patch)) = (next(), next(), next()) else {
        return false;
    };
    let known = ORDERED
        .iter()
        .find(|(minor_release, _)| *minor_release == (major, minor));
    match known {
        Some((_, first)) => patch >= *first,
        None => (major, minor) > (3, 5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_ordered_notifications_are_those_of_kubernetes() {
        for (version, expected) in [
            ("3.3.27", false),
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.5.0", false),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.5.13-rc.1", true),
            ("3.6.0-alpha.0", true),
            ("3.7.1", true),
            ("4.0.0", true),
            ("2.3.8", false),
            ("3.6", false),
            ("", false),
            ("latest", false),
        ] {
            assert_eq!(is_ordered(version), expected, "{version:?}");
        }
    }
}
