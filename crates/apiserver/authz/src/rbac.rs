//! RBAC over indexes: bindings by subject, roles by name, maintained by an observer of the four
//! RBAC caches.
//!
//! Invariant: a decision reads only the bindings of the user and its groups, never all bindings.
//! Rules are evaluated as stored; a controller fills aggregated roles.

mod index;
mod rule;

pub use index::GROUP;
pub use rule::{Rule, quote_list};

use apiserver_request::{
    Attributes, Decision, GroupResource, LocalAuthorizer, ObjectEvent, Objects, Observer, User,
    UserRules,
};
use index::{Grant, Index};
use parking_lot::RwLock;
use std::sync::Arc;

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
        let found = self.find_rules(user, namespace);
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
            .find_role(kind, namespace, name)
            .map(|rules| rules.to_vec())
    }

    fn find_rules(&self, user: &User, namespace: &str) -> RuleMatch {
        let index = self.index.read();
        let mut found = RuleMatch {
            rules: Vec::new(),
            missing: Vec::new(),
        };
        index.visit_grants(user, namespace, |grant| {
            match index.find_role(&grant.role_kind, &grant.namespace, &grant.role) {
                Some(rules) => found.rules.push((rules.clone(), grant.clone())),
                // Reported, so that an administrator sees why a grant has no effect.
                None => found.missing.push(grant.missing_role()),
            }
            true
        });
        found
    }

    fn decide_request(&self, attributes: &Attributes) -> Decision {
        let index = self.index.read();
        let mut allowed = None;
        let mut missing = Vec::new();
        // A read lock for the whole decision: it sees one state of roles and bindings.
        index.visit_grants(&attributes.user, &attributes.namespace, |grant| {
            // A missing role grants nothing and does not end the search: another binding may allow.
            let Some(rules) = index.find_role(&grant.role_kind, &grant.namespace, &grant.role)
            else {
                missing.push(grant.missing_role());
                return true;
            };
            if rules
                .iter()
                .any(|rule| rule.allows_request(attributes, &attributes.name))
            {
                allowed = Some(grant.describe_binding());
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

impl Observer for Rbac {
    fn object_changed(&self, resource: &GroupResource, event: &ObjectEvent) {
        let mut index = self.index.write();
        match event {
            ObjectEvent::Applied(object) => index.apply_object(&resource.resource, object),
            ObjectEvent::Deleted(object) => index.delete_object(&resource.resource, object),
        }
    }
}

impl LocalAuthorizer for Rbac {
    fn decide(&self, attributes: &Attributes) -> Decision {
        self.decide_request(attributes)
    }

    fn list_rules(&self, user: &User, namespace: &str) -> UserRules {
        let (rules, missing) = self.rules_for(user, namespace);
        let resources = rules
            .iter()
            // A rule holds resources or paths; the review lists them in separate fields.
            .filter(|r| !r.resources.is_empty())
            .map(Rule::resource_review)
            .collect();
        let paths = rules
            .iter()
            .filter(|r| !r.paths.is_empty())
            .map(Rule::path_review)
            .collect();
        UserRules {
            resources,
            paths,
            incomplete: !missing.is_empty(),
            errors: missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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

    fn attributes(user: &str, verb: &str, resource: &str, name: &str) -> Attributes {
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
    fn role_grants_listed_verbs_resources_and_names() {
        let rbac = rbac();
        let check = |user: &str, verb: &str, resource: &str, name: &str, expect: bool| {
            let allowed = matches!(
                rbac.decide(&attributes(user, verb, resource, name)),
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
        let mut elsewhere = attributes("jane", "get", "pods", "x");
        elsewhere.namespace = "m".into();
        assert!(matches!(rbac.decide(&elsewhere), Decision::NoOpinion(_)));
        // The request info has the name that the selector of a list requires. Selectors of other
        // verbs and of reviews name nothing.
        for (verb, name, allowed) in [
            ("list", "one", true),
            ("list", "", false),
            ("deletecollection", "", false),
        ] {
            let mut by_selector = attributes("jane", verb, "secrets", name);
            by_selector.field_selector = "metadata.name=one".into();
            let decision = rbac.decide(&by_selector);
            assert_eq!(
                matches!(decision, Decision::Allow(_)),
                allowed,
                "{verb} {name}"
            );
        }
    }

    #[test]
    fn cluster_role_grants_non_resource_paths() {
        let rbac = rbac();
        let path_request = |path: &str, verb: &str| Attributes {
            path: path.into(),
            verb: verb.into(),
            is_resource: false,
            namespace: String::new(),
            resource: String::new(),
            ..attributes("x", "", "", "")
        };
        assert!(matches!(
            rbac.decide(&path_request("/metrics", "get")),
            Decision::Allow(_)
        ));
        assert!(matches!(
            rbac.decide(&path_request("/debug/a/b", "get")),
            Decision::Allow(_)
        ));
        assert!(matches!(
            rbac.decide(&path_request("/metrics", "post")),
            Decision::NoOpinion(_)
        ));
        assert!(matches!(
            rbac.decide(&path_request("/", "get")),
            Decision::NoOpinion(_)
        ));
    }

    #[test]
    fn deleted_binding_grants_nothing() {
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
            rbac.decide(&attributes("jane", "get", "pods", "x")),
            Decision::NoOpinion(_)
        ));
    }

    #[test]
    fn missing_role_is_the_reason_of_the_decision() {
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
            rbac.decide(&attributes("jane", "get", "pods", "x")),
            Decision::NoOpinion(
                "RBAC: clusterrole.rbac.authorization.k8s.io \"none\" not found".into()
            )
        );
    }

    #[test]
    fn cluster_role_bound_in_a_namespace_grants_there_only() {
        let rbac = Rbac::default();
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        apply(&rbac, "clusterroles", role("viewer", "", rules));
        let jane = json!({"kind": "User", "name": "jane"});
        apply(
            &rbac,
            "rolebindings",
            binding("b", "n", ("ClusterRole", "viewer"), jane),
        );
        let mut request = attributes("jane", "get", "pods", "x");
        assert!(matches!(rbac.decide(&request), Decision::Allow(_)));
        for namespace in ["m", ""] {
            request.namespace = namespace.into();
            assert!(
                matches!(rbac.decide(&request), Decision::NoOpinion(_)),
                "{namespace:?}"
            );
        }
    }

    #[test]
    fn binding_that_is_changed_no_longer_grants_to_its_former_subject() {
        let rbac = rbac();
        let joe = json!({"kind": "User", "name": "joe"});
        apply(
            &rbac,
            "rolebindings",
            binding("b", "n", ("Role", "reader"), joe),
        );
        let allows = |user: &str| {
            matches!(
                rbac.decide(&attributes(user, "get", "pods", "x")),
                Decision::Allow(_)
            )
        };
        assert!(allows("joe"));
        assert!(!allows("jane"));
    }

    #[test]
    fn service_account_subject_without_namespace_is_in_that_of_the_binding() {
        let rbac = rbac();
        let robot = json!({"kind": "ServiceAccount", "name": "local"});
        apply(
            &rbac,
            "rolebindings",
            binding("l", "n", ("Role", "reader"), robot.clone()),
        );
        apply(
            &rbac,
            "clusterrolebindings",
            binding("l", "", ("ClusterRole", "paths"), robot),
        );
        let decision = rbac.decide(&attributes(
            "system:serviceaccount:n:local",
            "get",
            "pods",
            "x",
        ));
        assert_eq!(
            decision,
            Decision::Allow("RBAC: allowed by RoleBinding \"l/n\" of Role \"reader\" to ServiceAccount \"local/n\"".into())
        );
    }

    #[test]
    fn several_missing_roles_are_listed_in_brackets() {
        let rbac = Rbac::default();
        let jane = json!({"kind": "User", "name": "jane"});
        apply(
            &rbac,
            "clusterrolebindings",
            binding("a", "", ("ClusterRole", "one"), jane.clone()),
        );
        apply(
            &rbac,
            "rolebindings",
            binding("b", "n", ("Role", "two"), jane),
        );
        assert_eq!(
            rbac.decide(&attributes("jane", "get", "pods", "x")),
            Decision::NoOpinion("RBAC: [clusterrole.rbac.authorization.k8s.io \"one\" not found, role.rbac.authorization.k8s.io \"two\" not found]".into())
        );
    }

    #[test]
    fn rules_review_separates_resources_from_paths() {
        let user = attributes("jane", "", "", "").user;
        let UserRules {
            resources,
            paths,
            incomplete,
            ..
        } = rbac().list_rules(&user, "n");
        assert_eq!((resources.len(), paths.len(), incomplete), (3, 1, false));
        assert_eq!(
            paths[0],
            json!({"verbs": ["get"], "nonResourceURLs": ["/metrics", "/debug/*"]})
        );
    }
}
