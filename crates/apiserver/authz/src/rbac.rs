//! RBAC over indexes: bindings by subject, roles by name, maintained by an observer of the four
//! RBAC caches.
//!
//! Invariant: a decision reads only the bindings of the user and its groups, never all bindings.
//! Rules are evaluated as stored; a controller fills aggregated roles.

mod index;
mod rule;

pub use rule::{Rule, quote_list};

use apiserver_request::{
    Attributes, Authorizer, Decision, GroupResource, ObjectEvent, Objects, Observer, User,
};
use index::{Grant, Index};
use parking_lot::RwLock;
use serde_json::Value;
use std::sync::Arc;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Authorizes by roles and bindings.
#[derive(Default)]
pub struct Rbac {
    index: RwLock<Index>,
}

/// The result of visiting a user's grants.
struct RuleMatch {
    rules: Vec<(Arc<[Rule]>, Grant)>,
    missing: Vec<String>,
}

impl Rbac {
    /// Creates an authorizer that follows the caches.
    pub fn observing(objects: &dyn Objects) -> Arc<Rbac> {
        let rbac = Arc::new(Rbac::default());
        for resource in [
            "clusterroles",
            "roles",
            "clusterrolebindings",
            "rolebindings",
        ] {
            objects.observe(&GroupResource::new(GROUP, resource), rbac.clone());
        }
        rbac
    }

    /// Returns all rules that `user` holds in `namespace` (empty: cluster-wide), and the missing
    /// roles that bindings name.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let found = self.find(user, namespace);
        (
            found
                .rules
                .iter()
                .flat_map(|(rules, _)| rules.iter().cloned())
                .collect(),
            found.missing,
        )
    }

    /// Returns the rules of a role; `None` if it does not exist.
    pub fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        self.index
            .read()
            .role(kind, namespace, name)
            .map(|rules| rules.to_vec())
    }

    fn find(&self, user: &User, namespace: &str) -> RuleMatch {
        let index = self.index.read();
        let mut found = RuleMatch {
            rules: Vec::new(),
            missing: Vec::new(),
        };
        index.visit(user, namespace, |grant| {
            match index.role(&grant.role_kind, &grant.namespace, &grant.role) {
                Some(rules) => found.rules.push((rules.clone(), grant.clone())),
                None => found.missing.push(grant.missing_role()),
            }
            true
        });
        found
    }

    fn decide(&self, attributes: &Attributes) -> Decision {
        let index = self.index.read();
        let name = effective_name(attributes);
        let mut allowed = None;
        let mut missing = Vec::new();
        index.visit(&attributes.user, &attributes.namespace, |grant| {
            let Some(rules) = index.role(&grant.role_kind, &grant.namespace, &grant.role) else {
                missing.push(grant.missing_role());
                return true;
            };
            if rules.iter().any(|rule| rule.allows(attributes, name)) {
                allowed = Some(grant.describe());
            }
            allowed.is_none()
        });
        match (allowed, missing.as_slice()) {
            (Some(grant), _) => Decision::Allow(format!("RBAC: allowed by {grant}")),
            (None, []) => Decision::NoOpinion(String::new()),
            (None, [one]) => Decision::NoOpinion(format!("RBAC: {one}")),
            (None, many) => Decision::NoOpinion(format!("RBAC: [{}]", many.join(", "))),
        }
    }
}

/// Returns the object's name. A list or watch restricted to one name by field selector counts as
/// naming it.
pub fn effective_name(attributes: &Attributes) -> &str {
    if !attributes.name.is_empty()
        || !matches!(
            attributes.verb.as_str(),
            "list" | "watch" | "deletecollection"
        )
    {
        return &attributes.name;
    }
    let selector = attributes.field_selector.as_str();
    let terms = selector
        .split(',')
        .filter_map(|t| t.trim().strip_prefix("metadata.name="));
    terms
        .map(|t| t.trim_start_matches('='))
        .find(|t| !t.is_empty())
        .unwrap_or_default()
}

impl Observer for Rbac {
    fn object_changed(&self, resource: &GroupResource, event: &ObjectEvent) {
        let mut index = self.index.write();
        match event {
            ObjectEvent::Applied(object) => index.apply(&resource.resource, object),
            ObjectEvent::Deleted(object) => index.delete(&resource.resource, object),
        }
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        self.decide(attributes)
    }

