//! Semantic versions (semver.org 2.0.0), with the messages of the parser that upstream uses.

use std::cmp::Ordering;
use std::fmt;

use super::error::Error;
use super::quote::quote;

/// A semantic version. Comparisons ignore the build metadata.
#[derive(Clone, Debug)]
pub struct SemanticVersion {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    prerelease: Vec<Identifier>,
    build: Vec<String>,
}

/// Part of a prerelease. Numbers are below texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl SemanticVersion {
    /// Parses a version that follows the specification.
    ///
    /// # Errors
    /// The first defect of the text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::new("Version string empty"));
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(Error::new("No Major.Minor.Patch elements found"));
        };
        let major = parse_number(major, "major", "Major")?;
        let minor = parse_number(minor, "minor", "Minor")?;
        // Build metadata starts at the first plus sign and may contain dashes, so it is split off
        // first.
        let (rest, build) = split_metadata(rest, '+');
        let (patch, prerelease) = split_metadata(rest, '-');
        let patch = parse_number(patch, "patch", "Patch")?;
        let prerelease = prerelease.map_or(Ok(Vec::new()), |text| {
            text.split('.').map(parse_identifier).collect()
        })?;
        let build = build.map_or(Ok(Vec::new()), |text| {
            text.split('.').map(parse_build).collect()
        })?;
        Ok(SemanticVersion {
            major,
            minor,
            patch,
            prerelease,
            build,
        })
    }

    /// Parses a version that may start with `v`, have leading zeros, or lack minor and patch.
    pub(crate) fn parse_normalized(text: &str) -> Result<Self, Error> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(trim_zeros).collect();
        // Otherwise the missing `.0` would be appended to the prerelease.
        if parts.len() < 3 && parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            let message = "short version cannot contain PreRelease/Build meta data";
            return Err(Error::new(message));
        }
        parts.resize(3, "0".to_owned());
        SemanticVersion::parse(&parts.join("."))
    }

    /// Returns whether this is 0.0.0.
    pub fn is_zero(&self) -> bool {
        (self.major, self.minor, self.patch) == (0, 0, 0) && self.prerelease.is_empty()
    }
}

fn trim_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    // A part such as `00-a` must keep one zero before its suffix.
    if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
        trimmed.to_owned()
    } else {
        format!("0{trimmed}")
    }
}

fn split_metadata(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((front, metadata)) => (front, Some(metadata)),
        None => (text, None),
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn has_leading_zero(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

fn parse_number(text: &str, name: &str, title: &str) -> Result<u64, Error> {
    if !is_number(text) {
        return Err(Error(format!(
            "Invalid character(s) found in {name} number {}",
            quote(text)
        )));
    }
    if has_leading_zero(text) {
        return Err(Error(format!(
            "{title} number must not contain leading zeroes {}",
            quote(text)
        )));
    }
    parse_u64(text)
}

fn parse_u64(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| {
        // Only digits get here, so a text is either empty or too large. The messages are Go's.
        let reason = if text.is_empty() {
            "invalid syntax"
        } else {
            "value out of range"
        };
        Error(format!(
            "strconv.ParseUint: parsing {}: {reason}",
            quote(text)
        ))
    })
}

fn parse_identifier(text: &str) -> Result<Identifier, Error> {
    if text.is_empty() {
        return Err(Error::new("Prerelease is empty"));
    }
    if is_number(text) {
        if has_leading_zero(text) {
            return Err(Error(format!(
                "Numeric PreRelease version must not contain leading zeroes {}",
                quote(text)
            )));
        }
        return parse_u64(text).map(Identifier::Number);
    }
    if is_identifier(text) {
        return Ok(Identifier::Text(text.to_owned()));
    }
    Err(Error(format!(
        "Invalid character(s) found in prerelease {}",
        quote(text)
    )))
}

fn parse_build(text: &str) -> Result<String, Error> {
    if text.is_empty() {
        return Err(Error::new("Build meta data is empty"));
    }
    if is_identifier(text) {
        return Ok(text.to_owned());
    }
    Err(Error(format!(
        "Invalid character(s) found in build meta data {}",
        quote(text)
    )))
}

impl Ord for SemanticVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |v: &Self| (v.major, v.minor, v.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| {
            // A release is above all of its prereleases.
            match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                _ => self.prerelease.cmp(&other.prerelease),
            }
        })
    }
}

