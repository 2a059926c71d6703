//! Levels and versions of the standards.

use api_meta::Meta;
use serde_json::Value;
use std::fmt;

/// Prefix of the labels that choose a level.
pub const PREFIX: &str = "pod-security.kubernetes.io/";

/// A level of the standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// No restrictions.
    #[default]
    Privileged,
    /// No known privilege escalation.
    Baseline,
    /// Hardened.
    Restricted,
}

impl Level {
    /// Parses a label's value.
    pub fn parse(text: &str) -> Option<Level> {
        match text {
            "privileged" => Some(Level::Privileged),
            "baseline" => Some(Level::Baseline),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }
}

/// The minor version of the standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The latest version.
    #[default]
    Latest,
    /// Version v1.N.
    Minor(u32),
}

impl Version {
    /// Parses a label's value.
    pub fn parse(text: &str) -> Option<Version> {
        if text == "latest" {
            return Some(Version::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        // v1.08 is not a version: upstream's expression permits no leading zero.
        let plain = minor == "0" || !minor.starts_with('0');
        (plain && minor.bytes().all(|b| b.is_ascii_digit()))
            .then(|| minor.parse().ok())
            .flatten()
            .map(Version::Minor)
    }

    /// Returns whether these are the standards of v1.N or later.
    pub fn is_at_least(self, minor: u32) -> bool {
        match self {
            Version::Latest => true,
            Version::Minor(own) => own >= minor,
        }
    }

    /// Returns this version, or v1.N if this one is later.
    pub fn limit_to(self, minor: u32) -> Version {
        match self {
            Version::Latest => Version::Minor(minor),
            Version::Minor(own) => Version::Minor(own.min(minor)),
        }
    }
}

/// A level at a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Level.
    pub level: Level,
    /// Version.
    pub version: Version,
}

impl Policy {
    /// Returns a namespace's policy for a mode. An invalid level counts as restricted, an invalid
    /// version as latest.
    pub fn from_labels(namespace: &Value, mode: &str) -> Policy {
        let level = namespace.label(&format!("{PREFIX}{mode}"));
        let version = namespace.label(&format!("{PREFIX}{mode}-version"));
        Policy {
            // A misspelled level fails closed. Validation rejects new ones.
            level: level
                .map(|l| Level::parse(l).unwrap_or(Level::Restricted))
                .unwrap_or_default(),
            version: version.and_then(Version::parse).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}