    fn rules(&self, user: &User, namespace: &str) -> (Vec<Value>, Vec<Value>, bool) {
        let (rules, missing) = self.rules_for(user, namespace);
        let resources = rules
            .iter()
            .filter(|r| !r.resources.is_empty())
            .map(Rule::resource_review)
            .collect();
        let paths = rules
            .iter()
            .filter(|r| !r.paths.is_empty())
            .map(Rule::path_review)
            .collect();
        (resources, paths, !missing.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn apply(rbac: &Rbac, resource: &str, object: Value) {
        rbac.object_changed(
            &GroupResource::new(GROUP, resource),
            &ObjectEvent::Applied(Arc::new(object)),
        );
    }

    fn role(name: &str, namespace: &str, rules: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": namespace}, "rules": rules})
    }

    fn binding(name: &str, namespace: &str, role: (&str, &str), subject: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": namespace}, "roleRef": {"kind": role.0, "name": role.1}, "subjects": [subject]})
    }

    fn rbac() -> Rbac {
        let rbac = Rbac::default();
        apply(
            &rbac,
            "roles",
            role(
                "reader",
                "n",
                json!([
            {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get", "list"]},
            {"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["*"]}]),
            ),
        );
        apply(
            &rbac,
            "clusterroles",
            role(
                "paths",
                "",
                json!([{"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]}]),
            ),
        );
        apply(
            &rbac,
            "rolebindings",
            binding(
                "b",
                "n",
                ("Role", "reader"),
                json!({"kind": "User", "name": "jane"}),
            ),
        );
        apply(
            &rbac,
            "rolebindings",
            binding(
                "s",
                "n",
                ("Role", "reader"),
                json!({"kind": "ServiceAccount", "name": "robot", "namespace": "m"}),
            ),
        );
        apply(
            &rbac,
            "clusterrolebindings",
            binding(
                "c",
                "",
                ("ClusterRole", "paths"),
                json!({"kind": "Group", "name": "ops"}),
            ),
        );
        rbac
    }

    fn ask(user: &str, verb: &str, resource: &str, name: &str) -> Attributes {
        let (group, resource) = resource.split_once(':').unwrap_or(("", resource));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes {
            user: User {
                name: user.into(),
                groups: vec!["ops".into()],
                ..User::default()
            },
            verb: verb.into(),
            group: group.into(),
            namespace: "n".into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            is_resource: true,
            ..Attributes::default()
        }
    }

    #[test]
    fn resources() {
        let rbac = rbac();
        let check = |user: &str, verb: &str, resource: &str, name: &str, expect: bool| {
            let allowed = matches!(
                rbac.authorize(&ask(user, verb, resource, name)),
                Decision::Allow(_)
            );
            assert_eq!(allowed, expect, "{user} {verb} {resource} {name}");
        };
        check("jane", "get", "pods", "x", true);
        check("jane", "get", "pods/log", "x", true);
        check("jane", "get", "pods/status", "x", false);
        check("jane", "delete", "pods", "x", false);
        check("jane", "get", "secrets", "one", true);
        check("jane", "get", "secrets", "two", false);
        check("jane", "list", "secrets", "", false);
        check("jane", "update", "apps:deployments/scale", "d", true);
        check("jane", "update", "apps:deployments", "d", false);
        check("joe", "get", "pods", "x", false);
        check("system:serviceaccount:m:robot", "get", "pods", "x", true);
        let mut elsewhere = ask("jane", "get", "pods", "x");
        elsewhere.namespace = "m".into();
        assert!(matches!(rbac.authorize(&elsewhere), Decision::NoOpinion(_)));
        let mut by_selector = ask("jane", "list", "secrets", "");
        by_selector.field_selector = "metadata.name=one".into();
        assert_eq!(
            rbac.authorize(&by_selector),
            Decision::Allow(
                "RBAC: allowed by RoleBinding \"b/n\" of Role \"reader\" to User \"jane\"".into()
            )
        );
    }

    #[test]
    fn paths() {
        let rbac = rbac();
        let ask = |path: &str, verb: &str| Attributes {
            path: path.into(),
            verb: verb.into(),
            is_resource: false,
            namespace: String::new(),
            resource: String::new(),
            ..ask("x", "", "", "")
        };
        assert!(matches!(
            rbac.authorize(&ask("/metrics", "get")),
            Decision::Allow(_)
        ));
        assert!(matches!(
            rbac.authorize(&ask("/debug/a/b", "get")),
            Decision::Allow(_)
        ));
        assert!(matches!(
            rbac.authorize(&ask("/metrics", "post")),
            Decision::NoOpinion(_)
        ));
        assert!(matches!(
            rbac.authorize(&ask("/", "get")),
            Decision::NoOpinion(_)
        ));
    }

    #[test]
    fn a_binding_that_goes_away_grants_nothing() {
        let rbac = rbac();
        let gone = binding(
            "b",
            "n",
            ("Role", "reader"),
            json!({"kind": "User", "name": "jane"}),
        );
        rbac.object_changed(
            &GroupResource::new(GROUP, "rolebindings"),
            &ObjectEvent::Deleted(Arc::new(gone)),
        );
        assert!(matches!(
            rbac.authorize(&ask("jane", "get", "pods", "x")),
            Decision::NoOpinion(_)
        ));
    }

    #[test]
    fn a_missing_role_is_named() {
        let rbac = Rbac::default();
        apply(
            &rbac,
            "rolebindings",
            binding(
                "b",
                "n",
                ("ClusterRole", "none"),
                json!({"kind": "User", "name": "jane"}),
            ),
        );
        assert_eq!(
            rbac.authorize(&ask("jane", "get", "pods", "x")),
            Decision::NoOpinion(
                "RBAC: clusterrole.rbac.authorization.k8s.io \"none\" not found".into()
            )
        );
    }
}
