//! The releases of Kubernetes that introduce, deprecate and remove the built-in kinds.
//!
//! Lines of the data file are `GROUP VERSION KIND NAME=VALUE..`, with a dash for the core group.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use thiserror::Error;

use crate::Resource;

const DATA: &str = include_str!("../data/lifecycle-v1.36.txt");

static LIFECYCLES: LazyLock<HashMap<Key, Lifecycle>> =
    LazyLock::new(|| DATA.lines().filter_map(parse_line).collect());

type Key = (&'static str, &'static str, &'static str);

/// A minor release of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl Release {
    /// The release that is implemented.
    pub const CURRENT: Self = Self::new(1, 36);

    /// Makes a release of its two numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Returns the release so many minor releases before this one.
    #[must_use]
    pub const fn before(self, count: u16) -> Self {
        Self::new(self.major, self.minor.saturating_sub(count))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

/// A text that names no minor release.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no release of the form 1.35")]
pub struct ReleaseError(String);

impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let parse = || {
            let (major, minor) = text.split_once('.')?;
            Some(Self::new(major.parse().ok()?, minor.parse().ok()?))
        };
        parse().ok_or_else(|| ReleaseError(text.to_owned()))
    }
}

/// The lifecycle of a kind in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifecycle {
    introduced: Release,
    deprecated: Option<Release>,
    removed: Option<Release>,
    /// `GROUP/VERSION/KIND`.
    replacement: Option<&'static str>,
}

/// Returns whether a release has a version of a resource. One without data is in each release.
pub(crate) fn is_introduced(resource: &Resource, release: Release) -> bool {
    find(resource).is_none_or(|lifecycle| lifecycle.introduced <= release)
}

/// A version of a kind that is deprecated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// The warning for clients.
    pub warning: String,
    /// The release that removes the version.
    pub removed: Option<Release>,
}

/// Returns the deprecation of a version of a resource in the current release.
#[must_use]
pub fn find_deprecation(resource: &Resource) -> Option<Deprecation> {
    use fmt::Write;

    let lifecycle = find(resource)?;
    let deprecated = lifecycle.deprecated?;
    if deprecated > Release::CURRENT {
        return None;
    }
    let (version, kind) = (resource.api_version(), &resource.kind);
    let mut text = format!("{version} {kind} is deprecated in v{deprecated}+");
    // Writing to a string can't fail.
    if let Some(removed) = lifecycle.removed {
        let _ = write!(text, ", unavailable in v{removed}+");
    }
    if let Some((version, kind)) = lifecycle.replacement.and_then(|kind| kind.rsplit_once('/')) {
        let _ = write!(text, "; use {version} {kind}");
    }
    Some(Deprecation {
        warning: text,
        removed: lifecycle.removed,
    })
}

fn find(resource: &Resource) -> Option<Lifecycle> {
    let key: (&str, &str, &str) = (&resource.group, &resource.version, &resource.kind);
    LIFECYCLES.get(&key).copied()
}

fn parse_line(line: &'static str) -> Option<(Key, Lifecycle)> {
    let mut words = line.split(' ').filter(|_| !line.starts_with('#'));
    let (group, version, kind) = (words.next()?, words.next()?, words.next()?);
    let values: Vec<_> = words.filter_map(|word| word.split_once('=')).collect();
    let value = |name| {
        values
            .iter()
            .find_map(|(key, value)| (*key == name).then_some(*value))
    };
    let release = |name| value(name).and_then(|text: &str| text.parse().ok());
    let group = if group == "-" { "" } else { group };
    let lifecycle = Lifecycle {
        introduced: release("introduced")?,
        deprecated: release("deprecated"),
        removed: release("removed"),
        replacement: value("replacement"),
    };
    Some(((group, version, kind), lifecycle))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_line_is_the_life_of_a_kind() {
        assert_eq!(LIFECYCLES.len(), DATA.lines().count() - 1);
        for (kind, life) in LIFECYCLES.iter() {
            assert!(
                life.deprecated
                    .is_none_or(|release| release > life.introduced),
                "{kind:?}"
            );
            assert!(
                life.removed
                    .is_none_or(|release| life.deprecated < Some(release)),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn served_resources_are_introduced_and_not_removed() {
        // Three alpha kinds have no data; upstream serves them in each release that is emulated.
        let without = ["StorageVersion", "PodGroup", "Workload"];
        for resource in crate::resources().iter() {
            if resource.storage.is_none() || without.contains(&&*resource.kind) {
                continue;
            }
            let life = find(resource).unwrap();
            assert!(life.introduced <= Release::CURRENT, "{resource:?}");
            assert!(
                life.removed
                    .is_none_or(|release| release > Release::CURRENT),
                "{resource:?}"
            );
        }
    }

    #[test]
    fn deprecated_versions_have_a_warning() {
        for (group, version, plural, expect) in [
            ("", "v1", "pods", None),
            (
                "",
                "v1",
                "endpoints",
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            ),
            (
                "",
                "v1",
                "componentstatuses",
                Some("v1 ComponentStatus is deprecated in v1.19+"),
            ),
            (
                "admissionregistration.k8s.io",
                "v1alpha1",
                "mutatingadmissionpolicies",
                Some(
                    "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicy is deprecated in \
                     v1.35+, unavailable in v1.38+",
                ),
            ),
            // Deprecated in a later release.
            (
                "admissionregistration.k8s.io",
                "v1beta1",
                "mutatingadmissionpolicies",
                None,
            ),
        ] {
            let resource = crate::find(group, version, plural).unwrap();
            let found = find_deprecation(resource).map(|found| found.warning);
            assert_eq!(found.as_deref(), expect, "{plural}");
        }
    }

    #[test]
    fn release_has_two_numbers() {
        assert_eq!("1.35".parse(), Ok(Release::new(1, 35)));
        assert_eq!(Release::CURRENT.before(3).to_string(), "1.33");
        for text in [
            "",
            "1",
            "1.",
            "1.35.0",
            "v1.35",
            "1.x",
            "-1.35",
            "1.99999999",
        ] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
    }
}
