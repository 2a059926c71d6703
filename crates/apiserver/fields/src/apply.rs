//! Server-side apply.

use crate::compare::{by_step, compare_objects, fields_of};
use crate::last_applied::{find_client_applied, update_annotation};
use crate::managers::{self, Entry};
use crate::path::Step;
use crate::set::FieldSet;
use crate::shape::Shape;
use crate::track::{Writer, give_ownership, take_from_others, without_managed_fields};
use serde_json::{Map, Value};

/// Fields that other managers own and to which the intent gives another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyError {
    /// Owner (with the version it uses), and field.
    pub conflicts: Vec<(String, String)>,
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
/// The fields in conflict.
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
    let identity = writer.identity("Apply");
    let mut intended = without_managed_fields(intent);
    if let Some(map) = intended.as_object_mut() {
        writer
            .ignored
            .iter()
            .for_each(|field| drop(map.remove(*field)));
        if map
            .get("metadata")
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty)
        {
            map.remove("metadata");
        }
    }
    let wanted = fields_of(shape, &intended);
    let empty = Value::Object(Map::new());
    let live_value = live.unwrap_or(&empty);
    // Merged from the whole intent, not the stripped one: the object needs its name and kind.
    let mut merged = merge_values(shape, live_value, intent);
    let before = entries
        .iter()
        .find(|e| e.identity == identity)
        .map(|e| e.fields.clone())
        .unwrap_or_default();
    let others = entries
        .iter()
        .filter(|e| e.identity != identity)
        .fold(FieldSet::default(), |all, e| all.union(&e.fields));
    // Remove fields that the manager applied before, no longer applies, and no other manager owns.
    let abandoned = before.difference(&wanted).difference(&others);
    prune_fields(
        shape,
        &mut merged,
        &abandoned,
        &wanted.clone().union(&others),
    );
    // Conflicts come from values that change. Another manager's field with the same value is
    // shared.
    let difference = compare_objects(
        shape,
        &without_managed_fields(live_value),
        &without_managed_fields(&merged),
    );
    if !force {
        reject_conflicts(&entries, writer, live_value, &difference.changed_paths())?;
    }
    // Only after the check: with force, the others lose the fields in conflict.
    take_from_others(&mut entries, &identity, &difference);
    give_ownership(&mut entries, identity, writer.now, |_| wanted);
    managers::write_entries(&mut merged, entries);
    update_annotation(writer, intent, &mut merged);
    Ok(ApplyOutcome { object: merged })
}

fn reject_conflicts(
    entries: &[Entry],
    writer: &Writer<'_>,
    live: &Value,
    changed: &FieldSet,
) -> Result<(), ApplyError> {
    let mut conflicts = find_conflicts(entries, writer, writer.manager, changed);
    if !conflicts.is_empty() {
        let contested = changed.difference(&find_client_applied(writer, live));
        conflicts = find_conflicts(entries, writer, writer.manager, &contested);
    }
    if conflicts.is_empty() {
        Ok(())
    } else {
        Err(ApplyError { conflicts })
    }
}

/// Returns the entry of fields without an owner: they existed before the first apply.
fn before_first_apply(writer: &Writer<'_>, shape: Shape<'_>, live: &Value) -> Entry {
    let mut identity = writer.identity("Update");
    identity.manager = "before-first-apply".into();
    // The entry stands for writes by any path.
    identity.subresource.clear();
    Entry {
        identity,
        time: writer.now.to_owned(),
        fields: fields_of(shape, &without_managed_fields(live)),
    }
}

fn find_conflicts(
    entries: &[Entry],
    writer: &Writer<'_>,
    own: &str,
    changed: &FieldSet,
) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let foreign = |e: &&Entry| {
        !(e.is_apply() && e.identity.manager == own && e.identity.subresource == writer.subresource)
    };
    for entry in entries.iter().filter(foreign) {
        let who = match entry.is_apply() {
            // An applier is named without its version, which does not help to find it.
            true => format!("{:?}", entry.identity.manager),
            false => format!(
                "{:?} using {}",
                entry.identity.manager, entry.identity.api_version
            ),
        };
        all.extend(
            entry
                .fields
                .intersection(changed)
                .paths()
                .into_iter()
                .map(|path| (who.clone(), path)),
        );
    }
    all
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
            merge_lists(shape, live, present, wanted)
        }
        // Atomic values, and values whose type changed, are replaced as a whole.
        (_, wanted) => wanted.clone(),
    }
}

