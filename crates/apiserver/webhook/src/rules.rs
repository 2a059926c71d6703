//! Rules of webhooks: operations, groups, versions, resources, scope.

use crate::kinds::GroupVersionResource;
use api_meta::tree::{text, texts};
use serde_json::Value;

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    All,
    Namespaced,
    Cluster,
    Unknown,
}

/// The facts that a rule is matched with.
#[derive(Clone, Copy, Debug)]
pub struct RuleTarget<'a> {
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'a str,
    /// The resource.
    pub resource: &'a GroupVersionResource,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty for cluster scope; a namespace's own name for the namespace itself.
    pub namespace: &'a str,
}

impl Rule {
    /// Reads a rule.
    pub fn parse(rule: &Value) -> Self {
        let list = |field: &str| texts(rule, field).into_iter().map(str::to_owned).collect();
        Rule {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            scope: match text(rule, "scope") {
                // An absent scope is defaulted to "*".
                "" | "*" => Scope::All,
                "Namespaced" => Scope::Namespaced,
                "Cluster" => Scope::Cluster,
                _ => Scope::Unknown,
            },
        }
    }

    /// Returns whether the rule covers a request.
    pub fn matches(&self, target: &RuleTarget<'_>) -> bool {
        self.matches_scope(target)
            && contains(&self.operations, target.operation)
            && contains(&self.groups, &target.resource.group)
            && contains(&self.versions, &target.resource.version)
            && self
                .resources
                .iter()
                .any(|pattern| matches_resource(pattern, target))
    }

    fn matches_scope(&self, target: &RuleTarget<'_>) -> bool {
        let resource = target.resource;
        // The path of a namespace names itself as its namespace, but it is cluster-scoped.
        let is_namespace = resource.group.is_empty()
            && resource.version == "v1"
            && resource.resource == "namespaces";
        let namespaced = !is_namespace && !target.namespace.is_empty();
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => namespaced,
            Scope::Cluster => !namespaced,
            // As upstream, a scope of a newer API matches nothing.
            Scope::Unknown => false,
        }
    }
}

fn contains(list: &[String], item: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == item)
}

/// `pods` is the object alone, `pods/*` it and all its subresources, `*/scale` one of all.
fn matches_resource(pattern: &str, target: &RuleTarget<'_>) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == target.resource.resource)
        && (subresource == "*" || subresource == target.subresource)
}

/// Returns whether webhooks are not called for a kind: a broken one could otherwise keep its own
/// configuration from being repaired.
pub fn is_exempt(kind: &str, group: &str) -> bool {
    group == "admissionregistration.k8s.io"
        && matches!(
            kind,
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(rule: &Value, operation: &str, path: &str, namespace: &str) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        let resource = GroupVersionResource::new(parts[0], parts[1], parts[2]);
        Rule::parse(rule).matches(&RuleTarget {
            operation,
            resource: &resource,
            subresource: parts.get(3).copied().unwrap_or_default(),
            namespace,
        })
    }

    fn rule(operations: &[&str], group: &str, version: &str, resources: &[&str]) -> Value {
        json!({"operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": resources})
    }

    #[test]
    fn resource_patterns_follow_the_documentation() {
        for (pattern, path, expect) in [
            ("pods", "/v1/pods", true),
            ("pods", "/v1/pods/log", false),
            ("pods", "/v1/services", false),
            ("pods/log", "/v1/pods/log", true),
            ("pods/log", "/v1/pods", false),
            ("pods/*", "/v1/pods", true),
            ("pods/*", "/v1/pods/exec", true),
            ("pods/*", "/v1/nodes/proxy", false),
            ("*", "/v1/pods", true),
            ("*", "/v1/pods/status", false),
            ("*/scale", "apps/v1/deployments/scale", true),
            ("*/scale", "apps/v1/deployments", false),
            ("*/*", "apps/v1/deployments", true),
            ("*/*", "apps/v1/deployments/status", true),
        ] {
            let rule = rule(&["*"], "*", "*", &[pattern]);
            assert_eq!(
                check(&rule, "CREATE", path, "n"),
                expect,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn operation_group_and_version_are_exact_or_wildcards() {
        for (operations, group, version, expect) in [
            (vec!["CREATE"], "apps", "v1", true),
            (vec!["UPDATE", "CREATE"], "apps", "v1", true),
            (vec!["UPDATE"], "apps", "v1", false),
            (vec!["*"], "*", "*", true),
            (vec!["CREATE"], "", "v1", false),
            (vec!["CREATE"], "apps", "v1beta1", false),
            (vec![], "apps", "v1", false),
        ] {
            let rule = rule(&operations, group, version, &["deployments"]);
            let path = "apps/v1/deployments";
            assert_eq!(check(&rule, "CREATE", path, "n"), expect, "{rule}");
        }
    }

    #[test]
    fn namespace_is_cluster_scoped() {
        for (scope, path, namespace, expect) in [
            (json!("*"), "/v1/pods", "n", true),
            (json!(null), "/v1/nodes", "", true),
            (json!("Namespaced"), "/v1/pods", "n", true),
            (json!("Namespaced"), "/v1/nodes", "", false),
            (json!("Namespaced"), "/v1/namespaces", "n", false),
            (json!("Cluster"), "/v1/namespaces", "n", true),
            (json!("Cluster"), "/v1/nodes", "", true),
            (json!("Cluster"), "/v1/pods", "n", false),
            (json!("Galaxy"), "/v1/pods", "n", false),
        ] {
            let mut rule = rule(&["*"], "*", "*", &["*"]);
            rule["scope"] = scope;
            assert_eq!(
                check(&rule, "CREATE", path, namespace),
                expect,
                "{rule} {path}"
            );
        }
    }

    #[test]
    fn configurations_of_webhooks_and_policies_are_exempt() {
        let group = "admissionregistration.k8s.io";
        assert!(is_exempt("MutatingWebhookConfiguration", group));
        assert!(is_exempt("ValidatingAdmissionPolicyBinding", group));
        assert!(!is_exempt("MutatingWebhookConfiguration", "example.com"));
        assert!(!is_exempt(
            "CustomResourceDefinition",
            "apiextensions.k8s.io"
        ));
    }
}
