#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use serde_json::json;

fn check_with(schema: Value, options: SchemaOptions, expected: &[&str]) {
    let none = |_: &Value| Vec::new();
    let problems = check_schema(
        &schema,
        options,
        RuleHistory::default(),
        &none,
        &FieldPath::start("s"),
    );
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected, "{schema}");
}

fn check(schema: Value, expected: &[&str]) {
    check_with(schema, SchemaOptions::NEW, expected);
}

fn with(field: Value) -> Value {
    json!({"type": "object", "properties": {"a": field}})
}

#[test]
fn keywords_that_kubernetes_does_not_have_are_forbidden() {
    let cases = [
        (json!({"id": "x"}), "id: Forbidden: id is not supported"),
        (
            json!({"additionalItems": true}),
            "additionalItems: Forbidden: additionalItems is not supported",
        ),
        (
            json!({"patternProperties": {"a": {"type": "string"}}}),
            "patternProperties: Forbidden: patternProperties is not supported",
        ),
        (
            json!({"definitions": {"a": {"type": "string"}}}),
            "definitions: Forbidden: definitions is not supported",
        ),
        (
            json!({"dependencies": {"a": ["b"]}}),
            "dependencies: Forbidden: dependencies is not supported",
        ),
        (
            json!({"$ref": "#/a"}),
            "$ref: Forbidden: $ref is not supported",
        ),
        (
            json!({"items": [{"type": "string"}]}),
            "items: Forbidden: items must be a schema object and not an array",
        ),
        (
            json!({"uniqueItems": true}),
            "uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
    ];
    for (keyword, problem) in cases {
        let mut field = json!({"type": "object"});
        field
            .as_object_mut()
            .unwrap()
            .extend(keyword.as_object().unwrap().clone());
        check(with(field), &[&format!("s.properties[a].{problem}")]);
    }
}

#[test]
fn types_must_be_known() {
    let supported =
        "supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"";
    check(
        with(json!({"type": "text"})),
        &[&format!(
            "s.properties[a].type: Unsupported value: \"text\": {supported}"
        )],
    );
    check(
        with(json!({"type": "null"})),
        &[
            &format!("s.properties[a].type: Unsupported value: \"null\": {supported}"),
            "s.properties[a].type: Forbidden: type cannot be set to null, use nullable as an alternative",
        ],
    );
}

#[test]
fn schema_keyword_is_reported_by_the_parser_only() {
    check(
        with(json!({"type": "object", "$schema": "x"})),
        &["s: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"],
    );
}

#[test]
fn properties_exclude_additional_ones() {
    let both = |additional: Value| {
        with(
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": additional}),
        )
    };
    let problem = "s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive";
    check(both(json!({"type": "string"})), &[problem]);
    check(both(json!(false)), &[problem]);
    check(both(json!(true)), &[]);
}

#[test]
fn defaults_are_forbidden_in_metadata_of_the_root() {
    check(
        json!({"type": "object", "properties": {"kind": {"type": "string", "default": "K"}}}),
        &["s.properties[kind].default: Forbidden: must not be set in top-level kind"],
    );
    let pod = |labels: Value| {
        with(
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"metadata": {"type": "object", "properties": {"labels": labels}}}}),
        )
    };
    check(
        pod(json!({"type": "object", "additionalProperties": {"type": "string", "default": "x"}})),
        &[
            "s.properties[a].properties[metadata].properties[labels].additionalProperties.default: Forbidden: must not be set inside additionalProperties applying to object metadata",
        ],
    );
    check(
        pod(
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        ),
        &[
            "s.properties[a].properties[metadata].properties[labels].x-kubernetes-embedded-resource: Forbidden: must not be used inside of resource meta",
        ],
    );
}

#[test]
fn lists_and_maps_follow_their_topology() {
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "o": {"type": "object"}}});
    let list = |more: Value| {
        let mut field = json!({"type": "array", "items": item});
        field
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        with(field)
    };
    let at = "s.properties[a].";
    let cases = [
        (list(json!({"x-kubernetes-list-type": "atomic"})), vec![]),
        (
            list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})),
            vec![],
        ),
        (
            list(json!({"x-kubernetes-list-type": "bag"})),
            vec![
                "x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
            ],
        ),
        (
            list(json!({"x-kubernetes-list-map-keys": ["k"]})),
            vec![
                "x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            ],
        ),
        (
            list(json!({"x-kubernetes-list-type": "atomic", "x-kubernetes-list-map-keys": ["k"]})),
            vec![
                "x-kubernetes-list-type: Invalid value: \"atomic\": must be map if x-kubernetes-list-map-keys is non-empty",
            ],
        ),
        (
            list(json!({"x-kubernetes-list-type": "map"})),
            vec![
                "x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        ),
        (
            list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"]})),
            vec![
                "x-kubernetes-list-map-keys: Invalid value: [\"x\"]: entries must all be names of item properties",
            ],
        ),
        (
            list(
                json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "k"]}),
            ),
            vec![
                "x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\"]: must not contain duplicate entries",
            ],
        ),
        (
            list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["o"]})),
            vec![
                "items.properties[o].type: Invalid value: \"object\": must be a scalar type if parent array's x-kubernetes-list-type is map",
                "items.properties[o].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            list(json!({"x-kubernetes-list-type": "set"})),
            vec![
                "items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
        (
            with(
                json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "nullable": true}}),
            ),
            vec![
                "items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
            ],
        ),
        (
            with(
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "string"}}),
            ),
            vec![
                "items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
            ],
        ),
        (
            with(json!({"type": "object", "x-kubernetes-list-type": "set"})),
            vec![
                "type: Invalid value: \"object\": must be array if x-kubernetes-list-type is specified",
            ],
        ),
        (
            with(
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-map-type": "atomic"}),
            ),
            vec![
                "type: Invalid value: \"array\": must be object if x-kubernetes-map-type is specified",
            ],
        ),
        (
            with(json!({"type": "object", "x-kubernetes-map-type": "x"})),
            vec![
                "x-kubernetes-map-type: Unsupported value: \"x\": supported values: \"atomic\", \"granular\"",
            ],
        ),
        (
            with(
                json!({"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-list-type": "set"}),
            ),
            vec!["type: Required value: must be array if x-kubernetes-list-type is specified"],
        ),
        (
            with(
                json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}),
            ),
            vec![
                "items.x-kubernetes-list-type: Invalid value: \"set\": must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
    ];
    for (schema, problems) in cases {
        let problems: Vec<String> = problems
            .iter()
            .map(|problem| format!("{at}{problem}"))
            .collect();
        let problems: Vec<&str> = problems.iter().map(String::as_str).collect();
        check(schema, &problems);
    }
}

