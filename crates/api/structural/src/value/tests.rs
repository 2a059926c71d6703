#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::parse::parse_unchecked;
use serde_json::json;

fn texts(problems: &[FieldProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// Validates `value` as the field `spec.x` of the schema.
fn check(schema: Value, value: Value, expected: &[&str]) {
    let root = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}});
    let parsed = parse_unchecked(&root).unwrap();
    let problems = validate_value(&parsed, &json!({"spec": {"x": value}}), None);
    assert_eq!(texts(&problems), expected, "{schema} {value}");
}

#[test]
fn types_are_checked() {
    let cases = [
        ("string", json!("a"), None),
        ("integer", json!(1), None),
        ("integer", json!(1.0), None),
        ("number", json!(1), None),
        ("number", json!(1.5), None),
        ("boolean", json!(true), None),
        ("array", json!([]), None),
        ("object", json!({}), None),
        ("string", json!(1), Some(("string", "integer"))),
        ("string", json!(1.5), Some(("string", "number"))),
        ("string", json!(true), Some(("string", "boolean"))),
        ("string", json!(null), Some(("string", "null"))),
        ("integer", json!("1"), Some(("integer", "string"))),
        ("boolean", json!("true"), Some(("boolean", "string"))),
        ("array", json!({}), Some(("array", "object"))),
        ("object", json!([]), Some(("object", "array"))),
    ];
    for (value_type, value, wrong) in cases {
        let expected = wrong.map(|(wanted, found)| {
            format!("spec.x: Invalid value: \"{found}\": spec.x in body must be of type {wanted}: \"{found}\"")
        });
        let mut schema = json!({"type": value_type});
        if value_type == "array" {
            schema["items"] = json!({"type": "string"});
        }
        check(schema, value, &Vec::from_iter(expected.as_deref()));
    }
}

#[test]
fn fraction_is_no_integer() {
    check(
        json!({"type": "integer"}),
        json!(1.5),
        &[
            "spec.x: Invalid value: \"number\": spec.x in body must be of type integer: \"number\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.x",
        ],
    );
}

#[test]
fn nullable_values_may_be_null() {
    check(
        json!({"type": "string", "nullable": true}),
        json!(null),
        &[],
    );
    check(
        json!({"type": "string", "nullable": true, "enum": ["a"]}),
        json!(null),
        &["spec.x: Unsupported value: null: supported values: \"a\""],
    );
    check(
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!(null),
        &[],
    );
}

#[test]
fn int_or_string_has_two_types() {
    let schema = json!({"x-kubernetes-int-or-string": true});
    check(schema.clone(), json!(1), &[]);
    check(schema.clone(), json!("10%"), &[]);
    check(
        schema.clone(),
        json!(true),
        &[
            "spec.x: Invalid value: \"boolean\": spec.x in body must be of type integer,string: \"boolean\"",
        ],
    );
    check(
        schema,
        json!(null),
        &[
            "spec.x: Invalid value: \"null\": spec.x in body must be of type integer,string: \"null\"",
        ],
    );
    let pattern = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+%$"});
    check(pattern.clone(), json!(5), &[]);
    check(
        pattern,
        json!("x"),
        &["spec.x: Invalid value: \"x\": spec.x in body should match '^[0-9]+%$'"],
    );
}

