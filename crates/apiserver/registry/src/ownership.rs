//! Owners of fields, in the versions that they use.

use crate::registry::Registry;
use crate::write::Write;
use api_kinds::Resource;
use api_meta::{ApiError, Cause, Details, Meta, Reason};
use apiserver_convert::convert_admitted;
use apiserver_fields::{
    ApplyError, Conflict, ConversionRequest, Versions, Writer, apply_intent, track_update,
};
use serde_json::Value;
use std::sync::Arc;

impl Registry {
    /// Merges an intent into the current object (`None`: does not exist): server-side apply.
    /// Without `force`, a change to a field of another manager is a 409.
    pub async fn merge_intent(
        &self,
        write: &Write,
        live: Option<&Value>,
        intent: &Value,
        force: bool,
    ) -> Result<Value, ApiError> {
        let cache = self.write_cache(write)?;
        let resources = &cache.kind().owner_versions;
        let mut versions = Versions::new(resources, &write.resource.group);
        for _ in 0..=max_conversions(&versions) {
            let apply = |writer: &Writer<'_>| apply_intent(writer, live, intent, force);
            let request = match write.as_writer(&versions, apply) {
                Ok(applied) => return Ok(applied.object),
                Err(ApplyError::Conflicts(conflicts)) => {
                    return Err(build_conflict_error(&conflicts));
                }
                Err(ApplyError::Unconverted(request)) => request,
            };
            add_conversion(&mut versions, request).await?;
        }
        Err(endless_conversion())
    }

    /// Records in `managedFields` the fields that a write changes.
    pub(crate) async fn track_fields(&self, write: &Write, old: Option<&Value>, new: &mut Value) {
        if self.try_track_fields(write, old, new).await.is_err() {
            // As upstream: without a conversion the owners can't be compared, and wrong ones would
            // be worse than none. The write itself may still succeed.
            new.metadata_mut().remove("managedFields");
        }
    }

    async fn try_track_fields(
        &self,
        write: &Write,
        old: Option<&Value>,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        let cache = self.write_cache(write)?;
        let resources = &cache.kind().owner_versions;
        let mut versions = Versions::new(resources, &write.resource.group);
        for _ in 0..=max_conversions(&versions) {
            let track = |writer: &Writer<'_>| track_update(writer, old, new);
            let Err(request) = write.as_writer(&versions, track) else {
                return Ok(());
            };
            add_conversion(&mut versions, request).await?;
        }
        Err(endless_conversion())
    }
}

/// Returns the maximum number of conversions of a write: for each version, those of the old and of
/// the new object, and those of the whole and of the pruned object. The one in the writer's version
/// leaves the three of the pruned object back to the writer.
fn max_conversions(versions: &Versions<'_>) -> usize {
    versions.count().saturating_mul(4)
}

fn endless_conversion() -> ApiError {
    ApiError::internal("the owners of fields need too many conversions")
}

/// Converts an object and adds the result.
async fn add_conversion(
    versions: &mut Versions<'_>,
    request: ConversionRequest,
) -> Result<(), ApiError> {
    let from = request.object.get("apiVersion").and_then(Value::as_str);
    let from = find_resource_version(versions, from.unwrap_or_default())?;
    let to = find_resource_version(versions, &request.api_version)?;
    let converted = convert_admitted(from, to, request.object.clone()).await?;
    versions.add_converted(request, converted);
    Ok(())
}

fn find_resource_version<'a>(
    versions: &Versions<'a>,
    version: &str,
) -> Result<&'a Arc<Resource>, ApiError> {
    let unknown = || ApiError::internal(format!("no version {version:?} of the resource"));
    versions.find(version).ok_or_else(unknown)
}

/// Builds the 409 with a cause for each conflicting field.
pub fn build_conflict_error(conflicts: &[Conflict]) -> ApiError {
    let text = match conflicts {
        [Conflict { manager, field }] => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {field}")
        }
        many => {
            let mut lines = Vec::new();
            // The conflicts are sorted by their owner.
            for group in many.chunk_by(|a, b| a.manager == b.manager) {
                let manager = group.first().map(|conflict| &conflict.manager);
                lines.extend(manager.map(|manager| format!("conflicts with {manager}:")));
                lines.extend(group.iter().map(|conflict| format!("- {}", conflict.field)));
            }
            let count = many.len();
            format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
        }
    };
    // kubectl recognizes the reason Conflict and appends its advice about `--force-conflicts`.
    let cause = |Conflict { manager, field }: &Conflict| Cause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {manager}"),
        field: field.clone(),
    };
    let details = Details {
        causes: conflicts.iter().map(cause).collect(),
        ..Details::default()
    };
    ApiError::new(Reason::Conflict, text).with_details(details)
}
