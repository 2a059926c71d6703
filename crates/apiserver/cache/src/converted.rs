//! Entries in a version that only the converter of their definition can build.

use crate::{Entry, StoredKind};
use api_kinds::Resource;
use api_meta::ApiError;
use apiserver_convert::{convert_custom, encode_stored};
use serde_json::Value;
use std::sync::Arc;

/// Converts entries to a served version, in their order. Those that need no converter are returned
/// as they are.
///
/// # Errors
/// The converter fails: then the whole list fails.
pub async fn convert_entries(
    resource: &Arc<Resource>,
    mut entries: Vec<Arc<Entry>>,
) -> Result<Vec<Arc<Entry>>, ApiError> {
    let mut at = Vec::new();
    let mut trees: Vec<Value> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.needs_converter(resource) {
            at.push(index);
            trees.push(entry.decode_tree()?);
        }
    }
    let Some(first) = at.first().and_then(|index| entries.get(*index)) else {
        return Ok(entries);
    };
    // The cached description is the current one; that of a long watch may be older.
    let Some(converter) = first.kind().resource.schema.converter().cloned() else {
        return Ok(entries);
    };
    let kind = Arc::new(StoredKind {
        resource: resource.clone(),
        ..StoredKind::clone(first.kind())
    });
    let converted = convert_custom(&*converter, resource, trees).await?;
    for (index, tree) in at.into_iter().zip(converted) {
        if let Some(entry) = entries.get_mut(index) {
            let stored = encode_stored(resource, &tree);
            *entry = Arc::new(Entry::new(&kind, &entry.key, &stored, entry.revision));
        }
    }
    Ok(entries)
}

/// Converts one entry to a served version.
///
/// # Errors
/// The converter fails.
pub async fn convert_entry(
    resource: &Arc<Resource>,
    entry: Arc<Entry>,
) -> Result<Arc<Entry>, ApiError> {
    if !entry.needs_converter(resource) {
        return Ok(entry);
    }
    let converted = convert_entries(resource, vec![entry]).await?;
    let missing = || ApiError::internal("the conversion returned no object");
    converted.into_iter().next().ok_or_else(missing)
}
