//! Configuration files of components, made before they are written.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::files;

/// A configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// The content.
    pub(crate) content: String,
}

/// Writes the files whose content differs. The mode of an existing one stays, but for rights that a
/// new one does not have.
pub(crate) fn write_configs<'a>(configs: impl IntoIterator<Item = &'a ConfigFile>) -> Result<()> {
    for config in configs {
        files::update_file(&config.path, config.content.as_bytes())?;
    }
    Ok(())
}
