//! The types of authorizers.

use std::str::FromStr;

/// A value of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// RBAC: roles and bindings.
    Rbac,
    /// The Node authorizer: requests of kubelets.
    Node,
    /// Allows every request.
    AlwaysAllow,
    /// Denies every request.
    AlwaysDeny,
    /// A server that reviews requests.
    Webhook,
    /// ABAC: the policies of a file.
    Abac,
}

/// Each mode with its name.
const MODES: [(&str, Mode); 6] = [
    ("AlwaysAllow", Mode::AlwaysAllow),
    ("AlwaysDeny", Mode::AlwaysDeny),
    ("ABAC", Mode::Abac),
    ("Webhook", Mode::Webhook),
    ("RBAC", Mode::Rbac),
    ("Node", Mode::Node),
];

impl Mode {
    /// Returns the names of all modes.
    pub fn names() -> [&'static str; MODES.len()] {
        MODES.map(|(name, _)| name)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        let found = MODES.iter().find(|(_, mode)| *mode == self);
        found.map_or("", |(name, _)| name)
    }
}

/// An unknown mode.
#[derive(Debug, thiserror::Error)]
#[error("unknown authorization mode {0:?}; use {names}", names = Mode::names().join(", "))]
pub struct UnknownMode(pub String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let found = MODES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, mode)| *mode)
            .ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

/// A list of modes that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ModesError {
    /// One of them is unknown.
    #[error(transparent)]
    Unknown(#[from] UnknownMode),
    /// The list is empty.
    #[error("at least one authorization mode must be given")]
    Empty,
    /// One of them is given twice.
    #[error("the authorization mode {0:?} is given more than once")]
    Repeated(String),
}

/// Parses the values of `--authorization-mode`.
///
/// # Errors
/// An unknown or repeated mode, or none at all.
pub fn parse_modes(names: &[String]) -> Result<Vec<Mode>, ModesError> {
    let mut modes = Vec::new();
    for name in names {
        let mode = name.parse()?;
        if modes.contains(&mode) {
            return Err(ModesError::Repeated(name.clone()));
        }
        modes.push(mode);
    }
    if modes.is_empty() {
        return Err(ModesError::Empty);
    }
    Ok(modes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_authorization_mode_is_rejected() {
        for (text, expect) in [
            ("RBAC", Some(Mode::Rbac)),
            ("Node", Some(Mode::Node)),
            ("rbac", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Mode>().ok(), expect, "{text:?}");
        }
    }

    #[test]
    fn modes_that_repeat_or_are_absent_are_rejected() {
        for (names, accepted) in [
            (&["Node", "RBAC"][..], true),
            (&["AlwaysDeny"], true),
            (&["RBAC", "Node", "RBAC"], false),
            (&["RBAC", "rbac"], false),
            (&[], false),
        ] {
            let list: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(parse_modes(&list).is_ok(), accepted, "{names:?}");
        }
    }
}
