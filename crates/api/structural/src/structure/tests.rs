#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::parse::parse_unchecked;
use serde_json::{Value, json};

fn check(schema: Value, expected: &[&str]) {
    let parsed = parse_unchecked(&schema).unwrap();
    let problems = check_structure(&parsed, &FieldPath::start("s"));
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected, "{schema}");
}

fn with(field: Value) -> Value {
    json!({"type": "object", "properties": {"a": field}})
}

#[test]
fn every_value_has_a_type() {
    check(
        json!({}),
        &["s.type: Required value: must not be empty at the root"],
    );
    check(
        json!({"type": "array", "items": {"type": "string"}}),
        &["s.type: Invalid value: \"array\": must be object at the root"],
    );
    check(
        with(json!({})),
        &["s.properties[a].type: Required value: must not be empty for specified object fields"],
    );
    check(
        with(json!({"type": "array"})),
        &["s.properties[a].items: Required value: must be specified"],
    );
    check(
        with(json!({"type": "array", "items": {}})),
        &[
            "s.properties[a].items.type: Required value: must not be empty for specified array items",
        ],
    );
    check(
        with(json!({"type": "object", "additionalProperties": {}})),
        &[
            "s.properties[a].additionalProperties.type: Required value: must not be empty for specified object fields",
        ],
    );
    check(
        with(json!({"x-kubernetes-preserve-unknown-fields": true})),
        &[],
    );
    check(with(json!({"x-kubernetes-int-or-string": true})), &[]);
    check(json!({"x-kubernetes-preserve-unknown-fields": true}), &[]);
}

#[test]
fn additional_properties_are_not_for_the_root() {
    check(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        &["s.additionalProperties: Forbidden: must not be used at the root"],
    );
    check(
        json!({"type": "object", "additionalProperties": true}),
        &["s.additionalProperties: Forbidden: must not be used at the root"],
    );
}

#[test]
fn int_or_string_takes_two_forms_of_types() {
    let types = json!([{"type": "integer"}, {"type": "string"}]);
    check(
        with(json!({"x-kubernetes-int-or-string": true, "anyOf": types})),
        &[],
    );
    check(
        with(
            json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": types}, {"maxLength": 3}]}),
        ),
        &[],
    );
    check(
        with(
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ),
        &[
            "s.properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
            "s.properties[a].anyOf[1].type: Forbidden: must be empty to be structural",
        ],
    );
    check(
        with(
            json!({"x-kubernetes-int-or-string": true, "allOf": [{"maxLength": 3}, {"anyOf": types}]}),
        ),
        &[
            "s.properties[a].allOf[1].anyOf[0].type: Forbidden: must be empty to be structural",
            "s.properties[a].allOf[1].anyOf[1].type: Forbidden: must be empty to be structural",
        ],
    );
    check(
        with(
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
        ),
        &[
            "s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ],
    );
}

#[test]
fn junctors_only_validate() {
    let cases = [
        (json!({"type": "object"}), "type", "empty"),
        (
            json!({"additionalProperties": {"minimum": 1}}),
            "additionalProperties",
            "undefined",
        ),
        (json!({"default": 1}), "default", "undefined"),
        (json!({"title": "x"}), "title", "empty"),
        (json!({"description": "x"}), "description", "empty"),
        (json!({"nullable": true}), "nullable", "false"),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            "x-kubernetes-preserve-unknown-fields",
            "false",
        ),
        (
            json!({"x-kubernetes-embedded-resource": true}),
            "x-kubernetes-embedded-resource",
            "false",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            "x-kubernetes-int-or-string",
            "false",
        ),
        (
            json!({"x-kubernetes-list-map-keys": ["a"]}),
            "x-kubernetes-list-map-keys",
            "empty",
        ),
        (
            json!({"x-kubernetes-list-type": "set"}),
            "x-kubernetes-list-type",
            "undefined",
        ),
        (
            json!({"x-kubernetes-map-type": "atomic"}),
            "x-kubernetes-map-type",
            "undefined",
        ),
        (
            json!({"x-kubernetes-validations": [{"rule": "true"}]}),
            "x-kubernetes-validations",
            "empty",
        ),
    ];
    for (nested, keyword, state) in cases {
        for (junctor, at) in [
            ("anyOf", "[0]"),
            ("allOf", "[0]"),
            ("oneOf", "[0]"),
            ("not", ""),
        ] {
            let value = if at.is_empty() {
                nested.clone()
            } else {
                json!([nested])
            };
            let problem = format!(
                "s.properties[a].{junctor}{at}.{keyword}: Forbidden: must be {state} to be structural"
            );
            check(with(json!({"type": "object", junctor: value})), &[&problem]);
        }
    }
}

