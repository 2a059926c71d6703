use super::*;

fn rule(value: Value) -> Rule {
    Rule::from_value(&value)
}

fn resource(verb: &str, group: &str, resource: &str, subresource: &str) -> Attributes {
    Attributes {
        verb: verb.into(),
        group: group.into(),
        resource: resource.into(),
        subresource: subresource.into(),
        is_resource: true,
        ..Attributes::default()
    }
}

#[test]
fn resource_of_a_rule_does_not_include_its_subresources() {
    for (resources, subresource, expect) in [
        (json!(["pods"]), "", true),
        (json!(["pods"]), "log", false),
        (json!(["pods/log"]), "log", true),
        (json!(["pods/log"]), "", false),
        (json!(["*/log"]), "log", true),
        (json!(["*/log"]), "status", false),
        (json!(["*"]), "", true),
        (json!(["*"]), "log", true),
        (json!(["services"]), "", false),
    ] {
        let rule = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": resources}));
        let allowed = rule.allows_request(&resource("get", "", "pods", subresource), "");
        assert_eq!(allowed, expect, "{resources} {subresource}");
    }
}

#[test]
fn wildcard_of_verbs_and_groups_matches_all() {
    let any = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["pods"]}));
    assert!(any.allows_request(&resource("deletecollection", "x.example", "pods", ""), ""));
    let core = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
    assert!(!core.allows_request(&resource("get", "x.example", "pods", ""), ""));
    assert!(!core.allows_request(&resource("list", "", "pods", ""), ""));
}

#[test]
fn resource_names_restrict_a_rule_and_never_match_a_request_without_a_name() {
    let named = rule(
        json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "b"]}),
    );
    for (name, expect) in [("a", true), ("b", true), ("c", false), ("", false)] {
        assert_eq!(
            named.allows_request(&resource("get", "", "pods", ""), name),
            expect,
            "{name}"
        );
    }
}

#[test]
fn non_resource_path_matches_exactly_or_by_trailing_wildcard() {
    let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]}));
    for (path, expect) in [
        ("/healthz", true),
        ("/healthz/", false),
        ("/healthz/etcd", false),
        ("/apis/", true),
        ("/apis/apps/v1", true),
        ("/apis", false),
    ] {
        let request = Attributes {
            verb: "get".into(),
            path: path.into(),
            ..Attributes::default()
        };
        assert_eq!(paths.allows_request(&request, ""), expect, "{path}");
    }
}

#[test]
fn rule_for_resources_does_not_allow_paths() {
    let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
    let request = Attributes {
        verb: "get".into(),
        path: "/metrics".into(),
        ..Attributes::default()
    };
    assert!(!all.allows_request(&request, ""));
}

#[test]
fn split_rule_names_each_combination_once() {
    let split = rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "secrets"], "resourceNames": ["a"]})).split_singles();
    assert_eq!(split.len(), 4);
    assert!(split.iter().all(|single| single.names == ["a"]
        && single.verbs.len() == 1
        && single.resources.len() == 1));
}

#[test]
fn coverage_of_names_and_subresources_is_exact() {
    let covers = |own: Value, single: Value| rule(own).covers_single(&rule(single));
    let get = |resources: Value, names: Value| json!({"verbs": ["get"], "apiGroups": [""], "resources": resources, "resourceNames": names});
    for (own, single, expect) in [
        (
            get(json!(["pods"]), json!([])),
            get(json!(["pods"]), json!(["a"])),
            true,
        ),
        (
            get(json!(["pods"]), json!(["a"])),
            get(json!(["pods"]), json!([])),
            false,
        ),
        (
            get(json!(["pods"]), json!(["a"])),
            get(json!(["pods"]), json!(["b"])),
            false,
        ),
        (
            get(json!(["*/log"]), json!([])),
            get(json!(["pods/log"]), json!([])),
            true,
        ),
        (
            get(json!(["pods/log"]), json!([])),
            get(json!(["*/log"]), json!([])),
            false,
        ),
        (
            get(json!(["pods"]), json!([])),
            get(json!(["pods/log"]), json!([])),
            false,
        ),
        (
            get(json!(["*"]), json!([])),
            get(json!(["*/log"]), json!([])),
            true,
        ),
    ] {
        assert_eq!(
            covers(own.clone(), single.clone()),
            expect,
            "{own} {single}"
        );
    }
}

#[test]
fn text_of_a_rule_lists_the_fields_in_upstreams_order() {
    let named = rule(
        json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["d"]}),
    );
    assert_eq!(
        named.to_compact_text(),
        r#"{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["d"], Verbs:["get"]}"#
    );
}
