//! `--runtime-config` and `--storage-media-type` at start.

use crate::feature_gates::FeatureGates;
use anyhow::bail;
use api_kinds::{EmulatedRelease, Resource, RuntimeConfig, StorageFormat};
use std::sync::Arc;

/// Selects the built-in resources to serve, and logs what is not implemented.
pub(crate) fn select_resources(
    pairs: &[String],
    emulated: &EmulatedRelease,
    gates: &FeatureGates,
    media_type: &str,
) -> anyhow::Result<Arc<[Arc<Resource>]>> {
    let format = parse_format(media_type)?;
    let config = RuntimeConfig::parse(pairs.iter().map(String::as_str))?;
    let mut built_in = config.apply(emulated, |gate| gates.is_enabled(gate))?;
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
    if format != StorageFormat::Protobuf {
        for resource in &mut built_in.resources {
            if let Some(storage) = &mut Arc::make_mut(resource).storage {
                storage.format = format;
            }
        }
    }
    Ok(built_in.resources.into())
}

/// Returns the format in which built-in kinds are stored. Upstream's YAML is not written: nothing
/// reads it faster or better than JSON.
fn parse_format(media_type: &str) -> anyhow::Result<StorageFormat> {
    match media_type {
        "" | "application/vnd.kubernetes.protobuf" => Ok(StorageFormat::Protobuf),
        "application/json" => Ok(StorageFormat::Json),
        other => bail!(
            "--storage-media-type: {other:?} is not application/vnd.kubernetes.protobuf or application/json"
        ),
    }
}