#[test]
fn keys_of_lists_are_never_null() {
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string", "nullable": true, "default": "x"}}}});
    check(
        with(list),
        &[
            "s.properties[a].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
        ],
    );
}

#[test]
fn root_is_restricted_by_a_status() {
    let options = SchemaOptions {
        has_status: true,
        ..SchemaOptions::NEW
    };
    let status = json!({"type": "object", "description": "d", "required": ["a"], "properties": {"a": {"type": "string"}}});
    check_with(status, options, &[]);
    let none = |_: &Value| Vec::new();
    let schema = json!({"type": "object", "maxProperties": 3});
    let problems = check_schema(
        &schema,
        options,
        RuleHistory::default(),
        &none,
        &FieldPath::start("s"),
    );
    assert!(
        problems[0]
            .detail
            .starts_with("only [Description Type Format Title Maximum ")
    );
    assert!(problems[0].detail.ends_with(" XValidations] fields are allowed at the root of the schema if the status subresource is enabled"));
    check_with(
        json!({"type": "string"}),
        options,
        &[
            "s.type: Invalid value: \"string\": only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
            "s.type: Invalid value: \"string\": must be object at the root",
        ],
    );
}

#[test]
fn root_is_not_nullable() {
    check(
        json!({"type": "object", "nullable": true}),
        &["s.nullable: Forbidden: nullable cannot be true at the root"],
    );
}

#[test]
fn preserve_unknown_fields_is_true_or_absent() {
    check(
        with(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
        &[
            "s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ],
    );
}

#[test]
fn defaults_and_rules_are_checked() {
    check(
        with(json!({"type": "string", "default": 1})),
        &[
            "s.properties[a].default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
        ],
    );
    check(
        with(json!({"type": "string", "x-kubernetes-validations": [{"rule": ""}]})),
        &[
            "s.properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified",
        ],
    );
}

#[test]
fn old_problems_are_not_required_to_be_solved() {
    let old = json!({"type": "object", "properties": {
        "t": {"type": "text"}, "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
        "m": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "nullable": true}}, "u": {}}});
    let options = SchemaOptions::for_update(&[&old]);
    assert!(!options.require_structure && !options.require_known_types);
    assert!(!options.require_atomic_sets && !options.require_list_keys);
    assert!(options.require_pruned_defaults);
    check_with(old, options, &[]);
    let unpruned = with(json!({"type": "object", "default": {"x": 1}}));
    assert!(!SchemaOptions::for_update(&[&unpruned]).require_pruned_defaults);
    let fine = json!({"type": "object"});
    assert_eq!(SchemaOptions::for_update(&[&fine]), SchemaOptions::NEW);
}

#[test]
fn depth_and_problems_are_limited() {
    let deep = (0..500).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "array", "items": inner}),
    );
    check(
        with(deep),
        &["s: Invalid value: \"\": schemas must not be nested more than 128 levels deep"],
    );
    let properties: serde_json::Map<String, Value> = (0..5000)
        .map(|i| (format!("f{i}"), json!({"type": "x"})))
        .collect();
    let none = |_: &Value| Vec::new();
    let problems = check_schema(
        &json!({"type": "object", "properties": properties}),
        SchemaOptions::NEW,
        RuleHistory::default(),
        &none,
        &FieldPath::ROOT,
    );
    assert_eq!(problems.len(), MAX_PROBLEMS);
}

#[test]
fn unknown_formats_are_listed_for_warnings() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "format": "quantity"}, "b": {"type": "string", "format": "date"},
        "c": {"type": "integer", "format": "date"},
        "d": {"type": "array", "items": {"type": "number", "format": "double"}}}});
    assert_eq!(list_unrecognized_formats(&schema), ["quantity", "date"]);
}
