use super::*;

#[test]
fn anonymous_user_is_unauthenticated() {
    let user = User::anonymous();
    assert_eq!(user.name, "system:anonymous");
    assert!(user.in_group("system:unauthenticated"));
    assert!(!user.in_group("system:authenticated") && !user.in_group(User::MASTERS));
}

#[test]
fn group_membership_is_exact() {
    let user = User {
        groups: vec!["system:nodes".into()],
        ..User::default()
    };
    for (group, expect) in [
        ("system:nodes", true),
        ("system:node", false),
        ("system:nodes:x", false),
        ("", false),
    ] {
        assert_eq!(user.in_group(group), expect, "{group:?}");
    }
}

#[test]
fn same_plural_of_two_groups_is_two_resources() {
    assert_ne!(
        GroupResource::new("", "events"),
        GroupResource::new("events.k8s.io", "events")
    );
    assert_eq!(
        GroupResource::new("", "events"),
        GroupResource::new("", "events")
    );
}

#[test]
fn rejection_of_credentials_is_printed_as_its_reason() {
    assert_eq!(
        AuthnError("invalid bearer token".into()).to_string(),
        "invalid bearer token"
    );
}

#[test]
fn repeated_warning_is_sent_once() {
    let warnings = Warnings::default();
    warnings.push("a".into());
    warnings.extend(["b".to_owned(), "a".to_owned()]);
    assert_eq!(warnings.into_iter().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn second_pass_begins_once_and_only_on_request() {
    let mut passes = Reinvocation::default();
    assert!(!passes.begin_second_pass(), "nothing was changed");
    passes.request();
    assert!(passes.begin_second_pass());
    assert!(passes.is_second_pass());
    passes.request();
    assert!(!passes.begin_second_pass(), "a third pass");
}

#[test]
fn webhook_is_due_if_the_object_changed_after_its_call() {
    let mut calls = Invocations::default();
    calls.record_invoked("first");
    calls.require_reinvocation();
    calls.record_invoked("second");
    assert!(calls.is_due("first"));
    assert!(!calls.is_due("second"), "called after the last change");
    calls.record_output(&serde_json::json!({"a": 1}));
    assert!(!calls.is_changed_since(&serde_json::json!({"a": 1})));
    assert!(calls.is_changed_since(&serde_json::json!({"a": 2})));
}