/// Merges lists: the intent's order, with live elements that it does not name at their old
/// positions.
fn merge_lists(shape: Shape<'_>, live: &Value, present: &[Value], wanted: &[Value]) -> Value {
    let known = by_step(shape, Some(live));
    let intended_steps: Vec<Step> = wanted.iter().map(|element| shape.step(element)).collect();
    let mut rest = wanted.iter().zip(&intended_steps).peekable();
    let mut out = Vec::with_capacity(present.len() + wanted.len());
    let take = |element: &Value, step: &Step| match known.get(step) {
        Some(present) => merge_values(shape.element(), present, element),
        None => element.clone(),
    };
    for element in present {
        let step = shape.step(element);
        if !intended_steps.contains(&step) {
            out.push(element.clone());
            continue;
        }
        // First all elements of the intent up to this one.
        while let Some((element, wanted)) = rest.next_if(|(_, wanted)| **wanted != step) {
            if is_already_merged(&out, shape, wanted) {
                continue;
            }
            out.push(take(element, wanted));
        }
        if let Some((element, wanted)) = rest.next() {
            out.push(take(element, wanted));
        }
    }
    out.extend(rest.map(|(element, wanted)| take(element, wanted)));
    dedup_list(shape, out)
}

fn is_already_merged(out: &[Value], shape: Shape<'_>, step: &Step) -> bool {
    out.iter().any(|element| shape.step(element) == *step)
}

/// Removes duplicates; the first one stays.
fn dedup_list(shape: Shape<'_>, list: Vec<Value>) -> Value {
    let mut seen = Vec::new();
    let mut out = Vec::with_capacity(list.len());
    for element in list {
        let step = shape.step(&element);
        if !seen.contains(&step) {
            seen.push(step);
            out.push(element);
        }
    }
    Value::Array(out)
}

/// Removes abandoned paths, unless a path below them is kept.
fn prune_fields(shape: Shape<'_>, value: &mut Value, abandoned: &FieldSet, kept: &FieldSet) {
    let none = FieldSet::default();
    match value {
        Value::Object(map) if shape.is_map() => {
            for (step, child) in &abandoned.children {
                let Step::Field(name) = step else { continue };
                let keep = kept.children.get(step).unwrap_or(&none);
                if is_abandoned(child, keep) {
                    map.remove(name);
                } else if let Some(member) = map.get_mut(name) {
                    prune_fields(shape.member(name), member, child, keep);
                    // A map that held only abandoned fields goes with them, unless it is owned
                    // itself.
                    let emptied = member.as_object().is_some_and(Map::is_empty)
                        || member.as_array().is_some_and(Vec::is_empty);
                    if emptied && keep.is_empty() {
                        map.remove(name);
                    }
                }
            }
        }
        Value::Array(list) if shape.is_list() => {
            list.retain_mut(|element| {
                let step = shape.step(element);
                let Some(child) = abandoned.children.get(&step) else {
                    return true;
                };
                let keep = kept.children.get(&step).unwrap_or(&none);
                if is_abandoned(child, keep) {
                    return false;
                }
                prune_fields(shape.element(), element, child, keep);
                true
            });
        }
        _ => {}
    }
}

