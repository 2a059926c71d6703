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
