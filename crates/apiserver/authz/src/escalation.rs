//! Prevents privilege escalation: a write to a role needs the rules themselves or the verb
//! `escalate`, a write to a binding needs the role's rules or the verb `bind`.
//!
//! The check is an admission plugin, run last among the validating ones, so that it sees the object
//! that will be stored.

use crate::rbac::{GROUP, Rbac, Rule};
use api_meta::ApiError;
use api_meta::semantic::equal_except;
use apiserver_request::{
    Admission, AdmissionRequest, Attributes, Authorizer, Decision, GroupResource, Objects,
    Operation, User,
};
use serde_json::Value;
use std::sync::Arc;

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

    fn may(&self, request: &AdmissionRequest<'_>, verb: &str, resource: &str, name: &str) -> bool {
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
        matches!(self.authorizer.authorize(&attributes), Decision::Allow(_))
    }

    fn role(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let object = &request.object;
        if changes_collection_fields_only(request)
            || self.may(request, "escalate", request.resource, request.name)
        {
            return Ok(());
        }
        // The old rule counts as well: without it the role would keep the rules that were
        // aggregated into it.
        if is_aggregated(object) || request.old.as_ref().is_some_and(is_aggregated) {
            self.holds(request.user, &Rule::full_authority(), "")
                .map_err(|_| {
                    escalation_error(
                        request,
                        "must have cluster-admin privileges to use the aggregationRule",
                    )
                })?;
        }
        let rules = Rule::list(object.get("rules").unwrap_or(&Value::Null));
        self.holds(request.user, &rules, request.namespace)
            .map_err(|why| escalation_error(request, &why))
    }

    async fn binding(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let object = &request.object;
        if changes_collection_fields_only(request) {
            return Ok(());
        }
        let reference = object.get("roleRef").unwrap_or(&Value::Null);
        let text = |field: &str| {
            reference
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (resource, namespace) = if text("kind") == "ClusterRole" {
            ("clusterroles", "")
        } else {
            ("roles", request.namespace)
        };
        if self.may(request, "bind", resource, text("name")) {
            return Ok(());
        }
        let role = self
            .objects
            .read_live(
                &GroupResource::new(GROUP, resource),
                namespace,
                text("name"),
            )
            .await?;
        let role = role.ok_or_else(|| ApiError::not_found(GROUP, resource, text("name")))?;
        let rules = Rule::list(role.get("rules").unwrap_or(&Value::Null));
        self.holds(request.user, &rules, request.namespace)
            .map_err(|why| escalation_error(request, &why))
    }

    /// Checks that `user` holds all of `rules` in `namespace`; the error is the stock server's
    /// text.
    fn holds(&self, user: &User, rules: &[Rule], namespace: &str) -> Result<(), String> {
        let (own, missing_roles) = self.rbac.rules_for(user, namespace);
        let missing = uncovered_rules(&own, rules);
        if missing.is_empty() {
            return Ok(());
        }
        let mut texts: Vec<String> = compact_rules(missing).iter().map(Rule::compact).collect();
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

/// Returns whether an update changes only fields that garbage collection writes. Every other change
/// must be covered by the user's permissions, labels included: a label can aggregate the role's
/// rules into another role.
fn changes_collection_fields_only(request: &AdmissionRequest<'_>) -> bool {
    const COLLECTION: [&str; 4] = ["ownerReferences", "finalizers", "managedFields", "selfLink"];
    let Some(old) = &request.old else {
        return false;
    };
    let new = &request.object;
    equal_except(old, new, &["metadata"])
        && equal_except(&old["metadata"], &new["metadata"], &COLLECTION)
}

/// Returns the single permissions of `wanted` that no rule of `own` covers.
fn uncovered_rules(own: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let singles = wanted.iter().flat_map(Rule::singles);
    singles
        .filter(|single| !own.iter().any(|rule| rule.covers(single)))
        .collect()
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
            || request.user.in_group(User::MASTERS)
        {
            return Ok(());
        }
        match request.resource {
            "roles" | "clusterroles" => self.role(request),
            "rolebindings" | "clusterrolebindings" => self.binding(request).await,
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(value: Value) -> Vec<Rule> {
        Rule::list(&value)
    }

    #[test]
    fn coverage() {
        let check = |own: Value, wanted: Value, missing: &[&str]| {
            let found: Vec<String> = compact_rules(uncovered_rules(&rules(own), &rules(wanted)))
                .iter()
                .map(Rule::compact)
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
                warnings: Vec::new(),
            };
            changes_collection_fields_only(&request)
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
}
