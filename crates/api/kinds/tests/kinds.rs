//! Rows of the table and the conversions and field values beside it.
#![allow(clippy::unwrap_used, missing_docs)]

use api_kinds::{convert, find, find_kind, groups, resources, selectable_value, served};
use serde_json::json;
use std::collections::HashSet;

#[test]
fn plural_and_kind_find_the_same_row() {
    for resource in resources() {
        let found = find(&resource.group, &resource.version, &resource.plural).unwrap();
        assert_eq!(found.kind, resource.kind);
        let by_kind = find_kind(&resource.group, &resource.version, &resource.kind).unwrap();
        assert_eq!(by_kind.version, resource.version, "{}", resource.kind);
    }
}

#[test]
fn short_names_of_served_resources_are_unique_within_a_group() {
    let mut seen = HashSet::new();
    let latest = served().filter(|r| {
        groups()
            .iter()
            .any(|g| g.name == r.group && g.versions[0] == r.version)
    });
    for resource in latest {
        for short in &resource.short_names {
            assert!(seen.insert((&resource.group, short)), "{short}");
        }
    }
}

#[test]
fn stored_resources_have_a_prefix_of_their_own() {
    let mut seen = HashSet::new();
    for resource in served().filter(|r| r.storage.is_some()) {
        let storage = resource.storage.as_ref().unwrap();
        assert!(storage.prefix.starts_with('/'), "{}", resource.kind);
        seen.insert((&*storage.prefix, &*resource.plural));
    }
    // Events are served by two groups and stored once.
    let prefixes: HashSet<&str> = seen.iter().map(|(prefix, _)| *prefix).collect();
    assert_eq!(prefixes.len(), seen.len());
}

#[test]
fn beta_versions_are_known_and_not_served() {
    assert!(resources().iter().any(|r| r.version == "v1beta1"));
    assert!(served().all(|r| !r.version.contains("beta") && !r.version.contains("alpha")));
}

#[test]
fn scope_of_the_kinds_follows_upstream() {
    for (group, plural, namespaced) in [
        ("", "nodes", false),
        ("", "namespaces", false),
        ("", "persistentvolumes", false),
        ("", "secrets", true),
        ("rbac.authorization.k8s.io", "clusterroles", false),
        ("rbac.authorization.k8s.io", "roles", true),
        ("storage.k8s.io", "csistoragecapacities", true),
        ("networking.k8s.io", "ingressclasses", false),
    ] {
        assert_eq!(
            find(group, "v1", plural).unwrap().namespaced,
            namespaced,
            "{plural}"
        );
    }
}

#[test]
fn scale_is_a_subresource_of_what_can_be_scaled() {
    for plural in ["deployments", "replicasets", "statefulsets"] {
        let scale = find("apps", "v1", plural)
            .unwrap()
            .subresource("scale")
            .unwrap();
        assert_eq!(
            (&*scale.group, &*scale.kind),
            ("autoscaling", "Scale"),
            "{plural}"
        );
    }
    assert!(
        find("apps", "v1", "daemonsets")
            .unwrap()
            .subresource("scale")
            .is_none()
    );
}

#[test]
fn conversion_between_versions_of_one_form_changes_the_version_only() {
    let resource = find("apps", "v1", "deployments").unwrap();
    let mut object = json!({"apiVersion": "apps/v1beta1", "spec": {"replicas": 1}});
    convert(resource, &mut object, "apps/v1");
    assert_eq!(
        object,
        json!({"apiVersion": "apps/v1", "spec": {"replicas": 1}})
    );
}

#[test]
fn unset_fields_are_selected_by_their_zero_value() {
    for (plural, field, expected) in [
        ("nodes", "spec.unschedulable", "false"),
        ("pods", "spec.nodeName", ""),
        ("pods", "spec.hostNetwork", "false"),
        ("replicationcontrollers", "status.replicas", "0"),
    ] {
        let resource = find("", "v1", plural).unwrap();
        assert_eq!(
            selectable_value(resource, &json!({}), field),
            expected,
            "{field}"
        );
    }
}

#[test]
fn addresses_of_a_pod_are_selected_as_a_list() {
    let pod = json!({"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}});
    let resource = find("", "v1", "pods").unwrap();
    assert_eq!(
        selectable_value(resource, &pod, "status.podIPs"),
        "10.0.0.1,fd00::1"
    );
}
