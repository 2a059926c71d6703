//! `--runtime-config` at start.

use api_kinds::{Resource, RuntimeConfig, RuntimeConfigError};
use std::sync::Arc;

/// Selects the built-in resources to serve, and logs what is not implemented.
pub(crate) fn select_resources(
    pairs: &[String],
) -> Result<Arc<[Arc<Resource>]>, RuntimeConfigError> {
    let built_in = RuntimeConfig::parse(pairs.iter().map(String::as_str))?.apply();
    if !built_in.missing.is_empty() {
        let missing = built_in.missing.join(", ");
        tracing::warn!(%missing, "--runtime-config enables APIs that are not implemented");
    }
    Ok(built_in.resources.into())
}