#[test]
fn boundaries_of_numbers_are_checked() {
    let integer = |more: Value| {
        let mut schema = json!({"type": "integer"});
        schema
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        schema
    };
    let cases = [
        (json!({"minimum": 1}), json!(1), None),
        (
            json!({"minimum": 1}),
            json!(0),
            Some("should be greater than or equal to 1"),
        ),
        (
            json!({"minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            Some("should be greater than 1"),
        ),
        (json!({"maximum": 3}), json!(3), None),
        (
            json!({"maximum": 3}),
            json!(4),
            Some("should be less than or equal to 3"),
        ),
        (
            json!({"maximum": 3, "exclusiveMaximum": true}),
            json!(3),
            Some("should be less than 3"),
        ),
        (json!({"multipleOf": 5}), json!(10), None),
        (
            json!({"multipleOf": 5}),
            json!(11),
            Some("should be a multiple of 5"),
        ),
    ];
    for (more, value, wrong) in cases {
        let expected =
            wrong.map(|text| format!("spec.x: Invalid value: {value}: spec.x in body {text}"));
        check(
            integer(more),
            value.clone(),
            &Vec::from_iter(expected.as_deref()),
        );
    }
    check(
        json!({"type": "number", "minimum": 0.5}),
        json!(0.25),
        &["spec.x: Invalid value: 0.25: spec.x in body should be greater than or equal to 0.5"],
    );
    check(
        json!({"type": "number", "multipleOf": 0.1}),
        json!(0.3),
        &[],
    );
    check(
        json!({"type": "number", "multipleOf": 0.1}),
        json!(0.35),
        &["spec.x: Invalid value: 0.35: spec.x in body should be a multiple of 0.1"],
    );
    check(
        integer(json!({"multipleOf": 0})),
        json!(3),
        &["spec.x: Invalid value: 0: factor MultipleOf declared for spec.x must be positive: 0"],
    );
}

#[test]
fn formats_of_numbers_limit_their_range() {
    check(
        json!({"type": "integer", "format": "int32"}),
        json!(2_147_483_647),
        &[],
    );
    check(
        json!({"type": "integer", "format": "int32"}),
        json!(2_147_483_648_i64),
        &[
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.x",
        ],
    );
    check(
        json!({"type": "integer", "format": "int64"}),
        json!(2_147_483_648_i64),
        &[],
    );
    check(
        json!({"type": "integer", "format": "int32"}),
        json!(1.5),
        &[
            "spec.x: Invalid value: \"float64\": spec.x in body must be of type int32: \"float64\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.x",
        ],
    );
    check(
        json!({"type": "number", "format": "float"}),
        json!(1e39),
        &[
            "<nil>: Invalid value: \"\": Checked value must be of type number with format float in spec.x",
        ],
    );
}

#[test]
fn texts_are_checked() {
    let text = |more: Value| {
        let mut schema = json!({"type": "string"});
        schema
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        schema
    };
    // Lengths are in characters.
    check(text(json!({"maxLength": 2})), json!("äö"), &[]);
    check(
        text(json!({"maxLength": 2})),
        json!("abc"),
        &["spec.x: Too long: may not be more than 2 bytes"],
    );
    check(
        text(json!({"minLength": 2})),
        json!("a"),
        &["spec.x: Invalid value: \"a\": spec.x in body should be at least 2 chars long"],
    );
    check(
        text(json!({"pattern": "^a+$"})),
        json!("b"),
        &["spec.x: Invalid value: \"b\": spec.x in body should match '^a+$'"],
    );
    check(text(json!({"pattern": "b"})), json!("abc"), &[]);
    check(
        text(json!({"pattern": "("})),
        json!("a"),
        &[
            "spec.x: Invalid value: \"a\": spec.x in body should match '(, but pattern is invalid: error parsing regexp: missing closing ): `(`'",
        ],
    );
    // The first violation ends the checks of lengths and pattern.
    check(
        text(json!({"minLength": 2, "pattern": "x"})),
        json!("a"),
        &["spec.x: Invalid value: \"a\": spec.x in body should be at least 2 chars long"],
    );
}

#[test]
fn formats_of_texts_are_checked() {
    let date = json!({"type": "string", "format": "date"});
    check(date.clone(), json!("2024-01-01"), &[]);
    check(
        date.clone(),
        json!("tomorrow"),
        &["spec.x: Invalid value: \"tomorrow\": spec.x in body must be of type date: \"tomorrow\""],
    );
    check(
        date,
        json!(1),
        &["spec.x: Invalid value: \"int64\": spec.x in body must be of type date: \"int64\""],
    );
    check(
        json!({"type": "string", "format": "no-such-format"}),
        json!("x"),
        &[],
    );
    check(
        json!({"type": "string", "format": "int32"}),
        json!("x"),
        &[],
    );
}

#[test]
fn enumerations_are_checked() {
    let schema = json!({"type": "string", "enum": ["b", "a", 3]});
    check(schema.clone(), json!("a"), &[]);
    check(
        schema,
        json!("c"),
        &["spec.x: Unsupported value: \"c\": supported values: \"b\", \"a\", \"3\""],
    );
    check(json!({"type": "integer", "enum": [1, 2.0]}), json!(2), &[]);
    check(
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "enum": [{"a": 1}]}),
        json!({"a": 1}),
        &[],
    );
}

