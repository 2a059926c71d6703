//! The APIServices of the group versions that this server has.

use crate::priority::{CUSTOM_GROUP, CUSTOM_VERSION, OWN_GROUP, find_priorities};
use api_meta::tree::{flag, get, list, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Label of APIServices that the server keeps.
pub const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Value of the label for built-in group versions: created at start, then left to the operator.
pub const ON_START: &str = "onstart";
/// Value of the label for custom resources: kept as long as their definition.
pub const ALWAYS: &str = "true";

fn local_service(group: &str, version: &str, label: &str, priorities: (i64, i64)) -> Value {
    let (minimum, priority) = priorities;
    let mut spec =
        json!({"version": version, "groupPriorityMinimum": minimum, "versionPriority": priority});
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}"), "labels": {MANAGED: label}}, "spec": spec})
}

/// The served versions of a custom resource definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedVersions {
    group: Box<str>,
    versions: Box<[Box<str>]>,
}

impl ServedVersions {
    /// Reads a definition.
    pub fn parse(definition: &Value) -> Self {
        let spec = get(definition, "spec");
        // As upstream, a version that is not served has no APIService.
        let versions = list(spec, "versions").iter().filter(|v| flag(v, "served"));
        Self {
            group: text(spec, "group").into(),
            versions: versions.map(|v| text(v, "name").into()).collect(),
        }
    }
}

/// Returns the APIServices that this server keeps, by name: those of the built-in group versions,
/// and those that custom resource definitions serve.
pub fn desired_services<'a>(
    built_in: impl Iterator<Item = (&'a str, &'a str)>,
    definitions: impl Iterator<Item = &'a ServedVersions>,
) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for ServedVersions { group, versions } in definitions {
        // A definition must not take the place of a built-in group.
        if group.is_empty() || **group == *OWN_GROUP {
            continue;
        }
        for name in versions {
            let service = local_service(group, name, ALWAYS, (CUSTOM_GROUP, CUSTOM_VERSION));
            all.insert(format!("{name}.{group}"), service);
        }
    }
    // After the definitions: one that names a built-in group version must not replace its
    // APIService.
    for (group, version) in built_in {
        if let Some(priorities) = find_priorities(group, version) {
            let service = local_service(group, version, ON_START, priorities);
            all.insert(format!("{version}.{group}"), service);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn core_group_has_an_api_service_without_group() {
        let all = desired_services(
            [("", "v1"), ("apps", "v1"), (OWN_GROUP, "v1")].into_iter(),
            std::iter::empty(),
        );
        let names: Vec<&String> = all.keys().collect();
        assert_eq!(names, ["v1.", "v1.apps"]);
        let core = all.get("v1.").unwrap();
        assert!(core["spec"].get("group").is_none());
        assert_eq!(core["metadata"]["labels"][MANAGED], "onstart");
    }

    #[test]
    fn served_versions_of_definitions_have_api_services() {
        let definition = json!({"spec": {"group": "example.com", "versions": [
            {"name": "v1", "served": true}, {"name": "v1beta1", "served": false}]}});
        let served = ServedVersions::parse(&definition);
        let all = desired_services(std::iter::empty(), [&served].into_iter());
        let service = all.get("v1.example.com").unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(service["metadata"]["labels"][MANAGED], "true");
        assert_eq!(service["spec"]["groupPriorityMinimum"], 1000);
        assert_eq!(service["spec"]["versionPriority"], 100);
    }

    #[test]
    fn definition_does_not_replace_a_built_in_group_version() {
        let definition =
            json!({"spec": {"group": "apps", "versions": [{"name": "v1", "served": true}]}});
        let served = ServedVersions::parse(&definition);
        let all = desired_services([("apps", "v1")].into_iter(), [&served].into_iter());
        assert_eq!(
            all.get("v1.apps").unwrap()["metadata"]["labels"][MANAGED],
            "onstart"
        );
    }
}
