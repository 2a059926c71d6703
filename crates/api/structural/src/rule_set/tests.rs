#![allow(clippy::unwrap_used)]

use super::*;
use crate::parse::parse_unchecked;
use serde_json::json;

fn validate(spec: Value, new: Value, old: Option<Value>) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let rules = RuleSet::compile(&parse_unchecked(&schema).unwrap());
    let new = json!({"spec": new});
    let old = old.map(|old| json!({"spec": old}));
    let outcome = rules.validate(&new, old.as_ref(), []);
    let warnings = outcome.warnings.iter().map(|text| format!("W {text}"));
    outcome
        .problems
        .iter()
        .map(ToString::to_string)
        .chain(warnings)
        .collect()
}

fn spec(rule: Value) -> Value {
    json!({"type": "object", "x-kubernetes-validations": [rule],
        "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}})
}

#[test]
fn failed_rules_have_the_message_and_reason_of_their_definition() {
    let value = json!({"n": 1, "m": 2});
    for (rule, expected) in [
        (json!({"rule": "self.n < self.m"}), None),
        (
            json!({"rule": "self.n > self.m"}),
            Some("spec: Invalid value: failed rule: self.n > self.m"),
        ),
        (
            json!({"rule": "self.n > self.m", "message": " too small "}),
            Some("spec: Invalid value: too small"),
        ),
        (
            json!({"rule": "false", "messageExpression": "'n is ' + string(self.n)", "fieldPath": ".n"}),
            Some("spec.n: Invalid value: n is 1"),
        ),
        (
            json!({"rule": "false", "message": "m", "messageExpression": "''"}),
            Some("spec: Invalid value: m"),
        ),
        (
            json!({"rule": "false", "message": "m", "reason": "FieldValueForbidden"}),
            Some("spec: Forbidden: m"),
        ),
        (
            json!({"rule": "false", "message": "m", "reason": "FieldValueRequired"}),
            Some("spec: Required value: m"),
        ),
        (
            json!({"rule": "self.n / 0 == 1"}),
            Some(
                "spec: Invalid value: \"object\": division by zero evaluating rule: self.n / 0 == 1",
            ),
        ),
    ] {
        assert_eq!(
            validate(spec(rule.clone()), value.clone(), None),
            Vec::from_iter(expected),
            "{rule}"
        );
    }
}

#[test]
fn rules_about_changes_need_an_old_value() {
    let rule = spec(json!({"rule": "self.n >= oldSelf.n", "message": "less"}));
    assert!(validate(rule.clone(), json!({"n": 1}), None).is_empty());
    assert!(validate(rule.clone(), json!({"n": 2}), Some(json!({"n": 1}))).is_empty());
    assert_eq!(
        validate(rule, json!({"n": 1}), Some(json!({"n": 2}))),
        ["spec: Invalid value: less"]
    );
    let rule = spec(
        json!({"rule": "oldSelf.hasValue() || self.n == 1", "message": "first",
        "optionalOldSelf": true}),
    );
    assert_eq!(
        validate(rule.clone(), json!({"n": 2}), None),
        ["spec: Invalid value: first"]
    );
    assert!(validate(rule, json!({"n": 2}), Some(json!({"n": 3}))).is_empty());
}

#[test]
fn failures_of_unchanged_parts_are_warnings() {
    let rule = spec(json!({"rule": "self.n > 5", "message": "small"}));
    assert_eq!(
        validate(rule.clone(), json!({"n": 1}), Some(json!({"n": 1}))),
        ["W spec: Invalid value: small"]
    );
    assert_eq!(
        validate(rule, json!({"n": 1, "m": 1}), Some(json!({"n": 1}))),
        ["spec: Invalid value: small"]
    );
}

#[test]
fn elements_of_keyed_lists_are_compared_by_key() {
    let list = json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
            "x-kubernetes-validations": [{"rule": "self.v == oldSelf.v", "message": "fixed"}],
            "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}});
    let old = json!([{"k": "a", "v": 1}, {"k": "b", "v": 2}]);
    let new = json!([{"k": "b", "v": 2}, {"k": "a", "v": 9}, {"k": "c", "v": 3}]);
    assert_eq!(
        validate(list, new, Some(old)),
        ["spec[1]: Invalid value: fixed"]
    );
}

#[test]
fn expensive_rules_end_the_evaluation() {
    let list = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [
        {"rule": "self.all(a, self.all(b, self.all(c, a + b + c > -1)))"}, {"rule": "false"}]});
    let value: Vec<i64> = (0..300).collect();
    let found = validate(list, json!(value), None);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("call cost exceeds limit"), "{found:?}");
}

#[test]
fn many_evaluations_share_one_budget() {
    let list = json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [
        {"rule": "!self.matches('a.*b.*c.*d.*e.*f')"}]}});
    let value = vec!["x".repeat(20_000); 2_000];
    let found = validate(list, json!(value), None);
    assert!(found.last().unwrap().contains("running out of cost budget"));
}

#[test]
fn invalid_objects_are_not_evaluated() {
    let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.missing"}]});
    let rules = RuleSet::compile(&parse_unchecked(&schema).unwrap());
    let outcome = rules.validate(&json!({}), None, [ProblemKind::Required]);
    assert_eq!(
        outcome.problems[0].to_string(),
        format!("<nil>: Invalid value: null: {BLOCKED}")
    );
    let outcome = rules.validate(&json!({}), None, [ProblemKind::Invalid]);
    assert!(
        outcome.problems[0]
            .detail
            .starts_with("rule compile error: compilation failed")
    );
}

#[test]
fn null_and_absent_values_have_no_rules() {
    let rule = json!({"type": "integer", "nullable": true,
        "x-kubernetes-validations": [{"rule": "self > 3", "message": "low"}]});
    assert!(validate(rule.clone(), Value::Null, None).is_empty());
    assert_eq!(
        validate(rule, json!(2), None),
        ["spec: Invalid value: 2: low"]
    );
}

#[test]
fn rules_of_parts_that_all_apply_are_evaluated() {
    let spec = json!({"type": "object", "properties": {"n": {"type": "integer"}},
        "allOf": [{"properties": {"n": {"x-kubernetes-validations": [{"rule": "self > 3"}]}}}]});
    assert_eq!(
        validate(spec, json!({"n": 1}), None),
        ["spec.n: Invalid value: 1: failed rule: self > 3"]
    );
}
