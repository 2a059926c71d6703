//! Prevents privilege escalation: a write to a role needs the rules themselves or the verb
//! `escalate`, a write to a binding needs the role's rules or the verb `bind`.
//!
//! The check is an admission plugin, run last among the validating ones, so that it sees the object
//! that will be stored.

use crate::rbac::{GROUP, Rbac, Rule};
use api_meta::ApiError;
use apiserver_request::{
    Admission, AdmissionRequest, Attributes, Authorizer, Decision, GroupResource, Objects,
    Operation, User,
};
use serde_json::Value;
use std::sync::Arc;

/// Most combinations of a verb, group, resource and name that are compared one by one. A role of a
/// few kilobytes may have billions.
const MAX_SINGLES: usize = 20_000;
/// Most permissions that a denial lists.
const MAX_SHOWN: usize = 1_000;

/// Checks writes to roles and bindings.
pub struct EscalationCheck {
    rbac: Arc<Rbac>,
    authorizer: Arc<dyn Authorizer>,
    objects: Arc<dyn Objects>,
}

impl EscalationCheck {
    /// Creates the check; `authorizer` decides about `escalate` and `bind`, `objects` holds the
    /// roles.
    pub fn new(
        rbac: Arc<Rbac>,
        authorizer: Arc<dyn Authorizer>,
        objects: Arc<dyn Objects>,
    ) -> Self {
        EscalationCheck {
            rbac,
            authorizer,
            objects,
        }
    }

    async fn is_authorized(
        &self,
        request: &AdmissionRequest<'_>,
        verb: &str,
        resource: &str,
        name: &str,
    ) -> bool {
        // By all authorizers: another mode may grant `escalate` and `bind` without RBAC.
        let attributes = Attributes {
            user: request.user.clone(),
            verb: verb.into(),
            group: GROUP.into(),
            version: request.version.into(),
            namespace: request.namespace.into(),
            resource: resource.into(),
            name: name.into(),
            is_resource: true,
            ..Attributes::default()
        };
        let decision = self.authorizer.authorize(&attributes).await;
        matches!(decision, Decision::Allow(_))
    }

    async fn check_role(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let object = &request.object;
        if request.changes_collection_fields_only()
            // The verb lets controllers and installers create roles with rights that they do not
            // hold.
            || self.is_authorized(request, "escalate", request.resource, request.name).await
        {
            return Ok(());
        }
        // The old rule counts as well: without it the role would keep the rules that were
        // aggregated into it.
        if is_aggregated(object) || request.old.as_ref().is_some_and(is_aggregated) {
            self.check_holds(request.user, &Rule::full_authority(), "")
                .map_err(|_| {
                    escalation_error(
                        request,
                        "must have cluster-admin privileges to use the aggregationRule",
                    )
                })?;
        }
        let rules = Rule::parse_list(object.get("rules").unwrap_or(&Value::Null));
        self.check_holds(request.user, &rules, request.namespace)
            .map_err(|why| escalation_error(request, &why))
    }

