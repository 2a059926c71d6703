//! The operation and its parameters, which the runtime sets as environment variables.

use std::path::PathBuf;

use net_link::DeviceName;

use crate::error::{ErrorCode, PluginError};

/// The variable with the operation. Without it, the process is not run by a runtime.
pub const COMMAND_VARIABLE: &str = "CNI_COMMAND";
/// Limit of a container's identifier in bytes; runtimes use 64 digits.
const MAX_CONTAINER_ID: usize = 256;

/// Environment of the plugin, as the runtime sets it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `CNI_COMMAND`.
    pub command: String,
    /// `CNI_CONTAINERID`.
    pub container: String,
    /// `CNI_NETNS`.
    pub namespace: String,
    /// `CNI_IFNAME`.
    pub interface: String,
}

impl Environment {
    /// Reads the variables of the process. One that is no text counts as absent.
    #[must_use]
    pub fn read() -> Self {
        let read = |name| std::env::var(name).unwrap_or_default();
        Self {
            command: read(COMMAND_VARIABLE),
            container: read("CNI_CONTAINERID"),
            namespace: read("CNI_NETNS"),
            interface: read("CNI_IFNAME"),
        }
    }
}

/// An attachment of a container: one of its interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) container: String,
    pub(crate) interface: DeviceName,
}

/// An operation with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    Add(Attachment, PathBuf),
    Delete(Attachment),
    Check(Attachment, PathBuf),
    Collect,
    Status,
    Version,
}

impl Operation {
    /// Parses the environment.
    ///
    /// # Errors
    /// The operation is unknown, or a variable that it needs is absent or not valid.
    pub(crate) fn parse(environment: &Environment) -> Result<Self, PluginError> {
        let attachment = || Attachment::parse(environment);
        Ok(match environment.command.as_str() {
            "ADD" => Self::Add(attachment()?, parse_namespace(environment)?),
            "DEL" => Self::Delete(attachment()?),
            "CHECK" => Self::Check(attachment()?, parse_namespace(environment)?),
            "GC" => Self::Collect,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            other => {
                let message = format!(
                    "CNI_COMMAND {other:?} is unknown; it is ADD, DEL, CHECK, GC, STATUS or VERSION"
                );
                return Err(invalid(message));
            }
        })
    }
}

impl Attachment {
    fn parse(environment: &Environment) -> Result<Self, PluginError> {
        let container = &environment.container;
        if container.len() > MAX_CONTAINER_ID || !is_identifier(container) {
            return Err(invalid(format!(
                "CNI_CONTAINERID {container:?} is not valid; it begins with a letter or digit, and has letters, digits, \
                 '-', '_' and '.' only"
            )));
        }
        let name = &environment.interface;
        let interface = DeviceName::parse(name).ok_or_else(|| {
            invalid(format!(
                "CNI_IFNAME {name:?} is not valid; it has 1 to 15 letters, digits, '-', '_' and '.'"
            ))
        })?;
        Ok(Self {
            container: container.clone(),
            interface,
        })
    }
}

/// Returns whether a text is a name by the specification's pattern, and so of a file.
pub(crate) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn parse_namespace(environment: &Environment) -> Result<PathBuf, PluginError> {
    let path = PathBuf::from(&environment.namespace);
    if !path.is_absolute() {
        return Err(invalid(format!(
            "CNI_NETNS {:?} is not valid; it is the path of a network namespace",
            environment.namespace
        )));
    }
    Ok(path)
}

fn invalid(message: String) -> PluginError {
    PluginError::new(ErrorCode::InvalidEnvironment, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(command: &str, container: &str, namespace: &str, interface: &str) -> bool {
        let environment = Environment {
            command: command.to_owned(),
            container: container.to_owned(),
            namespace: namespace.to_owned(),
            interface: interface.to_owned(),
        };
        Operation::parse(&environment).is_ok()
    }

    #[test]
    fn variables_that_could_name_another_file_are_refused() {
        assert!(parse("ADD", "a1", "/run/netns/a", "eth0"));
        assert!(parse("DEL", "a1", "", "eth0"));
        assert!(parse("GC", "", "", ""));
        for (container, namespace, interface) in [
            ("", "/n", "eth0"),
            ("../a", "/n", "eth0"),
            ("-a", "/n", "eth0"),
            ("a/b", "/n", "eth0"),
            ("a\nb", "/n", "eth0"),
            (&"a".repeat(257), "/n", "eth0"),
            ("a", "", "eth0"),
            ("a", "n", "eth0"),
            ("a", "/n", ""),
            ("a", "/n", ".."),
            ("a", "/n", "eth0:1"),
            ("a", "/n", "a/b"),
            ("a", "/n", "sixteen-letters0"),
        ] {
            let case = format!("{container:?} {namespace:?} {interface:?}");
            assert!(!parse("ADD", container, namespace, interface), "{case}");
            assert!(!parse("CHECK", container, namespace, interface), "{case}");
        }
        assert!(!parse("add", "a", "/n", "eth0"));
        assert!(!parse("", "a", "/n", "eth0"));
    }
}