#[test]
fn sizes_of_lists_and_maps_are_checked() {
    let list = |more: (&str, i64)| json!({"type": "array", "items": {"type": "integer"}, (more.0): more.1});
    check(list(("maxItems", 1)), json!([1]), &[]);
    check(
        list(("maxItems", 1)),
        json!([1, 2]),
        &["spec.x: Too many: 2: must have at most 1 item"],
    );
    check(
        list(("minItems", 1)),
        json!([]),
        &["spec.x: Invalid value: 0: spec.x in body should have at least 1 items"],
    );
    let map = |more: (&str, i64)| json!({"type": "object", "additionalProperties": {"type": "integer"}, (more.0): more.1});
    check(
        map(("maxProperties", 1)),
        json!({"a": 1, "b": 2}),
        &["spec.x: Too many: 2: must have at most 1 item"],
    );
    check(
        map(("minProperties", 1)),
        json!({}),
        &["spec.x: Invalid value: 0: spec.x in body should have at least 1 properties"],
    );
    check(
        json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true}),
        json!([1, 1]),
        &["spec.x: Invalid value: \"\": spec.x in body shouldn't contain duplicates"],
    );
}

#[test]
fn members_are_checked() {
    let schema =
        json!({"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}}});
    check(schema.clone(), json!({"a": "1", "b": 2}), &[]);
    check(
        schema,
        json!({"a": 1, "c": 2}),
        &[
            "spec.x.a: Invalid value: \"integer\": spec.x.a in body must be of type string: \"integer\"",
            "spec.x.b: Required value",
        ],
    );
    check(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"a/b": 1}),
        &[
            "spec.x.a/b: Invalid value: \"integer\": spec.x.a/b in body must be of type string: \"integer\"",
        ],
    );
    check(
        json!({"type": "object", "additionalProperties": false}),
        json!({"a": 1}),
        &["spec.x: Invalid value: \"a\": spec.x.a in body is a forbidden property"],
    );
    check(
        json!({"type": "array", "items": {"type": "object", "required": ["n"]}}),
        json!([{"n": 1}, {}]),
        &["spec.x[1].n: Required value"],
    );
}

#[test]
fn one_of_any_of_must_match() {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(schema.clone(), json!({"a": 1}), &[]);
    check(
        schema,
        json!({}),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate at least one schema (anyOf)",
            "spec.x.a: Required value",
        ],
    );
}

#[test]
fn exactly_one_of_one_of_must_match() {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(schema.clone(), json!({"a": 1}), &[]);
    check(
        schema.clone(),
        json!({}),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found none valid",
            "spec.x.a: Required value",
        ],
    );
    check(
        schema,
        json!({"a": 1, "b": 1}),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ],
    );
}

#[test]
fn all_of_must_match_and_not_must_not() {
    let all = json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 3}]});
    check(all.clone(), json!(2), &[]);
    check(
        all.clone(),
        json!(4),
        &[
            "spec.x: Invalid value: 4: spec.x in body should be less than or equal to 3",
            "<nil>: Invalid value: \"\": \"spec.x\" must validate all the schemas (allOf)",
        ],
    );
    check(
        json!({"type": "integer", "allOf": [{"minimum": 1}]}),
        json!(0),
        &[
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
            "<nil>: Invalid value: \"\": \"spec.x\" must validate all the schemas (allOf). None validated",
        ],
    );
    let not = json!({"type": "string", "not": {"enum": ["a"]}});
    check(not.clone(), json!("b"), &[]);
    check(
        not,
        json!("a"),
        &["<nil>: Invalid value: \"\": \"spec.x\" must not validate the schema (not)"],
    );
}

#[test]
fn alternative_with_most_positive_checks_is_reported() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "anyOf": [
        {"required": ["c"]},
        {"required": ["d"], "properties": {"a": {"minimum": 1}, "b": {"minimum": 1}}}]});
    check(
        schema,
        json!({"a": 1, "b": 1}),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate at least one schema (anyOf)",
            "spec.x.d: Required value",
        ],
    );
}

#[test]
fn same_problem_is_reported_once() {
    let schema = json!({"type": "object", "required": ["a"], "x-kubernetes-preserve-unknown-fields": true,
        "allOf": [{"required": ["a"]}, {"required": ["a"]}]});
    check(
        schema,
        json!({}),
        &[
            "spec.x.a: Required value",
            "<nil>: Invalid value: \"\": \"spec.x\" must validate all the schemas (allOf). None validated",
        ],
    );
}