    async fn check_binding(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let object = &request.object;
        // The garbage collector updates bindings that it could not create.
        if request.changes_collection_fields_only() {
            return Ok(());
        }
        let reference = object.get("roleRef").unwrap_or(&Value::Null);
        let text = |field: &str| {
            reference
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        // A RoleBinding may name a ClusterRole, whose rules then apply in the namespace only.
        let (resource, namespace) = if text("kind") == "ClusterRole" {
            ("clusterroles", "")
        } else {
            ("roles", request.namespace)
        };
        // The verb `bind` on the role permits a binding without holding its rules.
        if self
            .is_authorized(request, "bind", resource, text("name"))
            .await
        {
            return Ok(());
        }
        let role = self
            .objects
            // Live: a stale role could hold fewer rules than the one that the binding grants.
            .read_live(
                &GroupResource::new(GROUP, resource),
                namespace,
                text("name"),
            )
            .await?;
        let role = role.ok_or_else(|| ApiError::not_found(GROUP, resource, text("name")))?;
        let rules = Rule::parse_list(role.get("rules").unwrap_or(&Value::Null));
        self.check_holds(request.user, &rules, request.namespace)
            .map_err(|why| escalation_error(request, &why))
    }

    /// Checks that `user` holds all of `rules` in `namespace`; the error is the stock server's
    /// text.
    fn check_holds(&self, user: &User, rules: &[Rule], namespace: &str) -> Result<(), String> {
        let (own, missing_roles) = self.rbac.rules_for(user, namespace);
        let Some(mut missing) = uncovered_rules(&own, rules) else {
            return Err(format!(
                "the rules have more than {MAX_SINGLES} combinations of verbs, groups, resources and names, \
                 which can't be compared with the permissions of user {:?}",
                user.name
            ));
        };
        if missing.is_empty() {
            return Ok(());
        }
        missing.truncate(MAX_SHOWN);
        let mut texts: Vec<String> = compact_rules(missing)
            .iter()
            .map(Rule::to_compact_text)
            .collect();
        // Sorted, so that the message does not depend on the order of the role's rules.
        texts.sort();
        texts.dedup();
        let groups = crate::rbac::quote_list(&user.groups);
        let mut message = format!(
            "user {:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            texts.join("\n")
        );
        if !missing_roles.is_empty() {
            message.push_str(&format!(
                "; resolution errors: [{}]",
                missing_roles.join(", ")
            ));
        }
        Err(message)
    }
}

fn escalation_error(request: &AdmissionRequest<'_>, why: &str) -> ApiError {
    ApiError::forbidden(request.group, request.resource, request.name, why)
}

fn is_aggregated(role: &Value) -> bool {
    let selectors = role
        .pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array);
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

/// Returns the single permissions of `requested` that no rule of `own` covers; `None` if there are
/// too many to compare.
fn uncovered_rules(own: &[Rule], requested: &[Rule]) -> Option<Vec<Rule>> {
    let is_covered = |rule: &Rule| own.iter().any(|own| own.covers_single(rule));
    let mut left = MAX_SINGLES;
    let mut missing = Vec::new();
    for rule in requested {
        // Usually one rule covers another as a whole. A rule of paths has no resources.
        if (rule.paths.is_empty() || rule.resources.is_empty()) && is_covered(rule) {
            continue;
        }
        left = left.checked_sub(rule.count_singles())?;
        let singles = rule.split_singles().into_iter();
        missing.extend(singles.filter(|single| !is_covered(single)));
    }
    Some(missing)
}

/// Joins singles that differ only in their verb.
fn compact_rules(singles: Vec<Rule>) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    for single in singles {
        let same = |r: &&mut Rule| {
            (&r.groups, &r.resources, &r.names, &r.paths)
                == (
                    &single.groups,
                    &single.resources,
                    &single.names,
                    &single.paths,
                )
        };
        // As upstream compacts them, so that the message stays short.
        match out.iter_mut().find(same) {
            Some(rule) => rule.verbs.extend(single.verbs),
            None => out.push(single),
        }
    }
    out
}

