//! Tests of server-side apply.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::Versions;
use serde_json::json;

fn conflicts_of(error: ApplyError) -> Vec<(String, String)> {
    match error {
        ApplyError::Conflicts(conflicts) => conflicts
            .into_iter()
            .map(|conflict| (conflict.manager, conflict.field))
            .collect(),
        ApplyError::Unconverted(request) => panic!("unexpected {request:?}"),
    }
}

fn writer(manager: &'static str) -> Writer<'static> {
    Writer {
        manager,
        api_version: "v1",
        subresource: "",
        schema: &api_kinds::find("", "v1", "configmaps").unwrap().schema,
        versions: Versions::NONE,
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
        conflicts_of(refused),
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
    crate::track_update(&writer("kubectl-edit"), None, &mut live).unwrap();
    let error = apply_intent(
        &writer("b"),
        Some(&live),
        &json!({"data": {"x": "2"}}),
        false,
    )
    .unwrap_err();
    assert_eq!(
        conflicts_of(error),
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
    assert_eq!(conflicts_of(error)[0].0, "\"before-first-apply\" using v1");
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
        conflicts_of(error),
        expect.map(|(who, at)| (who.to_owned(), at.to_owned()))
    );
}

#[test]
fn conflicts_show_the_beginning_of_a_long_key() {
    let long = "v".repeat(1000);
    let owner = json!({"manager": "m", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:{long}"): {}}}});
    let live = json!({"metadata": {"managedFields": [owner]}, "data": {&long: "1"}});
    let intent = json!({"data": {&long: "2"}});
    let error = apply_intent(&writer("own"), Some(&live), &intent, false).unwrap_err();
    let shown = &long[..320];
    assert_eq!(
        conflicts_of(error),
        [("\"m\" using v1".to_owned(), format!(".data.{shown}"))]
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
