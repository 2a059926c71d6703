//! Reads the file of `--authentication-config`.

use super::config::{AnonymousConfig, AuthenticationConfiguration};
use super::rules::IssuerRules;
use super::validate::validate_configuration;
use crate::anonymous::Anonymous;
use crate::options_error::{OptionsError, read_file};
use apiserver_config::parse_config;
use std::path::PathBuf;

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
    path: &PathBuf,
    disallowed: &[String],
) -> Result<LoadedConfiguration, OptionsError> {
    let content = read_file(path)?;
    load_content(content, disallowed).map_err(|why| OptionsError::Content {
        path: path.clone(),
        why,
    })
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
