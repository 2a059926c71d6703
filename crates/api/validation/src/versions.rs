//! Semantic versions (semver.org), and `apiVersion`s.

use api_meta::names;
use std::cmp::Ordering;

/// A semantic version. Build metadata has no influence on the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseVersion {
    numbers: [u64; 3],
    pre_release: Vec<Identifier>,
}

/// A part of a pre-release. Numbers are lower than texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl ReleaseVersion {
    /// Parses `MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (rest, build) = match text.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (text, None),
        };
        let (core, pre_release) = match rest.split_once('-') {
            Some((core, pre_release)) => (core, Some(pre_release)),
            None => (rest, None),
        };
        let numbers: Vec<u64> = core.split('.').map(parse_number).collect::<Option<_>>()?;
        let parts = pre_release.map(|parts| parts.split('.').map(parse_identifier).collect());
        let is_build = |part: &str| !part.is_empty() && part.bytes().all(is_identifier_byte);
        if build.is_some_and(|build| !build.split('.').all(is_build)) {
            return None;
        }
        Some(ReleaseVersion {
            numbers: numbers.try_into().ok()?,
            pre_release: parts.unwrap_or_else(|| Some(Vec::new()))?,
        })
    }

    /// Returns whether this is 0.0.0.
    pub(crate) fn is_zero(&self) -> bool {
        self.numbers == [0; 3] && self.pre_release.is_empty()
    }

    /// Compares the precedence of two versions.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        // A version is higher than its pre-releases.
        let released = |version: &Self| version.pre_release.is_empty();
        let pre_release = match (released(self), released(other)) {
            (false, false) => self.pre_release.cmp(&other.pre_release),
            (a, b) => a.cmp(&b),
        };
        numbers.then(pre_release)
    }
}

fn is_identifier_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn parse_number(text: &str) -> Option<u64> {
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number && !has_leading_zero)
}

fn parse_identifier(text: &str) -> Option<Identifier> {
    if text.is_empty() || !text.bytes().all(is_identifier_byte) {
        None
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        parse_number(text).map(Identifier::Number)
    } else {
        Some(Identifier::Text(text.to_owned()))
    }
}

const FORM: &str = "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')";

/// Returns the problems of an `apiVersion`.
pub(crate) fn api_version_problems(api_version: &str) -> Vec<String> {
    let parts: Vec<&str> = api_version.split('/').collect();
    let (group, version) = match parts.as_slice() {
        [version] => (None, *version),
        [group, version] => (Some(*group), *version),
        _ => return vec![FORM.to_owned()],
    };
    let describe = |part: &str, text: &str, problems: Vec<String>| -> Vec<String> {
        match text {
            "" => vec![format!("{part} part: must be non-empty")],
            _ => problems
                .into_iter()
                .map(|problem| format!("{part} part: {problem}"))
                .collect(),
        }
    };
    let mut problems = group.map_or(Vec::new(), |group| {
        describe("group", group, names::dns1123_subdomain(group))
    });
    problems.extend(describe("version", version, names::dns1035_label(version)));
    problems
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_are_ordered_as_semver_says() {
        let ordered = [
            "0.0.0",
            "1.0.0-1",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.2.0",
            "1.10.0",
        ];
        for pair in ordered.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|text| ReleaseVersion::parse(text).unwrap());
            assert_eq!(a.compare(&b), Ordering::Less, "{pair:?}");
            assert_eq!(b.compare(&a), Ordering::Greater, "{pair:?}");
        }
        let [a, b] = ["1.0.0+a", "1.0.0+b.1"].map(|text| ReleaseVersion::parse(text).unwrap());
        assert_eq!(a.compare(&b), Ordering::Equal);
        for wrong in [
            "",
            "1",
            "1.2",
            "v1.2.3",
            "1.2.3.4",
            "01.2.3",
            "1.2.3-",
            "1.2.3-01",
            "1.2.3+",
            "1.2.x",
            "1.2.3-a_b",
        ] {
            assert_eq!(ReleaseVersion::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn api_versions_have_an_optional_group() {
        for (text, count) in [
            ("v1", 0),
            ("example.com/v1", 0),
            ("", 1),
            ("/v1", 1),
            ("example.com/", 1),
            ("a/b/c", 1),
            ("V1", 1),
            ("_/1", 2),
        ] {
            assert_eq!(api_version_problems(text).len(), count, "{text:?}");
        }
    }
}
