#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use serde_json::json;

fn parse(schema: Value) -> Arc<Schema> {
    parse_unchecked(&schema).unwrap()
}

#[test]
fn keywords_become_fields() {
    let schema = parse(json!({
        "type": "object", "nullable": true, "default": {"a": 1}, "description": "text",
        "required": ["a"], "maxProperties": 3, "x-kubernetes-map-type": "atomic",
        "properties": {
            "b": {"x-kubernetes-int-or-string": true},
            "a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true}},
        },
    }));
    assert_eq!(schema.value_type, Some(ValueType::Object));
    assert_eq!(schema.map_type, Some(MapKind::Atomic));
    assert!(schema.nullable && schema.has_description && !schema.has_title);
    assert_eq!(schema.default.as_deref(), Some(&json!({"a": 1})));
    let checks = schema.checks.as_ref().unwrap();
    assert_eq!(
        (&*checks.required[0], checks.max_properties),
        ("a", Some(3))
    );
    let a = schema.property("a").unwrap();
    assert_eq!((a.list_type, &*a.map_keys()[0]), (Some(ListKind::Map), "k"));
    let items = a.items.as_ref().unwrap();
    assert!(items.embedded && items.preserves_unknown);
    assert!(schema.property("b").unwrap().int_or_string);
    assert!(schema.property("c").is_none());
}

#[test]
fn checks_and_rules_become_fields() {
    let schema = parse(json!({
        "type": "integer", "format": "int32", "minimum": 1, "maximum": 2.5, "exclusiveMaximum": true,
        "multipleOf": 2, "enum": [1, "a", null], "not": {"type": "string"},
        "x-kubernetes-validations": [{"rule": "self > 0", "message": "m", "reason": "FieldValueInvalid",
            "fieldPath": ".a", "messageExpression": "'x'", "optionalOldSelf": true}],
    }));
    let checks = schema.checks.as_ref().unwrap();
    assert_eq!(
        (checks.minimum, checks.maximum, checks.multiple_of),
        (Some(1.0), Some(2.5), Some(2.0))
    );
    assert!(checks.exclusive_maximum && !checks.exclusive_minimum);
    assert_eq!(checks.enumeration.len(), 3);
    assert!(checks.not.as_ref().unwrap().is_only(ValueType::String));
    assert_eq!(
        (checks.number_format, checks.string_format),
        (Some(NumberFormat::Int32), None)
    );
    let rule = &schema.validation_rules()[0];
    assert_eq!(
        (&*rule.rule, rule.optional_old_self),
        ("self > 0", Some(true))
    );
    assert_eq!(rule.reason.as_deref(), Some("FieldValueInvalid"));
}

#[test]
fn unsupported_keywords_are_rejected() {
    let cases = [
        (json!({"id": "x"}), "OpenAPIV3Schema 'id' is not supported"),
        (
            json!({"$schema": "x"}),
            "OpenAPIV3Schema 'schema' is not supported",
        ),
        (
            json!({"$ref": "#/x"}),
            "OpenAPIV3Schema '$ref' is not supported",
        ),
        (
            json!({"patternProperties": {"a": {}}}),
            "OpenAPIV3Schema 'patternProperties' is not supported",
        ),
        (
            json!({"dependencies": {"a": ["b"]}}),
            "OpenAPIV3Schema 'dependencies' is not supported",
        ),
        (
            json!({"definitions": {"a": {}}}),
            "OpenAPIV3Schema 'definitions' is not supported",
        ),
        (
            json!({"additionalItems": false}),
            "OpenAPIV3Schema 'additionalItems' is not supported",
        ),
        (
            json!({"items": [{}]}),
            "OpenAPIV3Schema 'items' must be a schema, but is an array",
        ),
        (
            json!({"properties": {"a": {"x-kubernetes-preserve-unknown-fields": false}}}),
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined",
        ),
        (
            json!({"properties": {"a": 1}}),
            "a schema must be an object",
        ),
    ];
    for (schema, message) in cases {
        assert_eq!(parse_unchecked(&schema).unwrap_err(), message, "{schema}");
    }
}

#[test]
fn depth_is_limited() {
    let nest = |levels: usize| {
        (0..levels).fold(
            json!({"type": "string"}),
            |inner, _| json!({"items": inner}),
        )
    };
    assert!(parse_unchecked(&nest(MAX_DEPTH - 1)).is_ok());
    let message = parse_unchecked(&nest(MAX_DEPTH)).unwrap_err();
    assert_eq!(
        message,
        "schemas must not be nested more than 128 levels deep"
    );
}

#[test]
fn equal_nodes_and_names_are_stored_once() {
    let probe = |description: &str| {
        json!({"type": "object", "description": description,
        "properties": {"port": {"type": "integer", "description": description, "minimum": 1}}})
    };
    let schema = parse(json!({"type": "object", "properties": {
        "live": probe("one"), "ready": probe("two"),
        "start": {"type": "object", "properties": {"port": {"type": "integer", "minimum": 2}}}}}));
    let (live, ready) = (
        schema.property("live").unwrap(),
        schema.property("ready").unwrap(),
    );
    let start = schema.property("start").unwrap();
    assert!(Arc::ptr_eq(live, ready));
    assert!(!Arc::ptr_eq(live, start));
    assert!(Arc::ptr_eq(
        &live.properties[0].name,
        &start.properties[0].name
    ));
}

#[test]
fn nodes_that_differ_are_not_shared() {
    let schema = parse(json!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {}}, "b": {"type": "object"},
        "c": {"type": "object", "additionalProperties": true},
        "d": {"type": "object", "additionalProperties": false},
        "e": {"type": "object", "properties": {"x": {"type": "string"}}},
        "f": {"type": "object", "properties": {"y": {"type": "string"}}},
        "g": {"type": "object", "additionalProperties": {"type": "string"}},
        "h": {"type": "object", "allOf": [{"required": ["x"]}]},
        "i": {"type": "object", "anyOf": [{"required": ["x"]}]},
        "j": {"type": "object", "default": {}}}}));
    for (i, a) in schema.properties.iter().enumerate() {
        for b in &schema.properties[i + 1..] {
            assert!(
                !Arc::ptr_eq(&a.schema, &b.schema),
                "{} and {}",
                a.name,
                b.name
            );
        }
    }
}

#[test]
fn schema_that_is_not_structural_is_rejected_with_paths() {
    let problems = parse_schema(&json!({"type": "object", "properties": {"a": {}}})).unwrap_err();
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["properties[a].type: Required value: must not be empty for specified object fields"]
    );
    assert!(parse_schema(&json!({"type": "object"})).is_ok());
}
