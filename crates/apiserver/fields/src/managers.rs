//! `metadata.managedFields`: the owners of fields.

use crate::set::FieldSet;
use api_meta::Meta;
use serde_json::{Value, json};

// Controllers with generated names would otherwise let the metadata grow with every write.
/// Maximum number of update entries; older ones are merged into one.
const MOST_UPDATES: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// The identity of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) manager: String,
    pub(crate) operation: String,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) identity: Identity,
    pub(crate) time: String,
    pub(crate) fields: FieldSet,
}

impl Entry {
    /// Returns whether an apply created the entry.
    pub(crate) fn is_apply(&self) -> bool {
        self.identity.operation == "Apply"
    }
}

/// Reads an object's entries.
pub(crate) fn read_entries(object: &Value) -> Vec<Entry> {
    let list = object
        .metadata()
        .and_then(|m| m.get("managedFields"))
        .and_then(Value::as_array);
    list.into_iter().flatten().map(parse_entry).collect()
}

fn parse_entry(value: &Value) -> Entry {
    let text = |name: &str| {
        value
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Entry {
        identity: Identity {
            manager: text("manager"),
            operation: text("operation"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
        },
        time: text("time"),
        fields: FieldSet::from_json(value.get("fieldsV1").unwrap_or(&Value::Null)),
    }
}

/// Writes an object's entries: applies first, then by time.
pub(crate) fn write_entries(object: &mut Value, mut entries: Vec<Entry>) {
    // A manager that owns nothing has no entry.
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|a, b| entry_order(a).cmp(&entry_order(b)));
    let entries = cap_entries(entries);
    if entries.is_empty() {
        object.metadata_mut().remove("managedFields");
        return;
    }
    let list: Vec<Value> = entries.iter().map(to_json).collect();
    object
        .metadata_mut()
        .insert("managedFields".into(), list.into());
}

fn entry_order(entry: &Entry) -> (bool, &str, &str, &str) {
    let Identity {
        manager,
        subresource,
        ..
    } = &entry.identity;
    // Upstream's order, which clients see.
    (!entry.is_apply(), &entry.time, manager, subresource)
}

/// Merges the oldest updates into one entry.
fn cap_entries(entries: Vec<Entry>) -> Vec<Entry> {
    let updates = entries.iter().filter(|e| !e.is_apply()).count();
    let mut excess = updates.saturating_sub(MOST_UPDATES);
    if excess == 0 {
        return entries;
    }
    // The merged entry counts as one of the allowed.
    excess += 1;
    let (mut kept, mut ancient): (Vec<Entry>, Option<Entry>) = (Vec::new(), None);
    for entry in entries {
        // Appliers are never merged: without its own entry, an applier could not remove a field by
        // omitting it.
        if entry.is_apply() || excess == 0 {
            kept.push(entry);
            continue;
        }
        excess -= 1;
        ancient = Some(match ancient {
            None => entry,
            Some(old) => Entry {
                fields: old.fields.union(&entry.fields),
                ..entry
            },
        });
    }
    kept.extend(ancient.map(|mut entry| {
        entry.identity.manager = ANCIENT.into();
        entry
    }));
    kept
}

fn to_json(entry: &Entry) -> Value {
    let Identity {
        manager,
        operation,
        api_version,
        subresource,
    } = &entry.identity;
    let mut out = json!({"manager": manager, "operation": operation, "apiVersion": api_version, "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields.to_json()});
    if !entry.time.is_empty() {
        out["time"] = entry.time.clone().into();
    }
    if !subresource.is_empty() {
        out["subresource"] = subresource.clone().into();
    }
    out
}