fn is_abandoned(abandoned: &FieldSet, kept: &FieldSet) -> bool {
    // A parent of another manager's field stays, or that field would be lost with it.
    abandoned.member && kept.is_empty()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn writer(manager: &'static str) -> Writer<'static> {
        Writer {
            manager,
            api_version: "v1",
            subresource: "",
            schema: &api_kinds::find("", "v1", "configmaps").unwrap().schema,
            ignored: &[],
            now: "2026-01-01T00:00:00Z",
        }
    }

    #[test]
    fn abandoned_field_is_removed_and_field_of_another_manager_conflicts() {
        let first = apply_intent(
            &writer("a"),
            None,
            &json!({"data": {"x": "1", "y": "1"}}),
            false,
        )
        .unwrap()
        .object;
        let second = apply_intent(
            &writer("a"),
            Some(&first),
            &json!({"data": {"x": "1"}}),
            false,
        )
        .unwrap()
        .object;
        assert_eq!(second["data"], json!({"x": "1"}));
        let refused = apply_intent(
            &writer("b"),
            Some(&second),
            &json!({"data": {"x": "2"}}),
            false,
        )
        .unwrap_err();
        assert_eq!(
            refused.conflicts,
            [("\"a\"".to_owned(), ".data.x".to_owned())]
        );
        let forced = apply_intent(
            &writer("b"),
            Some(&second),
            &json!({"data": {"x": "2"}}),
            true,
        )
        .unwrap()
        .object;
        assert_eq!(forced["data"]["x"], "2");
        assert_eq!(
            forced["metadata"]["managedFields"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }

    fn of_kind(kind: &str, manager: &'static str) -> Writer<'static> {
        let message = api_schema::schema().message(kind).unwrap();
        Writer {
            schema: Box::leak(Box::new(message.into())),
            ..writer(manager)
        }
    }

    fn service(manager: &'static str) -> Writer<'static> {
        of_kind("k8s.io.api.core.v1.Service", manager)
    }

    fn apply(writer: &Writer<'_>, live: Option<&Value>, intent: &Value) -> Value {
        apply_intent(writer, live, intent, false).unwrap().object
    }

    #[test]
    fn same_value_of_two_managers_is_shared_without_a_conflict() {
        let intent = json!({"data": {"x": "1"}});
        let first = apply(&writer("a"), None, &intent);
        let shared = apply(&writer("b"), Some(&first), &intent);
        assert_eq!(
            shared["metadata"]["managedFields"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        let kept = apply(&writer("a"), Some(&shared), &json!({"data": {}}));
        assert_eq!(kept["data"]["x"], "1");
    }

    #[test]
    fn elements_of_a_keyed_list_are_merged_by_their_key() {
        let ports = |ports: Value| json!({"spec": {"ports": ports}});
        let first = apply(
            &service("a"),
            None,
            &ports(json!([{"port": 80, "protocol": "TCP", "name": "http"}])),
        );
        let intent = ports(json!([{"port": 443, "protocol": "TCP", "name": "https"}]));
        let both = apply(&service("b"), Some(&first), &intent);
        let names: Vec<&Value> = both["spec"]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| &p["name"])
            .collect();
        assert_eq!(names, ["http", "https"]);
        let removed = apply(&service("a"), Some(&both), &json!({"spec": {}}));
        assert_eq!(removed["spec"]["ports"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn absent_key_of_an_element_means_its_default() {
        let first = apply(
            &service("a"),
            None,
            &json!({"spec": {"ports": [{"port": 53, "protocol": "TCP", "name": "x"}]}}),
        );
        let merged = apply(
            &service("a"),
            Some(&first),
            &json!({"spec": {"ports": [{"port": 53, "name": "y"}]}}),
        );
        assert_eq!(merged["spec"]["ports"].as_array().unwrap().len(), 1);
        assert_eq!(merged["spec"]["ports"][0]["name"], "y");
    }

    #[test]
    fn conflict_names_the_updating_manager_with_its_version() {
        let mut live = json!({"data": {"x": "1"}});
        crate::track_update(&writer("kubectl-edit"), None, &mut live);
        let error = apply_intent(
            &writer("b"),
            Some(&live),
            &json!({"data": {"x": "2"}}),
            false,
        )
        .unwrap_err();
        assert_eq!(
            error.conflicts,
            [("\"kubectl-edit\" using v1".to_owned(), ".data.x".to_owned())]
        );
    }

    #[test]
    fn finalizers_of_two_managers_form_a_union() {
        let intent = |name: &str| json!({"metadata": {"finalizers": [name]}});
        let first = apply(&writer("a"), None, &intent("one"));
        let both = apply(&writer("b"), Some(&first), &intent("two"));
        assert_eq!(both["metadata"]["finalizers"], json!(["one", "two"]));
        let left = apply(&writer("a"), Some(&both), &json!({"metadata": {}}));
        assert_eq!(left["metadata"]["finalizers"], json!(["two"]));
    }

    #[test]
    fn fields_of_an_object_without_owners_conflict_as_before_first_apply() {
        let live = json!({"data": {"x": "1"}});
        let error = apply_intent(
            &writer("a"),
            Some(&live),
            &json!({"data": {"x": "2"}}),
            false,
        )
        .unwrap_err();
        assert_eq!(error.conflicts[0].0, "\"before-first-apply\" using v1");
    }
}
