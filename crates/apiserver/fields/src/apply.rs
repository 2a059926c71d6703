//! Server-side apply.

use crate::compare::{compare_objects, fields_of, index_elements};
use crate::last_applied::{find_client_applied, update_annotation};
use crate::managers::{self, APPLY, Entry, Identity};
use crate::path::Step;
use crate::set::FieldSet;
use crate::shape::Shape;
use crate::track::{Writer, considered_fields, give_ownership, take_from_others};
use api_meta::names::shorten_name;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Most conflicts that are reported. Each shows the path of its field, and no reader needs more.
const MOST_CONFLICTS: usize = 500;

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
    let identity = writer.identity(APPLY);
    let mut intended = considered_fields(writer, intent);
    if let Some(map) = intended.as_object_mut()
        && map
            .get("metadata")
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty)
    {
        map.remove("metadata");
    }
    let wanted = fields_of(shape, &intended);
    let empty = Value::Object(Map::new());
    let live_value = live.unwrap_or(&empty);
    // Merged from the whole intent, not the stripped one: the object needs its name and kind.
    let mut merged = merge_values(shape, live_value, intent);
    let before = entries
        .iter()
        .find(|e| e.identity.is_same_owner(&identity))
        .map(|e| e.fields.clone())
        .unwrap_or_default();
    let others = entries
        .iter()
        .filter(|e| !e.identity.is_same_owner(&identity))
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
    // shared, and a field that this path does not write is not changed.
    let difference = compare_objects(
        shape,
        &considered_fields(writer, live_value),
        &considered_fields(writer, &merged),
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
    let own = writer.identity(APPLY);
    let mut conflicts = find_conflicts(entries, &own, changed);
    if !conflicts.is_empty() {
        let contested = changed.difference(&find_client_applied(writer, live));
        conflicts = find_conflicts(entries, &own, &contested);
    }
    if conflicts.is_empty() {
        Ok(())
    } else {
        Err(ApplyError { conflicts })
    }
}

/// Returns the entry of fields without an owner: they existed before the first apply.
fn before_first_apply(writer: &Writer<'_>, shape: Shape<'_>, live: &Value) -> Entry {
    let mut identity = writer.identity(managers::UPDATE);
    identity.manager = "before-first-apply".into();
    Entry {
        identity,
        time: writer.now.to_owned(),
        fields: fields_of(shape, &considered_fields(writer, live)),
    }
}

