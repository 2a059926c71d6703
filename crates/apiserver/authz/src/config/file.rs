//! Reads the file of `--authorization-config`.

use super::AuthorizerSpec;
use super::types::AuthorizationConfiguration;
use super::validate::validate_configuration;
use crate::message::aggregate_errors;
use apiserver_config::{ConfigFileError, parse_config, read_file};
use std::path::{Path, PathBuf};

const KIND: &str = "AuthorizationConfiguration";

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The file.
    pub path: PathBuf,
    /// Its content.
    pub content: Vec<u8>,
    /// The authorizers, in order.
    pub authorizers: Vec<AuthorizerSpec>,
}

/// Reads and validates the file.
///
/// # Errors
/// The file can't be read, or is no valid configuration.
pub fn read_authorization_config(path: &Path) -> Result<LoadedConfig, ConfigFileError> {
    let content = read_file(path)?;
    let authorizers = load_content(&content).map_err(|why| ConfigFileError::content(path, why))?;
    Ok(LoadedConfig {
        path: path.into(),
        content,
        authorizers,
    })
}

/// Validates the content of a file.
///
/// # Errors
/// The content is no valid configuration; the text names all fields that can't be used.
pub(crate) fn load_content(content: &[u8]) -> Result<Vec<AuthorizerSpec>, String> {
    let config: AuthorizationConfiguration = parse_config(content, KIND)?;
    validate_configuration(&config).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        aggregate_errors(&texts)
    })
}