#[async_trait::async_trait]
impl Admission for EscalationCheck {
    fn name(&self) -> &'static str {
        "RBACEscalation"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let write = matches!(request.operation, Operation::Create | Operation::Update);
        if request.group != GROUP
            || !write
            || !request.subresource.is_empty()
            // Needed to create the first roles: nothing is bound yet.
            || request.user.in_group(User::MASTERS)
        {
            return Ok(());
        }
        match request.resource {
            "roles" | "clusterroles" => self.check_role(request).await,
            "rolebindings" | "clusterrolebindings" => self.check_binding(request).await,
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(value: Value) -> Vec<Rule> {
        Rule::parse_list(&value)
    }

    #[test]
    fn uncovered_rules_are_listed_by_verb() {
        let check = |own: Value, requested: Value, missing: &[&str]| {
            let found = uncovered_rules(&rules(own), &rules(requested)).unwrap_or_default();
            let found: Vec<String> = compact_rules(found)
                .iter()
                .map(Rule::to_compact_text)
                .collect();
            assert_eq!(found, missing);
        };
        let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        check(pods.clone(), pods.clone(), &[]);
        check(
            pods.clone(),
            json!([{"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "list"]}]),
            &[
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#,
            ],
        );
        check(
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
            pods.clone(),
            &[],
        );
        check(
            pods.clone(),
            json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}]),
            &[r#"{APIGroups:[""], Resources:["*"], Verbs:["get"]}"#],
        );
        let named = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]}]);
        check(pods.clone(), named.clone(), &[]);
        check(
            named,
            pods,
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
        );
        check(
            json!([{"nonResourceURLs": ["/a/*"], "verbs": ["get"]}]),
            json!([{"nonResourceURLs": ["/a/b", "/a/*", "/b"], "verbs": ["get"]}]),
            &[r#"{NonResourceURLs:["/b"], Verbs:["get"]}"#],
        );
    }

    /// Four lists of 300 elements are 8.1 billion combinations.
    #[test]
    fn rules_with_too_many_combinations_are_not_split() {
        let many =
            |prefix: &str| -> Vec<String> { (0..300).map(|n| format!("{prefix}{n}")).collect() };
        let wide = rules(json!([{"verbs": many("v"), "apiGroups": many("g"),
            "resources": many("r"), "resourceNames": many("n")}]));
        assert_eq!(wide[0].count_singles(), 8_100_000_000);
        let pods = rules(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
        assert_eq!(uncovered_rules(&pods, &wide), None);
        let all = Rule::full_authority();
        assert_eq!(uncovered_rules(&all, &wide), Some(Vec::new()));
        assert_eq!(uncovered_rules(&wide, &wide), Some(Vec::new()));
    }

    #[test]
    fn only_changes_of_garbage_collection_are_exempt() {
        let role = |metadata: Value, rules: Value| json!({"metadata": metadata, "rules": rules});
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let old = role(
            json!({"name": "r", "labels": {"a": "b"}, "finalizers": ["x"]}),
            rules.clone(),
        );
        let user = User::default();
        let exempt = |new: Value| {
            let request = AdmissionRequest {
                operation: Operation::Update,
                user: &user,
                group: GROUP,
                version: "v1",
                resource: "clusterroles",
                subresource: "",
                kind: "ClusterRole",
                namespace: "",
                name: "r",
                object: new,
                old: Some(old.clone()),
                options: Value::Null,
                dry_run: false,
                warnings: Default::default(),
                reinvocation: Default::default(),
            };
            request.changes_collection_fields_only()
        };
        let labels = json!({"a": "b"});
        let owners = json!([{"kind": "Node", "name": "n", "uid": "u"}]);
        assert!(exempt(role(
            json!({"name": "r", "labels": labels}),
            rules.clone()
        )));
        assert!(exempt(role(
            json!({"name": "r", "labels": labels, "ownerReferences": owners, "annotations": {}}),
            rules.clone()
        )));
        let aggregated = json!({"a": "b", "rbac.authorization.k8s.io/aggregate-to-view": "true"});
        assert!(!exempt(role(
            json!({"name": "r", "labels": aggregated, "finalizers": ["x"]}),
            rules.clone()
        )));
        assert!(!exempt(role(
            json!({"name": "r", "labels": labels, "annotations": {"a": "b"}}),
            rules
        )));
        assert!(!exempt(role(
            json!({"name": "r", "labels": labels}),
            json!([])
        )));
        assert!(!exempt(
            json!({"metadata": old["metadata"], "rules": old["rules"],
            "aggregationRule": {"clusterRoleSelectors": [{}]}})
        ));
    }

    struct Roles(Vec<Value>);

    #[async_trait::async_trait]
    impl Objects for Roles {
        fn cached_object(&self, _: &GroupResource, _: &str, _: &str) -> Option<Arc<Value>> {
            None
        }
        fn cached_list(&self, _: &GroupResource, _: Option<&str>) -> Vec<Arc<Value>> {
            Vec::new()
        }
        async fn read_live(
            &self,
            _: &GroupResource,
            namespace: &str,
            name: &str,
        ) -> Result<Option<Value>, ApiError> {
            let found = self
                .0
                .iter()
                .find(|r| r["metadata"]["name"] == name && r["metadata"]["namespace"] == namespace);
            Ok(found.cloned())
        }
        fn observe(&self, _: &GroupResource, _: Arc<dyn apiserver_request::Observer>) {}
        fn caches_ready(&self) -> bool {
            true
        }
    }

    /// Checks a create by `jane`, who may get pods in every namespace and has `extra` rules.
    fn create_as_jane(
        extra: Value,
        resource: &str,
        namespace: &str,
        object: Value,
    ) -> Result<(), String> {
        use apiserver_request::{ObjectEvent, Observer};
        let rbac = Arc::new(Rbac::default());
        let mut rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        for rule in extra.as_array().into_iter().flatten() {
            rules
                .as_array_mut()
                .into_iter()
                .for_each(|all| all.push(rule.clone()));
        }
        for (resource, object) in [
            (
                "clusterroles",
                json!({"metadata": {"name": "own"}, "rules": rules}),
            ),
            (
                "clusterrolebindings",
                json!({"metadata": {"name": "own"}, "roleRef": {"kind": "ClusterRole", "name": "own"},
                "subjects": [{"kind": "User", "name": "jane"}]}),
            ),
        ] {
            rbac.object_changed(
                &GroupResource::new(GROUP, resource),
                &ObjectEvent::Applied(Arc::new(object)),
            );
        }
        let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
        let roles = Roles(vec![
            json!({"metadata": {"name": "pods", "namespace": ""}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
            json!({"metadata": {"name": "secrets", "namespace": ""}, "rules": secrets}),
            json!({"metadata": {"name": "secrets", "namespace": "n"}, "rules": secrets}),
        ]);
        let check = EscalationCheck::new(rbac.clone(), rbac, Arc::new(roles));
        let user = User {
            name: "jane".into(),
            groups: vec!["dev".into()],
            ..User::default()
        };
        let request = AdmissionRequest {
            operation: Operation::Create,
            user: &user,
            group: GROUP,
            version: "v1",
            resource,
            subresource: "",
            kind: "",
            namespace,
            name: "new",
            object,
            old: None,
            options: Value::Null,
            dry_run: false,
            warnings: Default::default(),
            reinvocation: Default::default(),
        };
        let mut future = check.validate(&request);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(result) => result.map_err(|error| error.message),
            std::task::Poll::Pending => panic!("the check must not wait"),
        }
    }

    #[test]
    fn role_may_hold_only_rules_of_its_author() {
        let role = |verb: &str| json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]});
        assert_eq!(create_as_jane(json!([]), "roles", "n", role("get")), Ok(()));
        assert_eq!(
            create_as_jane(json!([]), "roles", "n", role("delete")),
            Err("roles.rbac.authorization.k8s.io \"new\" is forbidden: user \"jane\" (groups=[\"dev\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}".into())
        );
    }

    #[test]
    fn verb_escalate_permits_any_rules() {
        let escalate =
            json!([{"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["escalate"]}]);
        let role = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
        assert_eq!(
            create_as_jane(escalate.clone(), "clusterroles", "", role.clone()),
            Ok(())
        );
        assert!(create_as_jane(escalate, "roles", "n", role).is_err());
    }

    #[test]
    fn aggregated_role_needs_full_authority() {
        let role =
            json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
        assert_eq!(
            create_as_jane(json!([]), "clusterroles", "", role),
            Err("clusterroles.rbac.authorization.k8s.io \"new\" is forbidden: must have cluster-admin privileges to use the aggregationRule".into())
        );
        let empty = json!({"aggregationRule": {"clusterRoleSelectors": []}});
        assert_eq!(create_as_jane(json!([]), "clusterroles", "", empty), Ok(()));
    }

    #[test]
    fn binding_needs_the_rules_of_its_role_or_the_verb_bind() {
        let to = |kind: &str, name: &str| json!({"roleRef": {"apiGroup": GROUP, "kind": kind, "name": name}});
        let bind = |resource: &str| json!([{"apiGroups": [GROUP], "resources": [resource], "verbs": ["bind"], "resourceNames": ["secrets"]}]);
        for (extra, resource, namespace, object, expect) in [
            (
                json!([]),
                "clusterrolebindings",
                "",
                to("ClusterRole", "pods"),
                true,
            ),
            (
                json!([]),
                "clusterrolebindings",
                "",
                to("ClusterRole", "secrets"),
                false,
            ),
            (
                bind("clusterroles"),
                "clusterrolebindings",
                "",
                to("ClusterRole", "secrets"),
                true,
            ),
            (
                bind("clusterroles"),
                "rolebindings",
                "n",
                to("ClusterRole", "secrets"),
                true,
            ),
            (
                bind("clusterroles"),
                "rolebindings",
                "n",
                to("Role", "secrets"),
                false,
            ),
            (
                bind("roles"),
                "rolebindings",
                "n",
                to("Role", "secrets"),
                true,
            ),
        ] {
            let result = create_as_jane(extra.clone(), resource, namespace, object.clone());
            assert_eq!(
                result.is_ok(),
                expect,
                "{extra} {resource} {object}: {result:?}"
            );
        }
    }

    #[test]
    fn binding_to_a_missing_role_is_not_found() {
        let object = json!({"roleRef": {"kind": "ClusterRole", "name": "none"}});
        assert_eq!(
            create_as_jane(json!([]), "clusterrolebindings", "", object),
            Err("clusterroles.rbac.authorization.k8s.io \"none\" not found".into())
        );
    }
}