fn find_conflicts(entries: &[Entry], own: &Identity, changed: &FieldSet) -> Vec<(String, String)> {
    let mut foreign: Vec<&Entry> = entries
        .iter()
        .filter(|entry| !entry.identity.is_same_owner(own))
        .collect();
    foreign.sort_by(|a, b| a.identity.cmp(&b.identity));
    let mut all = Vec::new();
    for entry in foreign {
        let who = describe_owner(&entry.identity);
        let limit = MOST_CONFLICTS - all.len();
        let contested = entry.fields.intersection(changed).paths(limit).into_iter();
        all.extend(contested.map(|path| (who.clone(), path)));
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
        // A client may send a version as long as a request, and each conflict names the owner.
        who.push_str(&format!(" using {}", shorten_name(&identity.api_version)));
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
    fn abandoned_list_is_removed_from_an_applied_empty_struct() {
        let writer = Writer {
            subresource: "status",
            schema: &api_kinds::find(
                "admissionregistration.k8s.io",
                "v1",
                "validatingadmissionpolicies",
            )
            .unwrap()
            .schema,
            ..writer("a")
        };
        let warning = json!({"fieldRef": "spec.validations[0].expression", "warning": "w"});
        let first = json!({"status": {"typeChecking": {"expressionWarnings": [warning]}}});
        let first = apply_intent(&writer, None, &first, false).unwrap().object;
        let second = json!({"status": {"typeChecking": {}}});
        let second = apply_intent(&writer, Some(&first), &second, false).unwrap();
        assert_eq!(second.object["status"], json!({"typeChecking": {}}));
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

    #[test]
    fn live_duplicates_stay_unless_the_intent_names_them() {
        let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
        for (live, intent, expect) in [
            (json!(["a", "a"]), json!(["b"]), json!(["a", "a", "b"])),
            (json!(["a", "b", "a"]), json!(["a"]), json!(["a", "b"])),
            (
                json!(["a", "b", "b"]),
                json!(["c", "a"]),
                json!(["c", "a", "b", "b"]),
            ),
            (
                json!(["a", "b", "c"]),
                json!(["c", "a"]),
                json!(["b", "c", "a"]),
            ),
            (
                json!(["a", "b"]),
                json!(["b", "c", "a"]),
                json!(["b", "c", "a"]),
            ),
            (
                json!(["x", "a"]),
                json!(["b", "a", "c"]),
                json!(["x", "b", "a", "c"]),
            ),
        ] {
            let shape = Shape::of_object(writer("a").schema);
            let merged = merge_values(
                shape,
                &finalizers(live.clone()),
                &finalizers(intent.clone()),
            );
            assert_eq!(merged, finalizers(expect), "{live} and {intent}");
        }
    }

    #[test]
    fn duplicates_of_a_keyed_list_are_replaced_as_a_whole() {
        let ports = |ports: Value| json!({"spec": {"ports": ports}});
        let live = ports(json!([
            {"port": 1, "protocol": "TCP", "name": "x", "nodePort": 5},
            {"port": 1, "protocol": "TCP", "name": "y"},
            {"port": 2, "protocol": "TCP", "name": "z", "nodePort": 6}
        ]));
        let intent = ports(json!([
            {"port": 1, "protocol": "TCP", "name": "n"},
            {"port": 2, "protocol": "TCP", "name": "m"}
        ]));
        let shape = Shape::of_object(service("a").schema);
        let expect = ports(json!([
            {"port": 1, "protocol": "TCP", "name": "n"},
            {"port": 2, "protocol": "TCP", "name": "m", "nodePort": 6}
        ]));
        assert_eq!(merge_values(shape, &live, &intent), expect);
    }

    #[test]
    fn conflicts_name_subresource_and_version_and_are_sorted_by_manager() {
        let entry = |manager: &str, operation: &str, subresource: &str, field: &str| {
            let fields = json!({"f:data": {format!("f:{field}"): {}}});
            json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
                "subresource": subresource, "time": "2026-01-01T00:00:00Z", "fieldsV1": fields})
        };
        let live = json!({"metadata": {"managedFields": [entry("z", "Apply", "", "a"),
            entry("m", "Update", "status", "b"), entry("k", "Update", "", "c")]},
            "data": {"a": "1", "b": "1", "c": "1"}});
        let intent = json!({"data": {"a": "2", "b": "2", "c": "2"}});
        let error = apply_intent(&writer("own"), Some(&live), &intent, false).unwrap_err();
        let expect = [
            ("\"k\" using v1", ".data.c"),
            ("\"m\" with subresource \"status\" using v1", ".data.b"),
            ("\"z\"", ".data.a"),
        ];
        assert_eq!(
            error.conflicts,
            expect.map(|(who, at)| (who.to_owned(), at.to_owned()))
        );
    }

    #[test]
    fn conflicts_show_the_beginning_of_a_long_version_and_key() {
        let long = "v".repeat(1000);
        let owner = json!({"manager": "m", "operation": "Update", "apiVersion": long,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:{long}"): {}}}});
        let live = json!({"metadata": {"managedFields": [owner]}, "data": {&long: "1"}});
        let intent = json!({"data": {&long: "2"}});
        let error = apply_intent(&writer("own"), Some(&live), &intent, false).unwrap_err();
        let shown = &long[..320];
        assert_eq!(
            error.conflicts,
            [(format!("\"m\" using {shown}"), format!(".data.{shown}"))]
        );
    }

    #[test]
    fn ignored_fields_neither_conflict_nor_are_owned() {
        let live = apply(&writer("a"), None, &json!({"data": {"x": "1"}}));
        let other = Writer {
            ignored: &["data", "metadata.labels"],
            ..writer("b")
        };
        let intent = json!({"metadata": {"labels": {"l": "1"}, "annotations": {"n": "1"}},
            "data": {"x": "2"}});
        let object = apply(&other, Some(&live), &intent);
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let own = entries
            .iter()
            .find(|entry| entry["manager"] == "b")
            .unwrap();
        assert_eq!(
            own["fieldsV1"],
            json!({"f:metadata": {"f:annotations": {"f:n": {}}}})
        );
    }

    #[test]
    fn applier_keeps_one_entry_when_it_changes_the_version() {
        let intent = json!({"data": {"x": "1"}});
        let first = apply(&writer("a"), None, &intent);
        let newer = Writer {
            api_version: "v2",
            ..writer("a")
        };
        let second = apply(&newer, Some(&first), &intent);
        let entries = second["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0]["apiVersion"], "v2");
    }
}
