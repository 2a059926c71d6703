//! `metadata.managedFields`: the owners of fields.

use crate::set::FieldSet;
use api_meta::Meta;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Maximum number of update entries; older ones are merged into one.
// Controllers with generated names would otherwise let the metadata grow with every write.
const MOST_UPDATES: usize = 10;
/// The operation of server-side apply.
pub(crate) const APPLY: &str = "Apply";
pub(crate) const UPDATE: &str = "Update";
const ANCIENT: &str = "ancient-changes";

/// The identity of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Identity {
    pub(crate) manager: String,
    pub(crate) operation: String,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

impl Identity {
    /// Returns what is equal for all entries of an owner, see [`Identity::is_same_owner`].
    fn owner(&self) -> Identity {
        let mut owner = self.clone();
        if owner.operation == APPLY {
            owner.api_version.clear();
        }
        owner
    }

    /// Returns whether both are one owner. An applier is the same in every version, or it could not
    /// move to another one.
    pub(crate) fn is_same_owner(&self, other: &Identity) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == APPLY || self.api_version == other.api_version)
    }
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
        self.identity.operation == APPLY
    }
}

/// Reads the entries of a stored object.
pub(crate) fn read_entries(object: &Value) -> Vec<Entry> {
    let list = list_sent(object).unwrap_or_default();
    list.iter().map(parse_entry).collect()
}

/// Reads the entries that a client or a webhook has sent; one owner has one entry, the last one.
///
/// # Errors
/// An entry is one that upstream's decoder rejects; the error says why.
pub(crate) fn decode_entries(object: &Value) -> Result<Vec<Entry>, String> {
    let list = list_sent(object).unwrap_or_default();
    let problem = |(i, value)| find_entry_problem(value, i);
    match list.iter().enumerate().find_map(problem) {
        Some(problem) => Err(problem),
        None => Ok(read_owners(object)),
    }
}

/// Reads the entries of a stored object. Of several entries of one owner, the last one counts.
pub(crate) fn read_owners(object: &Value) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    // A client may send many thousands of entries.
    let mut position_of: HashMap<Identity, usize> = HashMap::new();
    for value in list_sent(object).unwrap_or_default() {
        let entry = parse_entry(value);
        let at = *position_of
            .entry(entry.identity.owner())
            .or_insert(entries.len());
        match entries.get_mut(at) {
            Some(earlier) => *earlier = entry,
            None => entries.push(entry),
        }
    }
    entries
}

/// Checks the managed fields of an object that a webhook or a policy has changed.
///
/// # Errors
/// An entry is one that upstream's decoder rejects; the error says why.
pub fn check_managed_fields(object: &Value) -> Result<(), String> {
    decode_entries(object).map(drop)
}

fn find_entry_problem(value: &Value, at: usize) -> Option<String> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    if !matches!(text("operation"), APPLY | UPDATE) {
        return Some(format!("operation must be `{APPLY}` or `{UPDATE}`"));
    }
    if text("apiVersion").is_empty() {
        return Some("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Some(format!("missing fieldsType in managed fields entry {at}")),
        other => {
            return Some(format!(
                "invalid fieldsType {other:?} in managed fields entry {at}"
            ));
        }
    }
    let problem = FieldSet::find_problem(value.get("fieldsV1").unwrap_or(&Value::Null))?;
    Some(format!("error decoding set: {problem}"))
}