#[test]
fn problems_are_limited() {
    let schema = parse_unchecked(&json!({"type": "array", "items": {"type": "string"}})).unwrap();
    let list: Value = vec![1; 100_000].into();
    assert_eq!(validate_value(&schema, &list, None).len(), MAX_PROBLEMS);
    // Alternatives that fail are dropped, whatever the number of their problems.
    let schema = parse_unchecked(&json!({"anyOf": [
        {"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}}]})).unwrap();
    assert_eq!(texts(&validate_value(&schema, &list, None)), [""; 0]);
}

#[test]
fn parts_have_a_prefix_in_the_field_only() {
    let schema = parse_unchecked(
        &json!({"type": "object", "required": ["a"], "properties": {"b": {"type": "string"}}}),
    )
    .unwrap();
    let problems = validate_part(&schema, &json!({"b": 1}), None, "status");
    assert_eq!(
        texts(&problems),
        [
            "status.b: Invalid value: \"integer\": b in body must be of type string: \"integer\"",
            "status.a: Required value",
        ]
    );
    let problems = validate_part(&schema, &json!(1), None, "status");
    assert_eq!(
        texts(&problems),
        ["status: Invalid value: \"integer\":  in body must be of type object: \"integer\""]
    );
}

fn ratchet(schema: Value, new: Value, old: Value, expected: &[&str]) {
    let parsed = parse_unchecked(&schema).unwrap();
    let problems = validate_value(&parsed, &new, Some(&old));
    assert_eq!(texts(&problems), expected, "{new} after {old}");
}

#[test]
fn unchanged_fields_may_stay_invalid() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 5}, "b": {"type": "string"}}});
    let wrong = "a: Invalid value: 2: a in body should be greater than or equal to 5";
    ratchet(
        schema.clone(),
        json!({"a": 1, "b": "new"}),
        json!({"a": 1, "b": "old"}),
        &[],
    );
    ratchet(schema.clone(), json!({"a": 2}), json!({"a": 1}), &[wrong]);
    ratchet(schema, json!({"a": 2}), json!({}), &[wrong]);
}

#[test]
fn unchanged_elements_of_lists_of_type_map_may_stay_invalid() {
    let list = |kind: &str| {
        json!({"type": "object", "properties": {"l": {"type": "array", "x-kubernetes-list-type": kind,
        "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {
            "k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}}}})
    };
    let old = json!({"l": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]});
    // The element moved, and another one changed.
    ratchet(
        list("map"),
        json!({"l": [{"k": "b", "v": 0}, {"k": "a", "v": 5}]}),
        old.clone(),
        &[],
    );
    ratchet(
        list("map"),
        json!({"l": [{"k": "a", "v": 6}]}),
        old.clone(),
        &["l[0].v: Invalid value: 6: l[0].v in body should be less than or equal to 1"],
    );
    // Elements of atomic lists have no identity.
    ratchet(
        list("atomic"),
        json!({"l": [{"k": "a", "v": 5}, {"k": "b", "v": 0}]}),
        old,
        &["l[0].v: Invalid value: 5: l[0].v in body should be less than or equal to 1"],
    );
}

#[test]
fn problem_of_a_whole_value_remains_if_a_part_changes() {
    let schema = json!({"type": "object", "properties": {"m": {"type": "object", "maxProperties": 1,
        "additionalProperties": {"type": "string"}}}});
    ratchet(
        schema.clone(),
        json!({"m": {"a": "1", "b": "2"}}),
        json!({"m": {"a": "1", "b": "2"}}),
        &[],
    );
    ratchet(
        schema,
        json!({"m": {"a": "1", "b": "3"}}),
        json!({"m": {"a": "1", "b": "2"}}),
        &["m: Too many: 2: must have at most 1 item"],
    );
}

#[test]
fn unchanged_part_must_satisfy_junctors_of_a_changed_value() {
    let schema = json!({"type": "object", "properties": {"s": {"type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "allOf": [{"properties": {"a": {"maxLength": 1}}}]}, "t": {"type": "string"}}});
    ratchet(
        schema.clone(),
        json!({"s": {"a": "long"}, "t": "new"}),
        json!({"s": {"a": "long"}, "t": "old"}),
        &[],
    );
    ratchet(
        schema,
        json!({"s": {"a": "long", "b": "new"}}),
        json!({"s": {"a": "long", "b": "old"}}),
        &[
            "s.a: Too long: may not be more than 1 byte",
            "<nil>: Invalid value: \"\": \"s\" must validate all the schemas (allOf). None validated",
        ],
    );
}

#[test]
fn type_metadata_is_validated_even_if_unchanged() {
    let schema = json!({"type": "object", "properties": {"kind": {"type": "string", "enum": ["A"]}, "x": {"type": "string"}}});
    ratchet(
        schema,
        json!({"kind": "B", "x": "1"}),
        json!({"kind": "B", "x": "2"}),
        &["kind: Unsupported value: \"B\": supported values: \"A\""],
    );
}
