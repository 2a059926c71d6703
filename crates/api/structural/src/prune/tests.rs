#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::parse::parse_unchecked;
use serde_json::json;

fn check(schema: Value, is_root: bool, object: Value, expected: Value, removed: &[&str]) {
    let schema_text = schema.to_string();
    let schema = parse_unchecked(&schema).unwrap();
    let mut pruned = object.clone();
    assert_eq!(
        prune(&schema, &mut pruned, is_root),
        removed,
        "{schema_text} {object}"
    );
    assert_eq!(pruned, expected, "{schema_text}");
    assert_eq!(report_unknown_fields(&schema, &object, is_root), removed);
}

#[test]
fn unknown_fields_are_removed_at_all_levels() {
    check(
        json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b": {"type": "string"}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "string"}}}}}}),
        false,
        json!({"a": {"b": "1", "c": 2}, "d": {"e": 3},
            "list": [{"x": "1"}, {"x": "2", "y": 3}], "map": {"k": {"x": "1", "z": 1}}}),
        json!({"a": {"b": "1"}, "list": [{"x": "1"}, {"x": "2"}], "map": {"k": {"x": "1"}}}),
        &["a.c", "d", "list[1].y", "map.k.z"],
    );
}

#[test]
fn scalars_and_null_are_kept() {
    check(
        json!({"type": "object", "properties": {"a": {"type": "object"}}}),
        false,
        json!({"a": 1}),
        json!({"a": 1}),
        &[],
    );
    check(
        json!({"type": "object", "properties": {"a": {"type": "object"}}}),
        false,
        json!({"a": null, "b": null}),
        json!({"a": null}),
        &["b"],
    );
}

#[test]
fn metadata_of_the_root_is_kept() {
    let schema = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}});
    let object = json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}, "x": 1});
    check(
        schema,
        true,
        object,
        json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}}),
        &["x"],
    );
    // Without a root they are fields like others, of which only nested ones are reported.
    check(
        json!({"type": "object", "properties": {"a": {"type": "object"}}}),
        false,
        json!({"kind": "K", "a": {"kind": "K"}}),
        json!({"a": {}}),
        &["a.kind"],
    );
}

#[test]
fn embedded_resources_keep_their_metadata() {
    check(
        json!({"type": "object", "properties": {"pod": {"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object"}}}}}),
        true,
        json!({"pod": {"kind": "Pod", "metadata": {"unknown": 1}, "spec": {"x": 1}, "y": 2}}),
        json!({"pod": {"kind": "Pod", "metadata": {"unknown": 1}, "spec": {}}}),
        &["pod.spec.x", "pod.y"],
    );
}

#[test]
fn preserved_fields_are_kept_and_known_ones_below_are_pruned() {
    check(
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": {"type": "object", "properties": {"a": {"type": "string"}}},
            "list": {"type": "array", "x-kubernetes-preserve-unknown-fields": true,
                "items": {"type": "object", "properties": {"a": {"type": "object"}}}}}}),
        false,
        json!({"free": {"x": {"y": 1}}, "known": {"a": "1", "b": 2}, "list": [{"a": {"c": 1}, "b": {"c": 1}}]}),
        json!({"free": {"x": {"y": 1}}, "known": {"a": "1"}, "list": [{"a": {}, "b": {"c": 1}}]}),
        &["known.b", "list[0].a.c"],
    );
}

#[test]
fn preserving_ends_at_a_node_with_properties() {
    check(
        json!({"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"b": {"type": "object", "properties": {"c": {"type": "string"}}}}}}}),
        false,
        json!({"a": {"x": {"y": 1}, "b": {"c": "1", "d": 1}}}),
        json!({"a": {"x": {"y": 1}, "b": {"c": "1"}}}),
        &["a.b.d"],
    );
}

#[test]
fn entries_of_any_value_lose_their_content() {
    check(
        json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": true}}}),
        false,
        json!({"m": {"a": 1, "b": {"c": 1}, "d": [{"e": 1}, 2]}}),
        json!({"m": {"a": 1, "b": {}, "d": [{}, 2]}}),
        &["m.b.c", "m.d[0].e"],
    );
}

#[test]
fn lists_without_items_are_emptied_inside() {
    check(
        json!({"type": "object", "properties": {"l": {"type": "array"}}}),
        false,
        json!({"l": [[{"a": 1}], 1]}),
        json!({"l": [[{}], 1]}),
        &["l[0][0].a"],
    );
}

#[test]
fn reported_paths_are_limited() {
    let schema = parse_unchecked(&json!({"type": "object"})).unwrap();
    let mut object: Value = (0..5000).map(|i| (format!("f{i}"), Value::Null)).collect();
    assert_eq!(prune(&schema, &mut object, true).len(), MAX_PROBLEMS);
    assert_eq!(object, json!({}));
}

/// A key of a map may fill the request, and a thousand unknown fields below it would repeat it.
#[test]
fn reported_paths_are_short() {
    let schema = parse_unchecked(
        &json!({"type": "object", "properties": {"m": {"type": "object",
        "additionalProperties": {"type": "object"}}}}),
    )
    .unwrap();
    let inner: Value = (0..2000).map(|i| (format!("f{i}"), Value::Null)).collect();
    let mut object = json!({"m": {"k".repeat(1_000_000): inner}});
    let total: usize = prune(&schema, &mut object, true)
        .iter()
        .map(String::len)
        .sum();
    assert!(total < 1_000_000, "{total} bytes");
}