/// Returns whether an object requests that its owners are forgotten: by an empty list, or by a
/// single empty entry, the form for protobuf.
pub(crate) fn requests_reset(object: &Value) -> bool {
    match list_sent(object) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Returns whether two objects have the same entries, in the same form.
pub(crate) fn have_same_entries(old: &Value, new: &Value) -> bool {
    list_sent(old) == list_sent(new)
}

fn list_sent(object: &Value) -> Option<&[Value]> {
    let list = object.metadata()?.get("managedFields")?.as_array()?;
    Some(list.as_slice())
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
    if entries.is_empty() {
        object.metadata_mut().remove("managedFields");
        return;
    }
    let list: Vec<Value> = entries.into_iter().map(to_json).collect();
    object
        .metadata_mut()
        .insert("managedFields".into(), list.into());
}

fn entry_order(entry: &Entry) -> (bool, &str, &Identity) {
    // Upstream's order, which clients see.
    (!entry.is_apply(), &entry.time, &entry.identity)
}

/// Merges the oldest updates of each version into one entry, until there are few enough.
///
/// Appliers are never merged: without its own entry, an applier could not remove a field by
/// omitting it.
pub(crate) fn cap_updates(entries: &mut Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    let count = entries.iter().filter(|entry| !entry.is_apply()).count();
    let mut excess = count.saturating_sub(MOST_UPDATES);
    if excess == 0 {
        return;
    }
    entries.sort_by(|a, b| entry_order(a).cmp(&entry_order(b)));
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    // The first kept update of each version. A client may send many thousands of versions.
    let mut first_of: HashMap<String, usize> = HashMap::new();
    for entry in entries.drain(..) {
        if entry.is_apply() {
            kept.push(entry);
            continue;
        }
        let version = entry.identity.api_version.clone();
        // Fields of two versions can't share an entry: their paths differ.
        let at = *first_of.entry(version).or_insert(kept.len());
        match kept.get_mut(at) {
            Some(bucket) if excess > 0 => {
                excess -= 1;
                bucket.identity.manager = ANCIENT.into();
                bucket.identity.subresource.clear();
                bucket.fields = std::mem::take(&mut bucket.fields).union(&entry.fields);
                bucket.time = entry.time;
            }
            _ => kept.push(entry),
        }
    }
    *entries = kept;
}

fn to_json(entry: Entry) -> Value {
    let identity = entry.identity;
    let mut members = Map::new();
    let mut add = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
    add("manager", identity.manager.into());
    add("operation", identity.operation.into());
    add("apiVersion", identity.api_version.into());
    add("fieldsType", "FieldsV1".into());
    add("fieldsV1", entry.fields.to_json());
    if !entry.time.is_empty() {
        add("time", entry.time.into());
    }
    if !identity.subresource.is_empty() {
        add("subresource", identity.subresource.into());
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn update(n: usize, version: String) -> Entry {
        let field = format!("f:x{n}");
        parse_entry(
            &json!({"manager": "m", "operation": "Update", "apiVersion": version,
            "time": format!("2026-01-01T{:02}:{:02}:00Z", n / 60 % 24, n % 60),
            "fieldsV1": {field: {}}}),
        )
    }

    #[test]
    fn oldest_updates_are_merged_by_version() {
        let mut entries: Vec<Entry> = (0..2 * MOST_UPDATES)
            .map(|n| update(n, format!("v{}", n % 2)))
            .collect();
        cap_updates(&mut entries);
        assert_eq!(entries.len(), MOST_UPDATES);
        let merged: Vec<_> = entries
            .iter()
            .filter(|entry| entry.identity.manager == ANCIENT)
            .map(|entry| entry.identity.api_version.as_str())
            .collect();
        assert_eq!(merged, ["v0", "v1"]);
    }

    #[test]
    fn very_many_versions_are_kept_apart() {
        let count = 100_000;
        let (done, kept) = std::sync::mpsc::channel();
        // In a thread, so that the test fails at its deadline: each was compared with all others,
        // which takes minutes for so many.
        std::thread::spawn(move || {
            let mut entries: Vec<Entry> = (0..count).map(|n| update(n, format!("v{n}"))).collect();
            cap_updates(&mut entries);
            done.send(entries.len())
        });
        let deadline = std::time::Duration::from_secs(60);
        assert_eq!(kept.recv_timeout(deadline), Ok(count));
    }
}
