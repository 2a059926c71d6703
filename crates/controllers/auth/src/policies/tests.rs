#![allow(clippy::unwrap_used)]
use super::*;

const DEPLOYMENT: &str = "apps/v1, Kind=Deployment";

fn document(kind: &str, fields: Value) -> Value {
    let spec = json!({"type": "object", "properties": fields});
    json!({"components": {"schemas": {kind: {"type": "object", "properties": {"spec": spec},
        "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": kind}]}}}})
}

fn checked(kind: &str, fields: Value, params: Option<Value>) -> CheckedKind {
    let served = |kind: &str| ServedKind {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
    };
    let read = |kind: &str, fields, prefix| {
        SchemaTypes::from_document(&document(kind, fields), &served(kind), prefix).map(Arc::new)
    };
    let object = read(kind, fields, "object:").unwrap();
    let params = params.and_then(|fields| read("Limit", fields, "params:"));
    CheckedKind {
        kind: served(kind),
        types: combine_types(object, params),
    }
}

fn check(spec: Value, kinds: &[CheckedKind]) -> Vec<(String, String)> {
    let spec = serde_json::from_value(spec).unwrap();
    let warnings = check_expressions(&spec, kinds).into_iter();
    warnings.map(|one| (one.field_ref, one.warning)).collect()
}

fn replicas() -> Value {
    json!({"replicas": {"type": "integer"}})
}

#[test]
fn confused_types_are_warnings_with_place_and_kind() {
    let kinds = [checked("Deployment", replicas(), None)];
    let spec = json!({"validations": [
        {"expression": "object.spec.replicas > 1"},
        {"expression": "object.spec.replicas > '1'",
            "messageExpression": "'got ' + object.spec.replicas"},
        {"expression": "oldObject.spec.other < 10"},
    ]});
    let warnings = check(spec, &kinds);
    let places: Vec<&str> = warnings.iter().map(|(place, _)| &**place).collect();
    assert_eq!(
        places,
        [
            "spec.validations[1].expression",
            "spec.validations[1].messageExpression",
            "spec.validations[2].expression"
        ]
    );
    assert_eq!(
        warnings[0].1,
        format!(
            "{DEPLOYMENT}: ERROR: <input>:1:22: found no matching overload for '_>_' applied to \
             '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n"
        )
    );
    assert!(warnings[1].1.contains("'_+_' applied to '(string, int)'"));
    assert!(warnings[2].1.contains("undefined field 'other'"));
}

#[test]
fn each_kind_has_its_own_warning() {
    let kinds = [
        checked("Deployment", replicas(), None),
        checked("Other", json!({"replicas": {"type": "string"}}), None),
        checked("Third", json!({}), None),
    ];
    let spec = json!({"validations": [{"expression": "object.spec.replicas == 1"}]});
    let warnings = check(spec, &kinds);
    let text = &warnings[0].1;
    assert!(!text.contains(DEPLOYMENT), "{text}");
    assert!(text.starts_with("apps/v1, Kind=Other: ERROR"), "{text}");
    assert!(text.contains("^\n\napps/v1, Kind=Third: ERROR"), "{text}");
}

#[test]
fn variables_and_parameters_have_types() {
    let spec = |expression: &str| {
        json!({"paramKind": {"apiVersion": "apps/v1", "kind": "Limit"},
            "variables": [{"name": "n", "expression": "object.spec.replicas"},
                {"name": "broken", "expression": "object.spec.nothing"}],
            "validations": [{"expression": expression}]})
    };
    let limit = || Some(json!({"max": {"type": "integer"}}));
    for (expression, params, expect) in [
        ("variables.n > 1", limit(), ""),
        ("variables.n > 'x'", limit(), "'(int, string)'"),
        ("variables.broken > 'x'", limit(), ""),
        ("variables.n <= params.spec.max", limit(), ""),
        ("params.spec.max == 'x'", limit(), "'(int, string)'"),
        ("params.spec.min == 1", limit(), "undefined field 'min'"),
        ("params.spec.min == 1", None, ""),
        ("authorizer.path('/').check('get').allowed()", None, ""),
        ("request.nothing == ''", None, "undefined field 'nothing'"),
        ("object.metadata.name == 'x'", None, ""),
    ] {
        let kinds = [checked("Deployment", replicas(), params)];
        let warnings = check(spec(expression), &kinds);
        match warnings.first() {
            None => assert_eq!(expect, "", "{expression}"),
            Some((_, text)) => {
                assert!(
                    !expect.is_empty() && text.contains(expect),
                    "{expression}: {text}"
                );
            }
        }
    }
}

#[test]
fn warnings_of_a_policy_are_limited() {
    let kinds = [checked("Deployment", json!({}), None)];
    let expression = format!("object.x == '{}'", "y".repeat(10_000));
    let validations = vec![json!({"expression": expression}); 100];
    let warnings = check(json!({"validations": validations}), &kinds);
    let size: usize = warnings.iter().map(|(_, text)| text.len()).sum();
    assert!(size > 200_000 && size <= 256 * 1024, "{size}");
}

fn policy(generation: i64, observed: Option<i64>) -> ValidatingAdmissionPolicy {
    serde_json::from_value(
        json!({"metadata": {"name": "p", "uid": "u", "generation": generation},
        "status": {"observedGeneration": observed}}),
    )
    .unwrap()
}

#[test]
fn each_generation_is_checked_once() {
    assert!(needs_check(&policy(1, None)));
    assert!(needs_check(&policy(2, Some(1))));
    assert!(!needs_check(&policy(2, Some(2))));
}

#[test]
fn status_says_that_nothing_was_found() {
    let action = write_status(&policy(3, None), &[]);
    let status = &action.as_write().unwrap().body["status"];
    let expected = json!({"observedGeneration": 3, "typeChecking": {"expressionWarnings": []}});
    assert_eq!(*status, expected);
}
