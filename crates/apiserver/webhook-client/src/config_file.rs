//! Files of configurations.

use api_codec::yaml;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A configuration that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("can't read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The content can't be used.
    #[error("{path} can't be used: {why}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl ConfigError {
    /// Creates the error of a content.
    pub fn invalid(path: &Path, why: String) -> Self {
        ConfigError::Invalid {
            path: path.into(),
            why,
        }
    }
}

/// Reads a file of YAML or JSON.
///
/// # Errors
/// The file can't be read or parsed.
pub fn read_config(path: &Path) -> Result<Value, ConfigError> {
    let bytes = std::fs::read(path).map_err(|source| ConfigError::Read {
        path: path.into(),
        source,
    })?;
    let parsed = yaml::parse(&bytes);
    let (config, _) = parsed.map_err(|error| ConfigError::invalid(path, error.to_string()))?;
    Ok(config)
}