impl PartialOrd for SemanticVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SemanticVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SemanticVersion {}

impl fmt::Display for SemanticVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (index, identifier) in self.prerelease.iter().enumerate() {
            let separator = if index == 0 { '-' } else { '.' };
            match identifier {
                Identifier::Number(number) => write!(f, "{separator}{number}")?,
                Identifier::Text(text) => write!(f, "{separator}{text}")?,
            }
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build.join("."))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_are_ordered_as_the_specification_says() {
        // The order of the example in section 11 of semver.org.
        let ordered = [
            "0.9.9",
            "1.0.0-1",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.10.0",
        ];
        for pair in ordered.windows(2) {
            let [low, high] = pair else { unreachable!() };
            let parse = |text: &str| SemanticVersion::parse(text).unwrap();
            assert!(parse(low) < parse(high), "{low} {high}");
        }
    }

    #[test]
    fn build_metadata_is_shown_and_not_compared() {
        let version = SemanticVersion::parse("1.2.3-a.4+b.5").unwrap();
        assert_eq!(version.to_string(), "1.2.3-a.4+b.5");
        assert_eq!(version, SemanticVersion::parse("1.2.3-a.4").unwrap());
    }

    #[test]
    fn zero_has_no_prerelease() {
        for (text, expect) in [
            ("0.0.0", true),
            ("0.0.0+a", true),
            ("0.0.0-0", false),
            ("0.0.1", false),
        ] {
            let version = SemanticVersion::parse(text).unwrap();
            assert_eq!(version.is_zero(), expect, "{text}");
        }
    }

    #[test]
    fn bad_versions_are_rejected() {
        for (text, message) in [
            ("", "Version string empty"),
            ("1.2", "No Major.Minor.Patch elements found"),
            (
                "v1.2.3",
                "Invalid character(s) found in major number \"v1\"",
            ),
            (
                "1.02.3",
                "Minor number must not contain leading zeroes \"02\"",
            ),
            (
                "1.2.3.4",
                "Invalid character(s) found in patch number \"3.4\"",
            ),
            (
                "1.2.3 ",
                "Invalid character(s) found in patch number \"3 \"",
            ),
            ("1..3", "strconv.ParseUint: parsing \"\": invalid syntax"),
            (
                "1.2.18446744073709551616",
                "strconv.ParseUint: parsing \"18446744073709551616\": value out of range",
            ),
            ("1.2.3-", "Prerelease is empty"),
            ("1.2.3-a..b", "Prerelease is empty"),
            (
                "1.2.3-01",
                "Numeric PreRelease version must not contain leading zeroes \"01\"",
            ),
            ("1.2.3-é", "Invalid character(s) found in prerelease \"é\""),
            ("1.2.3+", "Build meta data is empty"),
            (
                "1.2.3+a_b",
                "Invalid character(s) found in build meta data \"a_b\"",
            ),
        ] {
            let error = SemanticVersion::parse(text).err().map(|error| error.0);
            assert_eq!(error.as_deref(), Some(message), "{text}");
        }
    }

    #[test]
    fn lenient_form_is_normalized() {
        for (text, version) in [
            ("v1.2.3", "1.2.3"),
            ("1", "1.0.0"),
            ("01.002", "1.2.0"),
            ("00.0.00", "0.0.0"),
            ("1.2.00-a+b", "1.2.0-a+b"),
        ] {
            let parsed = SemanticVersion::parse_normalized(text).unwrap();
            assert_eq!(parsed.to_string(), version, "{text}");
        }
        for text in [
            "", "v", " 1.0.0", "1.0.0 ", "1-a", "1.2+b", "vv1.0.0", "1. 0.0",
        ] {
            assert!(SemanticVersion::parse_normalized(text).is_err(), "{text}");
        }
    }
}
