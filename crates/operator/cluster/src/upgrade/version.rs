//! Versions of programs, as `--version` prints them.

use std::cmp::Ordering;
use std::fmt;

/// A version. Its precedence is that of <https://semver.org/#spec-item-11>.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    text: String,
    core: [u64; 3],
    /// Identifiers of a pre-release; empty for a release.
    pre_release: Vec<String>,
}

impl Version {
    /// Parses a version such as `0.1.0`, or the part behind `+ironclad.` of one such as
    /// `v1.36.2+ironclad.0.1.0`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = match text.split_once("+ironclad.") {
            Some((_, own)) => own,
            None => text.strip_prefix('v').unwrap_or(text),
        };
        let (precise, _build) = text.split_once('+').unwrap_or((text, ""));
        let (core, pre_release) = match precise.split_once('-') {
            Some((core, identifiers)) => {
                (core, identifiers.split('.').map(str::to_owned).collect())
            }
            None => (precise, Vec::new()),
        };
        let numbers: Vec<u64> = core
            .split('.')
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        Some(Self {
            text: text.to_owned(),
            core: numbers.try_into().ok()?,
            pre_release,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Version {
    /// Compares by precedence: the build is ignored.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let precedence = match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => compare_identifiers(&self.pre_release, &other.pre_release),
        };
        self.core.cmp(&other.core).then(precedence)
    }
}

fn compare_identifiers(one: &[String], other: &[String]) -> Ordering {
    // Derived order of the tuples: a number is lower than a word.
    let key = |text: &String| match text.parse::<u64>() {
        Ok(number) => (0, number, String::new()),
        Err(_) => (1, 0, text.clone()),
    };
    one.iter().map(key).cmp(other.iter().map(key))
}

/// Returns the first and the last word of what `--version` prints: the name of the program, and its
/// version.
pub(super) fn split_output(output: &str) -> Option<(&str, &str)> {
    let mut words = output.lines().next()?.split_whitespace();
    let name = words.next()?;
    words.next_back().map(|version| (name, version))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_have_the_order_of_semantic_versioning() {
        let ascending = [
            "0.1.0-alpha",
            "0.1.0-alpha.1",
            "0.1.0-alpha.beta",
            "0.1.0-beta.2",
            "0.1.0-beta.11",
            "0.1.0",
            "v1.36.2+ironclad.0.2.0",
            "v0.10.0",
            "1.0.0",
        ];
        let parsed = ascending.map(|text| Version::parse(text).unwrap());
        for pair in parsed.windows(2) {
            let order = pair[0].compare(&pair[1]);
            assert_eq!(order, Ordering::Less, "{} {}", pair[0], pair[1]);
        }
        let builds = ["0.1.0+1", "0.1.0+2"].map(|text| Version::parse(text).unwrap());
        assert_eq!(builds[0].compare(&builds[1]), Ordering::Equal);
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "a.b.c",
            "1.2.-3",
            "1.2.99999999999999999999",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn output_of_a_program_has_its_name_and_version() {
        for (output, expected) in [
            ("kvstore 0.1.0\n", Some(("kvstore", "0.1.0"))),
            (
                "kubelet v1.36.2+ironclad.0.1.0\nmore",
                Some(("kubelet", "v1.36.2+ironclad.0.1.0")),
            ),
            ("kvstore\n", None),
            ("", None),
        ] {
            assert_eq!(split_output(output), expected, "{output:?}");
        }
    }
}
