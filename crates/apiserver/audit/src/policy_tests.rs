//! Cases of policies: the rules that match, and the violations.
#![allow(clippy::unwrap_used)]

use crate::level::{Level, Stage};
use crate::policy::Policy;
use apiserver_request::{Attributes, User};

fn parse(rules: &str) -> Result<Policy, String> {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    Policy::parse(format!("{head}{rules}").as_bytes()).map_err(|error| error.to_string())
}

/// Returns the attributes of `verb resource[/subresource] group namespace name` or of a path.
fn request(words: &str) -> Attributes {
    let user = User {
        name: "alice".into(),
        groups: vec!["people".into(), "system:authenticated".into()],
        ..User::default()
    };
    let words: Vec<&str> = words.split(' ').collect();
    if let [verb, path] = words[..] {
        return Attributes {
            user,
            verb: verb.into(),
            path: path.into(),
            ..Attributes::default()
        };
    }
    let [verb, resource, group, namespace, name] = words[..] else {
        return Attributes::default();
    };
    let dash = |word: &str| word.trim_matches('-').to_owned();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes {
        user,
        verb: verb.into(),
        group: dash(group),
        namespace: dash(namespace),
        resource: resource.into(),
        subresource: subresource.into(),
        name: dash(name),
        is_resource: true,
        ..Attributes::default()
    }
}

#[test]
fn first_rule_that_matches_decides() {
    let get = "get pods - d a";
    let cases = [
        ("{}", get, true),
        ("{users: [alice]}", get, true),
        ("{users: [bob]}", get, false),
        ("{userGroups: [others, people]}", get, true),
        ("{userGroups: [others]}", get, false),
        ("{verbs: [get, list]}", get, true),
        ("{verbs: [list]}", get, false),
        ("{namespaces: [d]}", get, true),
        ("{namespaces: ['']}", get, false),
        ("{namespaces: ['']}", "get nodes - - n", true),
        ("{namespaces: [d]}", "get /healthz", false),
        ("{resources: [{group: ''}]}", get, true),
        ("{resources: [{group: apps}]}", get, false),
        ("{resources: [{group: '*'}]}", get, true),
        ("{resources: [{resources: [pods]}]}", get, true),
        (
            "{resources: [{resources: [pods]}]}",
            "get pods/log - d a",
            false,
        ),
        (
            "{resources: [{resources: [pods/log]}]}",
            "get pods/log - d a",
            true,
        ),
        (
            "{resources: [{resources: ['pods/*']}]}",
            "get pods/log - d a",
            true,
        ),
        ("{resources: [{resources: ['pods/*']}]}", get, true),
        (
            "{resources: [{resources: ['*/log']}]}",
            "get pods/log - d a",
            true,
        ),
        ("{resources: [{resources: ['*/log']}]}", get, false),
        (
            "{resources: [{resources: ['*']}]}",
            "get pods/log - d a",
            true,
        ),
        (
            "{resources: [{resources: [pods], resourceNames: [a]}]}",
            get,
            true,
        ),
        (
            "{resources: [{resources: [pods], resourceNames: [b]}]}",
            get,
            false,
        ),
        ("{nonResourceURLs: [/healthz]}", "get /healthz", true),
        ("{nonResourceURLs: [/healthz]}", "get /healthz/etcd", false),
        (
            "{nonResourceURLs: ['/healthz*']}",
            "get /healthz/etcd",
            true,
        ),
        ("{nonResourceURLs: ['*']}", "get /healthz", true),
        ("{nonResourceURLs: ['*']}", get, false),
    ];
    for (rule, words, matches) in cases {
        let policy = format!("rules: [{{level: Metadata, {}]", rule.replacen('{', "", 1));
        let level = parse(&policy).unwrap().evaluate(&request(words)).level;
        let expect = if matches {
            Level::Metadata
        } else {
            Level::None
        };
        assert_eq!(level, expect, "{rule} {words}");
    }
    let both = "rules: [{level: None, verbs: [get]}, {level: Request}]";
    let policy = parse(both).unwrap();
    assert_eq!(policy.evaluate(&request(get)).level, Level::None);
    let list = policy.evaluate(&request("list pods - d -"));
    assert_eq!(list.level, Level::Request);
}

#[test]
fn rule_adds_stages_and_overrides_managed_fields() {
    let text = "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n- {level: Metadata, \
        verbs: [get], omitStages: [Panic], omitManagedFields: false}\n- {level: Metadata}";
    let policy = parse(text).unwrap();
    let own = policy.evaluate(&request("get /version"));
    assert_eq!(own.omit_stages, [Stage::RequestReceived, Stage::Panic]);
    assert!(!own.omit_managed_fields);
    let general = policy.evaluate(&request("post /version"));
    assert_eq!(general.omit_stages, [Stage::RequestReceived]);
    assert!(general.omit_managed_fields);
}

#[test]
fn violations_have_the_text_of_upstream() {
    let cases = [
        ("rules: []", "loaded illegal policy with 0 rules"),
        ("rules: [{}]", "rules[0].level: Required value"),
        (
            "rules: [{level: All}]",
            "rules[0].level: Unsupported value: \"All\": supported values",
        ),
        (
            "rules: [{level: None, nonResourceURLs: [a]}]",
            "must begin with a '/' character",
        ),
        (
            "rules: [{level: None, nonResourceURLs: ['/a*b']}]",
            "must be the final character",
        ),
        (
            "rules: [{level: None, nonResourceURLs: [/a], namespaces: [d]}]",
            "rules cannot apply to both regular resources and non-resource URLs",
        ),
        (
            "rules: [{level: None, resources: [{group: apps/v1}]}]",
            "rules[0].resources.group: Invalid value: \"apps/v1\": a lowercase RFC 1123",
        ),
        (
            "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
            "using resourceNames requires at least one resource",
        ),
        (
            "omitStages: [Late]\nrules: [{level: None}]",
            "omitStages[0]: Invalid value: \"Late\": allowed stages are RequestReceived,",
        ),
        (
            "rules: [{level: None, users: alice}]",
            "rules[0].users: the value must be a list of strings",
        ),
        (
            "rules: [{level: None, verbs: [1]}]",
            "rules[0].verbs: the value must be a list of strings",
        ),
    ];
    for (text, expect) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expect), "{text}: {error}");
    }
    let other = Policy::parse(b"apiVersion: audit.k8s.io/v1beta1\nkind: Policy\n").unwrap_err();
    assert!(
        other
            .to_string()
            .contains("not a Policy of audit.k8s.io/v1"),
        "{other}"
    );
}
