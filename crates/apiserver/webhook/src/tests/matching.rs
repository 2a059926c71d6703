use super::*;
use crate::labels::NamespaceLabels;
use crate::matching::{match_hook, match_rules, match_selectors};
use std::task::{Context, Poll, Waker};

fn rule(version: &str, resource: &str) -> Value {
    json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": [version], "resources": [resource]})
}

/// Returns resource version and kind version that a webhook receives.
fn target(policy: &str, rules: Value, path: &str) -> Option<(String, String)> {
    let user = User::default();
    let hook = compile(json!({"name": "h", "matchPolicy": policy, "rules": rules}));
    let attributes = attributes(&user, Operation::Create, path);
    let found = match_rules(&hook, &attributes, &Widgets).unwrap();
    found.map(|(resource, kind)| (resource.version, kind.api_version()))
}

#[test]
fn equivalent_version_is_matched_unless_the_policy_is_exact() {
    let some = |version: &str, kind: &str| Some((version.to_owned(), kind.to_owned()));
    for (policy, rules, expect) in [
        (
            "Equivalent",
            json!([rule("v1", "widgets")]),
            some("v1", "g/v1"),
        ),
        (
            "Equivalent",
            json!([rule("v2", "widgets")]),
            some("v2", "g/v2"),
        ),
        ("Exact", json!([rule("v2", "widgets")]), None),
        ("Equivalent", json!([rule("v3", "widgets")]), None),
        (
            "Equivalent",
            json!([rule("v2", "widgets"), rule("v1", "widgets")]),
            some("v1", "g/v1"),
        ),
    ] {
        assert_eq!(
            target(policy, rules.clone(), "widgets"),
            expect,
            "{policy} {rules}"
        );
    }
}

#[test]
fn equivalent_subresource_keeps_its_kind() {
    let found = target(
        "Equivalent",
        json!([rule("v2", "widgets/size")]),
        "widgets/size",
    );
    assert_eq!(found, Some(("v2".to_owned(), "sizes/v1".to_owned())));
}

fn select(
    hook: Value,
    operation: Operation,
    path: &str,
    objects: (&Value, Option<&Value>),
    namespaces: &Namespaces,
) -> Result<bool, ApiError> {
    let user = User::default();
    let hook = compile(hook);
    let attributes = attributes(&user, operation, path);
    let mut labels = NamespaceLabels::default();
    let future = match_selectors(&hook, &attributes, objects, &mut labels, namespaces);
    let mut future = std::pin::pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the fakes must not wait"),
    }
}

fn labelled(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}})
}

#[test]
fn namespace_is_looked_up_in_the_cache_and_then_in_the_store() {
    let hook = json!({"name": "h", "namespaceSelector": {"matchLabels": {"a": "b"}}});
    let object = labelled("x", json!({}));
    for (cached, stored, expect) in [
        (vec![labelled("n", json!({"a": "b"}))], vec![], Some(true)),
        (
            vec![labelled("n", json!({}))],
            vec![labelled("n", json!({"a": "b"}))],
            Some(false),
        ),
        (vec![], vec![labelled("n", json!({"a": "b"}))], Some(true)),
        (vec![], vec![], None),
    ] {
        let namespaces = Namespaces { cached, stored };
        let found = select(
            hook.clone(),
            Operation::Create,
            "widgets",
            (&object, None),
            &namespaces,
        );
        assert_eq!(found.clone().ok(), expect);
        if let Err(error) = found {
            assert_eq!(error.code(), 404);
        }
    }
}

#[test]
fn namespace_object_is_matched_by_its_own_labels() {
    let hook = json!({"name": "h", "namespaceSelector": {"matchLabels": {"a": "b"}}});
    let new = labelled("x", json!({"a": "b"}));
    let namespaces = Namespaces {
        cached: vec![labelled("x", json!({}))],
        ..Namespaces::default()
    };
    let find = |operation: Operation, object: &Value| {
        select(
            hook.clone(),
            operation,
            "namespaces",
            (object, None),
            &namespaces,
        )
        .unwrap()
    };
    assert!(find(Operation::Create, &new));
    assert!(find(Operation::Update, &new));
    assert!(!find(Operation::Delete, &Value::Null), "the stored labels");
}

