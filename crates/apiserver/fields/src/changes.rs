//! The changes of a write in each version that has owners.

#[cfg(test)]
mod tests;

use crate::compare::compare_without;
use crate::managers::{Entry, Identity};
use crate::reconcile::reconcile_set;
use crate::set::FieldSet;
use crate::shape::Shape;
use crate::versions::ConversionRequest;
use crate::writer::{Writer, build_default_object};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Drops the owners of versions that do not exist any more. Fits the sets of the others to the
/// schema, which may have changed since they were written.
pub(crate) fn update_entries(writer: &Writer<'_>, entries: &mut Vec<Entry>) {
    entries.retain_mut(|entry| {
        let schema = writer.find_schema(&entry.identity.api_version);
        if let Some(schema) = schema {
            reconcile_set(Shape::of_object(schema), &mut entry.fields);
        }
        schema.is_some()
    });
}

/// The changes of a write in one version.
pub(crate) struct VersionChanges {
    /// Paths that the write adds or changes.
    pub(crate) changed: FieldSet,
    /// Paths that the write removes.
    pub(crate) removed: FieldSet,
}

/// The changes of a write, in each version that has owners.
pub(crate) struct Changes {
    // United once for each version: a client may send many thousands of owners.
    by_version: BTreeMap<String, VersionChanges>,
}

impl Changes {
    /// Removes the changes in a version and returns them.
    pub(crate) fn take(&mut self, api_version: &str) -> Option<VersionChanges> {
        self.by_version.remove(api_version)
    }

    /// Returns the changes in a version.
    pub(crate) fn find(&self, api_version: &str) -> Option<&VersionChanges> {
        self.by_version.get(api_version)
    }
}

/// Compares the old and the new object in the version of the writer, and in those of the other
/// owners. Without an old object, the new one is compared with the defaults.
pub(crate) fn compare_versions(
    writer: &Writer<'_>,
    entries: &[Entry],
    own: &Identity,
    old: Option<&Value>,
    new: &Value,
) -> Result<Changes, ConversionRequest> {
    let mut by_version = BTreeMap::new();
    let foreign = entries
        .iter()
        .filter(|entry| !entry.identity.is_same_owner(own))
        .map(|entry| entry.identity.api_version.as_str());
    for version in foreign.chain([writer.api_version]) {
        if by_version.contains_key(version) {
            continue;
        }
        let Some(schema) = writer.find_schema(version) else {
            continue;
        };
        let before = match old {
            Some(old) => writer.convert(old, writer.api_version, version)?,
            None => Cow::Owned(build_default_object(schema)),
        };
        let after = writer.convert(new, writer.api_version, version)?;
        let shape = Shape::of_object(schema);
        let difference = compare_without(writer.ignored_paths(), shape, &before, &after);
        let changes = VersionChanges {
            changed: difference.added.union(&difference.modified),
            removed: difference.removed,
        };
        by_version.insert(version.to_owned(), changes);
    }
    Ok(Changes { by_version })
}

/// Returns the fields of the owners but one, by version.
pub(crate) fn collect_foreign_fields(
    entries: &[Entry],
    own: &Identity,
) -> BTreeMap<String, FieldSet> {
    let mut by_version: BTreeMap<String, FieldSet> = BTreeMap::new();
    for entry in entries {
        if !entry.identity.is_same_owner(own) {
            let fields = by_version
                .entry(entry.identity.api_version.clone())
                .or_default();
            *fields = std::mem::take(fields).union(&entry.fields);
        }
    }
    by_version
}
