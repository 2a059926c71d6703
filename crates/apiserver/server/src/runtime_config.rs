//! `--runtime-config` at start.

use crate::feature_gates::FeatureGates;
use api_kinds::{Resource, RuntimeConfig, RuntimeConfigError};
use std::sync::Arc;

/// Selects the built-in resources to serve, and logs what is not implemented.
pub(crate) fn select_resources(
    pairs: &[String],
    gates: &FeatureGates,
) -> Result<Arc<[Arc<Resource>]>, RuntimeConfigError> {
    let config = RuntimeConfig::parse(pairs.iter().map(String::as_str))?;
    let built_in = config.apply(|gate| gates.is_enabled(gate));
    if !built_in.missing.is_empty() {
        let missing = built_in.missing.join(", ");
        tracing::warn!(%missing, "--runtime-config enables APIs that are not implemented");
    }
    for (resource, gate) in built_in.gated {
        tracing::warn!(
            resource,
            gate,
            "an API is not served because its feature gate is off"
        );
    }
    Ok(built_in.resources.into())
}
