//! Server-side apply.

#[cfg(test)]
mod tests;

use crate::changes::{Changes, compare_versions, update_entries};
use crate::compare::{fields_of, index_elements};
use crate::last_applied::{find_client_applied, update_annotation};
use crate::managers::{self, APPLY, Entry, Identity};
use crate::path::Step;
use crate::prune::prune_abandoned;
use crate::set::FieldSet;
use crate::shape::Shape;
use crate::track::{give_ownership, take_from_others};
use crate::versions::ConversionRequest;
use crate::writer::{Writer, strip_ignored_fields};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Most conflicts that are reported. Each shows the path of its field, and no reader needs more.
const MOST_CONFLICTS: usize = 500;

/// A field that another manager owns and to which the intent gives another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The manager as messages show it: quoted, with its subresource and version.
    pub manager: String,
    /// The path of the field.
    pub field: String,
}

/// The reason why an apply ends without a result.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplyError {
    /// Fields that other managers own and to which the intent gives another value.
    Conflicts(Vec<Conflict>),
    /// The apply needs a conversion and has to be repeated with it.
    Unconverted(ConversionRequest),
}

impl From<ConversionRequest> for ApplyError {
    fn from(request: ConversionRequest) -> Self {
        ApplyError::Unconverted(request)
    }
}

/// The result of an apply.
#[derive(Clone, Debug)]
pub struct ApplyOutcome {
    /// The new object, managedFields included.
    pub object: Value,
}

/// Merges `intent` into `live` (`None`: does not exist). Without `force`, fields of other managers
/// may only keep their value.
///
/// # Errors
/// The fields in conflict, or a conversion that is needed.
pub fn apply_intent(
    writer: &Writer<'_>,
    live: Option<&Value>,
    intent: &Value,
    force: bool,
) -> Result<ApplyOutcome, ApplyError> {
    let shape = Shape::of_object(writer.schema);
    let mut entries = live.map(managers::read_entries).unwrap_or_default();
    // An object without owners was written before tracking. This entry keeps an apply from taking
    // its fields unnoticed.
    if let (Some(live), true) = (live, entries.is_empty()) {
        entries.push(before_first_apply(writer, shape, live));
    }
    update_entries(writer, &mut entries);
    let identity = writer.identity(APPLY);
    let mut intended = strip_ignored_fields(writer, intent);
    remove_empty_metadata(&mut intended);
    let wanted = fields_of(shape, &intended);
    let empty = Value::Object(Map::new());
    let live_value = live.unwrap_or(&empty);
    // Merged from the whole intent, not the stripped one: the object needs its name and kind.
    let merged = merge_values(shape, live_value, intent);
    let mut merged = prune_abandoned(writer, &entries, &identity, &wanted, merged)?;
    // Conflicts come from values that change. Another manager's field with the same value is
    // shared, and a field that this path does not write is not changed.
    let changes = compare_versions(writer, &entries, &identity, Some(live_value), &merged)?;
    if !force {
        reject_conflicts(&entries, writer, live_value, &changes)?;
    }
    // Only after the check: with force, the others lose the fields in conflict.
    take_from_others(&mut entries, &identity, &changes);
    give_ownership(&mut entries, identity, writer.now, |_| wanted);
    managers::write_entries(&mut merged, entries);
    update_annotation(writer, intent, &mut merged);
    Ok(ApplyOutcome { object: merged })
}

fn remove_empty_metadata(object: &mut Value) {
    if let Some(map) = object.as_object_mut()
        && map
            .get("metadata")
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty)
    {
        map.remove("metadata");
    }
}

fn reject_conflicts(
    entries: &[Entry],
    writer: &Writer<'_>,
    live: &Value,
    changes: &Changes,
) -> Result<(), ApplyError> {
    let own = writer.identity(APPLY);
    let mut conflicts = find_conflicts(entries, &own, changes, &FieldSet::default());
    if !conflicts.is_empty() {
        let applied = find_client_applied(writer, live);
        conflicts = find_conflicts(entries, &own, changes, &applied);
    }
    if conflicts.is_empty() {
        Ok(())
    } else {
        Err(ApplyError::Conflicts(conflicts))
    }
}

/// Returns the entry of fields without an owner: they existed before the first apply.
fn before_first_apply(writer: &Writer<'_>, shape: Shape<'_>, live: &Value) -> Entry {
    let mut identity = writer.identity(managers::UPDATE);
    identity.manager = "before-first-apply".into();
    Entry {
        identity,
        time: writer.now.to_owned(),
        fields: fields_of(shape, &strip_ignored_fields(writer, live)),
    }
}

