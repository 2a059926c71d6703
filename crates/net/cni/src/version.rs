//! Versions of the CNI specification.

use crate::error::{ErrorCode, PluginError};

/// Versions of configurations and results, the oldest first.
pub(crate) const SUPPORTED_VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// The newest of them.
pub(crate) const NEWEST_VERSION: &str = "1.1.0";

/// A version of the specification that the plugin has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpecVersion {
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

impl SpecVersion {
    /// Parses `cniVersion`. Without it, a configuration is of version 0.1.0.
    ///
    /// # Errors
    /// The plugin does not have the version.
    pub(crate) fn parse(text: &str) -> Result<Self, PluginError> {
        match text {
            "0.3.0" => Ok(Self::V0_3_0),
            "0.3.1" => Ok(Self::V0_3_1),
            "0.4.0" => Ok(Self::V0_4_0),
            "1.0.0" => Ok(Self::V1_0_0),
            "1.1.0" => Ok(Self::V1_1_0),
            other => {
                let found = if other.is_empty() { "0.1.0" } else { other };
                Err(PluginError::new(
                    ErrorCode::IncompatibleVersion,
                    format!(
                        "cniVersion {found:?} is not supported; set one of {}",
                        SUPPORTED_VERSIONS.join(", ")
                    ),
                ))
            }
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}