#[test]
fn nested_validations_need_a_structure() {
    let root = |nested: Value| {
        json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}},
        "l": {"type": "array", "items": {"type": "object"}}}, "allOf": [nested]})
    };
    check(
        root(json!({"properties": {"a": {"properties": {"b": {"minLength": 1}}}}})),
        &[],
    );
    check(
        root(json!({"properties": {"a": {"properties": {"c": {"minLength": 1}}}}})),
        &[
            "s.properties[a].properties[c]: Required value: because it is defined in s.allOf[0].properties[a].properties[c]",
        ],
    );
    check(
        root(json!({"properties": {"x": {"minLength": 1}}})),
        &["s.properties[x]: Required value: because it is defined in s.allOf[0].properties[x]"],
    );
    check(
        root(json!({"properties": {"a": {"items": {"minLength": 1}}}})),
        &[
            "s.properties[a].items: Required value: because it is defined in s.allOf[0].properties[a].items",
        ],
    );
    check(
        root(json!({"not": {"anyOf": [{"properties": {"x": {}}}]}})),
        &[
            "s.properties[x]: Required value: because it is defined in s.allOf[0].not.anyOf[0].properties[x]",
        ],
    );
}

#[test]
fn metadata_is_defined_by_the_server() {
    let root = |metadata: Value| json!({"type": "object", "properties": {"metadata": metadata}});
    let only_names = "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified";
    check(root(json!({"type": "object"})), &[]);
    check(
        root(
            json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}, "generateName": {"type": "string"}}}),
        ),
        &[],
    );
    check(
        root(json!({"type": "object", "properties": {"labels": {"type": "object"}}})),
        &[only_names],
    );
    check(
        root(json!({"type": "object", "description": "x"})),
        &[only_names],
    );
    check(
        root(json!({"type": "object", "required": ["name"]})),
        &[only_names],
    );
    check(
        root(json!({"type": "string"})),
        &["s.properties[metadata].type: Invalid value: \"string\": must be object"],
    );
    check(json!({"type": "object", "anyOf": [{"properties": {"metadata": {}}}], "properties": {"metadata": {"type": "object"}}}), &[
        "s.anyOf[0].properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
    ].map(|_| "s.anyOf[0].properties[metadata]: Forbidden: must not be specified in a nested context"));
    check(
        json!({"type": "object", "properties": {"kind": {"type": "integer"}, "apiVersion": {"type": "object"}}}),
        &[
            "s.properties[apiVersion].type: Invalid value: \"object\": must be string",
            "s.properties[kind].type: Invalid value: \"integer\": must be string",
        ],
    );
    // Further inside, these names mean nothing.
    check(
        with(
            json!({"type": "object", "properties": {"kind": {"type": "integer"}, "metadata": {"type": "string"}}}),
        ),
        &[],
    );
}

#[test]
fn embedded_resources_are_objects_with_content() {
    check(
        with(
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        ),
        &[],
    );
    check(
        with(
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}),
        ),
        &[],
    );
    check(
        with(json!({"type": "object", "x-kubernetes-embedded-resource": true})),
        &[
            "s.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ],
    );
    check(
        with(
            json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        ),
        &[
            "s.properties[a].type: Required value: must be object if x-kubernetes-embedded-resource is true",
        ],
    );
    check(
        with(
            json!({"type": "string", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        ),
        &[
            "s.properties[a].type: Invalid value: \"string\": must be object if x-kubernetes-embedded-resource is true",
        ],
    );
    check(
        with(
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true, "additionalProperties": true}),
        ),
        &[
            "s.properties[a].additionalProperties: Forbidden: must not be used if x-kubernetes-embedded-resource is set",
        ],
    );
}

#[test]
fn patterns_must_compile() {
    check(
        with(json!({"type": "string", "pattern": "a("})),
        &[
            "s.properties[a].pattern: Invalid value: \"a(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `a(`",
        ],
    );
    check(
        with(json!({"type": "string", "anyOf": [{"pattern": "(?!a)"}]})),
        &[
            "s.properties[a].anyOf[0].pattern: Invalid value: \"(?!a)\": must be a valid regular expression, but isn't: error parsing regexp: invalid or unsupported Perl syntax: `(?!`",
        ],
    );
}

#[test]
fn problems_are_limited() {
    let properties: serde_json::Map<String, Value> =
        (0..5000).map(|i| (format!("f{i}"), json!({}))).collect();
    let parsed = parse_unchecked(&json!({"type": "object", "properties": properties})).unwrap();
    assert!(check_structure(&parsed, &FieldPath::ROOT).len() <= MAX_PROBLEMS + 1);
}

/// A thousand of them would take minutes and gigabytes.
#[test]
fn large_patterns_have_a_limit_for_each_schema() {
    let with = |patterns: usize| {
        let property = |i: usize| {
            let pattern = format!("^\\pL{{{}}}$", 100 + i);
            (
                format!("p{i}"),
                json!({"type": "string", "pattern": pattern}),
            )
        };
        let properties: serde_json::Map<_, _> = (0..patterns).map(property).collect();
        let schema = json!({"type": "object", "properties": properties});
        check_structure(&parse_unchecked(&schema).unwrap(), &FieldPath::ROOT)
    };
    assert!(with(3).is_empty());
    let problems = with(1000);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("too large together"));
}
