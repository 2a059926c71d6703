//! Reads the file of `--authentication-config`.

use super::config::{AnonymousConfig, AuthenticationConfiguration};
use super::rules::IssuerRules;
use super::validate::validate_configuration;
use crate::anonymous::Anonymous;
use apiserver_config::{ConfigFileError, parse_config, read_file};
use std::path::Path;

const KIND: &str = "AuthenticationConfiguration";

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct LoadedConfiguration {
    /// The content of the file.
    pub content: Vec<u8>,
    /// Requests without credentials; `None` if the file does not mention them.
    pub anonymous: Option<Anonymous>,
    /// The issuers.
    pub(super) issuers: Vec<IssuerRules>,
}

/// Reads and validates the file. `disallowed` has the issuers of ServiceAccount tokens.
///
/// # Errors
/// The file can't be read, or is no valid configuration.
pub fn read_authentication_config(
    path: &Path,
    disallowed: &[String],
) -> Result<LoadedConfiguration, ConfigFileError> {
    let content = read_file(path)?;
    load_content(content, disallowed).map_err(|why| ConfigFileError::content(path, why))
}

/// Validates the content of a file. `disallowed` has the issuers of ServiceAccount tokens.
///
/// # Errors
/// All fields that can't be used.
pub fn check_authentication_config(content: Vec<u8>, disallowed: &[String]) -> Result<(), String> {
    load_content(content, disallowed).map(drop)
}

/// Validates the content of a file; the error names all fields that can't be used.
pub(super) fn load_content(
    content: Vec<u8>,
    disallowed: &[String],
) -> Result<LoadedConfiguration, String> {
    let config = parse_config::<AuthenticationConfiguration>(&content, KIND)?;
    let issuers = validate_configuration(&config, disallowed).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.join(", ")
    })?;
    Ok(LoadedConfiguration {
        anonymous: config.anonymous.as_ref().map(read_anonymous),
        issuers,
        content,
    })
}

fn read_anonymous(config: &AnonymousConfig) -> Anonymous {
    let paths = config.conditions.iter();
    let paths: Vec<String> = paths.map(|condition| condition.path.clone()).collect();
    match (config.enabled, paths.is_empty()) {
        (false, _) => Anonymous::Disabled,
        (true, true) => Anonymous::AllPaths,
        (true, false) => Anonymous::Paths(paths),
    }
}