/// Returns the changed fields of other owners, each in the version of its owner, but the exempt
/// ones.
fn find_conflicts(
    entries: &[Entry],
    own: &Identity,
    changes: &Changes,
    exempt: &FieldSet,
) -> Vec<Conflict> {
    let mut foreign: Vec<&Entry> = entries
        .iter()
        .filter(|entry| !entry.identity.is_same_owner(own))
        .collect();
    foreign.sort_by(|a, b| a.identity.cmp(&b.identity));
    let mut all = Vec::new();
    for entry in foreign {
        let limit = MOST_CONFLICTS - all.len();
        let changes = changes.find(&entry.identity.api_version);
        let Some(changes) = changes.filter(|_| limit > 0) else {
            continue;
        };
        let manager = describe_owner(&entry.identity);
        // The entry's fields first: an object may have many more of them.
        let contested = entry.fields.intersection(&changes.changed);
        let contested = contested.difference(exempt).paths(limit).into_iter();
        all.extend(contested.map(|field| Conflict {
            manager: manager.clone(),
            field,
        }));
    }
    all
}

fn describe_owner(identity: &Identity) -> String {
    let mut who = format!("{:?}", identity.manager);
    if !identity.subresource.is_empty() {
        who.push_str(&format!(" with subresource {:?}", identity.subresource));
    }
    // An applier is named without its version, which does not help to find it.
    if identity.operation != APPLY {
        who.push_str(&format!(" using {}", identity.api_version));
    }
    who
}

/// Returns the live value with the intent's fields merged in.
pub(crate) fn merge_values(shape: Shape<'_>, live: &Value, intent: &Value) -> Value {
    match (live, intent) {
        (Value::Object(live), Value::Object(intent)) if shape.is_map() => {
            let mut out = live.clone();
            for (key, wanted) in intent {
                let merged = match live.get(key) {
                    Some(present) => merge_values(shape.member(key), present, wanted),
                    None => wanted.clone(),
                };
                // Fields that the intent leaves out stay: other managers may own them.
                out.insert(key.clone(), merged);
            }
            Value::Object(out)
        }
        (Value::Array(present), Value::Array(wanted)) if shape.is_list() => {
            merge_lists(shape, present, wanted)
        }
        // Atomic values, and values whose type changed, are replaced as a whole.
        (_, wanted) => wanted.clone(),
    }
}

/// Merges lists: the intent's order, with live elements that it does not name at their old
/// positions. Live duplicates stay unless the intent names them, because Kubernetes tolerates
/// them.
fn merge_lists(shape: Shape<'_>, present: &[Value], wanted: &[Value]) -> Value {
    let live = index_elements(shape, present);
    let live_steps: Vec<Step> = present.iter().map(|element| shape.step(element)).collect();
    let steps: Vec<Step> = wanted.iter().map(|element| shape.step(element)).collect();
    let named: BTreeSet<&Step> = steps.iter().collect();
    // The order of the elements of both lists, by which a live element is moved.
    let mut shared = steps
        .iter()
        .filter(|step| live.contains_key(*step))
        .peekable();
    let mut merged: BTreeSet<&Step> = BTreeSet::new();
    let mut out = Vec::with_capacity(present.len().max(wanted.len()));
    let take = |element: &Value, step: &Step| match live.get(step).map(Vec::as_slice) {
        Some([present]) => merge_values(shape.element(), present, element),
        // Which of several duplicates is meant can't be known: the intent replaces them.
        _ => element.clone(),
    };
    let mut left = present.iter().zip(&live_steps).peekable();
    let mut right = wanted.iter().zip(&steps).peekable();
    loop {
        if let Some((element, step)) = left.peek().copied() {
            let is_next = right.peek().is_some_and(|(_, next)| *next == step);
            if !named.contains(&step) {
                out.push(element.clone());
                left.next();
                continue;
            }
            let moved = right.peek().is_some() && shared.peek().is_some_and(|next| *next != step);
            if is_next || moved || merged.contains(&step) {
                left.next();
            }
            if moved && !is_next {
                continue;
            }
        }
        let Some((element, step)) = right.next() else {
            if left.peek().is_none() {
                break;
            }
            continue;
        };
        merged.insert(step);
        out.push(take(element, step));
        shared.next_if(|next| *next == step);
    }
    Value::Array(out)
}
