//! The kinds against which the expressions of a policy are checked.

use std::collections::BTreeSet;
use std::fmt;

use client::ApiResource;
use k8s_openapi::api::admissionregistration::v1::{
    NamedRuleWithOperations, ParamKind, ValidatingAdmissionPolicySpec,
};

/// At most this many kinds are checked.
pub const MAX_KINDS: usize = 10;

/// A kind in one version, ordered as warnings list it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServedKind {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl fmt::Display for ServedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl ServedKind {
    /// Returns the path of the OpenAPI document that describes the kind.
    pub fn document_path(&self) -> String {
        match &*self.group {
            "" => format!("/openapi/v3/api/{}", self.version),
            group => format!("/openapi/v3/apis/{group}/{}", self.version),
        }
    }
}

/// Returns the kinds that the rules of a policy name. A rule with a wildcard for groups or versions
/// names none; subresources and wildcards among resources are left out.
pub fn select_kinds(
    spec: &ValidatingAdmissionPolicySpec,
    served: &[ApiResource],
) -> Vec<ServedKind> {
    let constraints = spec.match_constraints.as_ref();
    let rules = constraints.and_then(|constraints| constraints.resource_rules.as_ref());
    let mut kinds = BTreeSet::new();
    for rule in rules.into_iter().flatten() {
        let mut named: Vec<&ApiResource> = served
            .iter()
            .filter(|resource| is_named(rule, resource))
            .collect();
        named.sort_by_key(|one| (&one.group, &one.version, &one.plural));
        for resource in named {
            kinds.insert(ServedKind {
                group: resource.group.clone(),
                version: resource.version.clone(),
                kind: resource.kind.clone(),
            });
            if kinds.len() == MAX_KINDS {
                return kinds.into_iter().collect();
            }
        }
    }
    kinds.into_iter().collect()
}

fn is_named(rule: &NamedRuleWithOperations, resource: &ApiResource) -> bool {
    let has = |list: &Option<Vec<String>>, word: &String| {
        list.as_ref().is_some_and(|list| {
            list.contains(word) && !list.iter().any(|entry| entry.contains('*'))
        })
    };
    let resources = rule.resources.as_ref();
    has(&rule.api_groups, &resource.group)
        && has(&rule.api_versions, &resource.version)
        && resources.is_some_and(|all| all.contains(&resource.plural))
}

/// Returns the kind of a policy's parameters.
pub fn parameter_kind(parameters: &ParamKind) -> ServedKind {
    let api_version = parameters.api_version.as_deref().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ServedKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: parameters.kind.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn served(group: &str, version: &str, kind: &str) -> ApiResource {
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
            namespaced: true,
        }
    }

    fn select(rule: Value, served: &[ApiResource]) -> Vec<String> {
        let spec = json!({"matchConstraints": {"resourceRules": [rule]}});
        let kinds = select_kinds(&serde_json::from_value(spec).unwrap(), served);
        kinds.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_rules_without_wildcards_name_kinds() {
        let all = [
            served("apps", "v1", "Deployment"),
            served("apps", "v1", "StatefulSet"),
            served("", "v1", "Pod"),
        ];
        let rule = |groups: &[&str], versions: &[&str], resources: &[&str]| {
            json!({"apiGroups": groups, "apiVersions": versions, "resources": resources,
                "operations": ["*"]})
        };
        let deployment = "apps/v1, Kind=Deployment";
        for (rule, expect) in [
            (rule(&["apps"], &["v1"], &["deployments"]), vec![deployment]),
            (
                rule(&["apps", ""], &["v1"], &["pods", "deployments"]),
                vec!["/v1, Kind=Pod", deployment],
            ),
            (
                rule(
                    &["apps"],
                    &["v1"],
                    &["*", "deployments/status", "deployments"],
                ),
                vec![deployment],
            ),
            (rule(&["*", "apps"], &["v1"], &["deployments"]), vec![]),
            (rule(&["apps"], &["*"], &["deployments"]), vec![]),
            (rule(&["apps"], &["v2"], &["deployments"]), vec![]),
        ] {
            assert_eq!(select(rule.clone(), &all), expect, "{rule}");
        }
    }

    #[test]
    fn at_most_ten_kinds_are_checked() {
        let all: Vec<_> = (0..12)
            .map(|n| served("g", "v1", &format!("K{n:02}")))
            .collect();
        let plurals: Vec<&String> = all.iter().map(|one| &one.plural).collect();
        let rule = json!({"apiGroups": ["g"], "apiVersions": ["v1"], "resources": plurals,
            "operations": ["*"]});
        assert_eq!(select(rule, &all).len(), 10);
    }

    #[test]
    fn parameters_of_the_core_group_have_no_group() {
        let kind = |api_version: &str| {
            let kind = json!({"apiVersion": api_version, "kind": "K"});
            parameter_kind(&serde_json::from_value(kind).unwrap())
        };
        assert_eq!(kind("v1").document_path(), "/openapi/v3/api/v1");
        assert_eq!(kind("a.io/v2").document_path(), "/openapi/v3/apis/a.io/v2");
    }
}