#[test]
fn object_selector_matches_either_object() {
    let hook = json!({"name": "h", "objectSelector": {"matchLabels": {"a": "b"}}});
    let with = labelled("x", json!({"a": "b"}));
    let without = labelled("x", json!({}));
    let namespaces = Namespaces::default();
    let find = |object: &Value, old: Option<&Value>| {
        select(
            hook.clone(),
            Operation::Update,
            "widgets",
            (object, old),
            &namespaces,
        )
        .unwrap()
    };
    assert!(find(&with, Some(&without)));
    assert!(find(&without, Some(&with)));
    assert!(find(&Value::Null, Some(&with)));
    assert!(!find(&without, Some(&without)));
    assert!(!find(&without, None));
}

#[test]
fn negative_selector_does_not_match_an_absent_object() {
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]});
    let hook = json!({"name": "h", "objectSelector": selector});
    let with = labelled("x", json!({"a": "b"}));
    let namespaces = Namespaces::default();
    let found = select(
        hook,
        Operation::Delete,
        "widgets",
        (&Value::Null, Some(&with)),
        &namespaces,
    );
    assert!(!found.unwrap());
}

#[test]
fn invalid_selector_is_an_error() {
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    let hook = json!({"name": "h", "objectSelector": selector});
    let object = labelled("x", json!({}));
    let namespaces = Namespaces::default();
    let found = select(
        hook,
        Operation::Create,
        "widgets",
        (&object, None),
        &namespaces,
    );
    assert_eq!(found.unwrap_err().code(), 500);
}

/// Returns whether a webhook with these selectors is called; the code of the error otherwise.
fn call(
    (namespaces, objects): (Value, Value),
    path: &str,
    is_clustered: bool,
) -> Result<bool, u16> {
    let user = User::default();
    let hook = compile(json!({"name": "h", "rules": [rule("v2", path)],
        "namespaceSelector": namespaces, "objectSelector": objects}));
    let mut attributes = attributes(&user, Operation::Create, path);
    if is_clustered {
        attributes.namespace = "";
    }
    let stored = Namespaces::default();
    let object = labelled("x", json!({"a": "b"}));
    let mut labels = NamespaceLabels::default();
    let subject = (&object, None);
    let future = match_hook(
        &hook,
        &attributes,
        subject,
        &mut labels,
        (&Widgets, &stored),
    );
    let mut future = std::pin::pin!(future);
    let polled = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(result) => result.map(|found| found.is_some()).map_err(|e| e.code()),
        Poll::Pending => panic!("the fakes must not wait"),
    }
}

#[test]
fn error_of_a_selector_counts_only_if_the_other_one_matches() {
    let invalid = || json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]});
    let with = |value: &str| json!({"matchLabels": {"a": value}});
    let all = || json!({});
    for (namespaces, objects, path, is_clustered, expect) in [
        (all(), all(), "widgets", false, Ok(true)),
        (all(), invalid(), "widgets", false, Err(500)),
        (invalid(), all(), "widgets", false, Err(500)),
        (invalid(), with("c"), "widgets", false, Ok(false)),
        // There is no namespace `n`.
        (with("b"), all(), "widgets", false, Err(404)),
        (with("b"), with("c"), "widgets", false, Ok(false)),
        (with("b"), invalid(), "widgets", false, Err(404)),
        // A selector of namespaces is not read for objects outside of namespaces.
        (invalid(), all(), "widgets", true, Ok(true)),
        (invalid(), with("c"), "widgets", true, Ok(false)),
        // The kind of this subresource is unknown.
        (all(), all(), "widgets/hidden", false, Err(500)),
        (all(), with("c"), "widgets/hidden", false, Ok(false)),
        (with("b"), all(), "widgets/hidden", false, Err(500)),
    ] {
        let case = format!("{namespaces} {objects} {path} {is_clustered}");
        assert_eq!(
            call((namespaces, objects), path, is_clustered),
            expect,
            "{case}"
        );
    }
}

#[test]
fn invalid_object_selector_is_no_error_in_other_namespaces() {
    let hook = json!({"name": "h", "namespaceSelector": {"matchLabels": {"a": "b"}},
        "objectSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}});
    let object = labelled("x", json!({}));
    for (label, expect) in [("b", None), ("c", Some(false))] {
        let namespaces = Namespaces {
            cached: vec![labelled("n", json!({"a": label}))],
            ..Namespaces::default()
        };
        let subject = (&object, None);
        let found = select(
            hook.clone(),
            Operation::Create,
            "widgets",
            subject,
            &namespaces,
        );
        assert_eq!(found.ok(), expect, "{label}");
    }
}
