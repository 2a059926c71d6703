//! Access to parameters: a policy may read every object of its `paramKind`, so that its author
//! needs the right to do so, and the author of a binding the right to read what `paramRef` names.
//!
//! The check is an admission plugin that no flag disables, run last among the validating ones, so
//! that it sees the object that will be stored.

use crate::params::ParamObjects;
use crate::source::GROUP;
use api_meta::tree::{get, has, text};
use api_meta::{ApiError, Cause};
use apiserver_request::{
    Admission, AdmissionRequest, Attributes, Authorizer, Decision, GroupResource, Objects,
    Operation, User,
};
use serde_json::Value;
use std::sync::Arc;

/// Checks writes to policies and bindings.
pub struct ParamAccessCheck {
    authorizer: Arc<dyn Authorizer>,
    objects: Arc<dyn Objects>,
    params: Arc<dyn ParamObjects>,
}

impl ParamAccessCheck {
    /// Creates the check; `objects` holds the policies of bindings.
    pub fn new(
        authorizer: Arc<dyn Authorizer>,
        objects: Arc<dyn Objects>,
        params: Arc<dyn ParamObjects>,
    ) -> Self {
        ParamAccessCheck {
            authorizer,
            objects,
            params,
        }
    }

    async fn is_allowed(&self, user: &User, verb: &str, kind: &Value, place: (&str, &str)) -> bool {
        let api_version = text(kind, "apiVersion");
        // An unknown policy or kind may become any: the right to read everything is needed.
        let (group, version) = match api_version.split_once('/') {
            Some((group, version)) if !version.contains('/') => (group, version),
            None if !api_version.is_empty() => ("", api_version),
            _ => ("*", "*"),
        };
        let found = self.params.find_resource(api_version, text(kind, "kind"));
        let (namespace, name) = place;
        let attributes = Attributes {
            user: user.clone(),
            verb: verb.to_owned(),
            group: group.to_owned(),
            // Upstream's strategies pass the version, too. RBAC ignores it, an authorization
            // webhook may not.
            version: version.to_owned(),
            resource: found.map_or("*".to_owned(), |found| found.resource.resource),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_resource: true,
            ..Attributes::default()
        };
        let decision = self.authorizer.authorize(&attributes).await;
        matches!(decision, Decision::Allow(_))
    }

    async fn check_policy(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let kind = param_kind(&request.object);
        // Another field of the policy may be changed without the right, as long as the parameters
        // stay the same.
        let unchanged = request
            .old
            .as_ref()
            .is_some_and(|old| param_kind(old) == kind);
        // The namespace and name "*" are those of upstream's strategy.
        if kind.is_null()
            || unchanged
            || self.is_allowed(request.user, "get", kind, ("*", "*")).await
        {
            return Ok(());
        }
        let why = format!(
            "user {:?} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            request.user.name,
            text(kind, "kind"),
            text(kind, "apiVersion"),
        );
        Err(forbidden_field(request, "spec.paramKind", &why))
    }

    async fn check_binding(
        &self,
        request: &AdmissionRequest<'_>,
        policies: &str,
    ) -> Result<(), ApiError> {
        let spec = get(&request.object, "spec");
        let reference = get(spec, "paramRef");
        // The policy counts as well: under another policy, the same reference names objects of
        // another kind.
        let same = |old: &Value| {
            let old = get(old, "spec");
            get(old, "paramRef") == reference && text(old, "policyName") == text(spec, "policyName")
        };
        if reference.is_null() || request.old.as_ref().is_some_and(same) {
            return Ok(());
        }
        let policies = GroupResource::new(GROUP, policies);
        // Live: a stale policy could have a kind of parameters that the author may read.
        let policy = self
            .objects
            .read_live(&policies, "", text(spec, "policyName"))
            .await?
            .unwrap_or_default();
        let name = text(reference, "name");
        // A selector reads all matching objects, which `get` on one of them must not permit.
        let verb = if name.is_empty() { "list" } else { "get" };
        // Without a namespace, the binding reads the parameters of all.
        let place = (text(reference, "namespace"), name);
        if self
            .is_allowed(request.user, verb, param_kind(&policy), place)
            .await
        {
            return Ok(());
        }
        let why = format!(
            "user {:?} does not have {verb:?} permission on the object referenced by paramRef",
            request.user.name
        );
        Err(forbidden_field(request, "spec.paramRef", &why))
    }
}

fn param_kind(policy: &Value) -> &Value {
    get(get(policy, "spec"), "paramKind")
}

fn forbidden_field(request: &AdmissionRequest<'_>, field: &str, why: &str) -> ApiError {
    let cause = Cause {
        reason: "FieldValueForbidden".to_owned(),
        message: format!("Forbidden: {why}"),
        field: field.to_owned(),
    };
    ApiError::invalid(request.group, request.kind, request.name, vec![cause])
}

#[async_trait::async_trait]
impl Admission for ParamAccessCheck {
    fn name(&self) -> &'static str {
        "PolicyParamAccess"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let write = matches!(request.operation, Operation::Create | Operation::Update);
        if request.group != GROUP
            || !write
            || !request.subresource.is_empty()
            || !has(&request.object, "spec")
            // Upstream's `EscalationAllowed`: the superuser passes even if no authorizer grants it
            // rights.
            || request.user.in_group(User::MASTERS)
        {
            return Ok(());
        }
        match request.resource {
            "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
                self.check_policy(request).await
            }
            "validatingadmissionpolicybindings" => {
                self.check_binding(request, "validatingadmissionpolicies")
                    .await
            }
            "mutatingadmissionpolicybindings" => {
                self.check_binding(request, "mutatingadmissionpolicies")
                    .await
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::params::ParamResource;
    use api_meta::Selector;
    use apiserver_request::LocalAuthorizer;
    use apiserver_request::Observer;
    use apiserver_webhook::GroupVersionResource;
    use serde_json::json;

    /// Allows what is in the list: `VERB GROUP/VERSION/RESOURCE NAMESPACE/NAME`.
    struct Fake(&'static [&'static str]);

    impl LocalAuthorizer for Fake {
        fn decide(&self, a: &Attributes) -> Decision {
            let asked = format!(
                "{} {}/{}/{} {}/{}",
                a.verb, a.group, a.version, a.resource, a.namespace, a.name
            );
            match self.0.contains(&asked.as_str()) {
                true => Decision::Allow(asked),
                false => Decision::NoOpinion(asked),
            }
        }
    }

    #[async_trait::async_trait]
    impl ParamObjects for Fake {
        fn find_resource(&self, api_version: &str, kind: &str) -> Option<ParamResource> {
            ((api_version, kind) == ("v1", "Secret")).then(|| ParamResource {
                resource: GroupVersionResource::new("", "v1", "secrets"),
                is_namespaced: true,
            })
        }
        async fn find_object(
            &self,
            _: &GroupVersionResource,
            _: &str,
            _: &str,
        ) -> Result<Option<Value>, String> {
            Ok(None)
        }
        async fn list_objects(
            &self,
            _: &GroupVersionResource,
            _: Option<&str>,
            _: &Selector,
        ) -> Result<Vec<Value>, String> {
            Ok(Vec::new())
        }
    }

    #[async_trait::async_trait]
    impl Objects for Fake {
        fn cached_object(&self, _: &GroupResource, _: &str, _: &str) -> Option<Arc<Value>> {
            None
        }
        fn cached_list(&self, _: &GroupResource, _: Option<&str>) -> Vec<Arc<Value>> {
            Vec::new()
        }
        async fn read_live(
            &self,
            _: &GroupResource,
            _: &str,
            name: &str,
        ) -> Result<Option<Value>, ApiError> {
            Ok((name == "p").then(|| policy("v1", "Secret")))
        }
        fn observe(&self, _: &GroupResource, _: Arc<dyn Observer>) {}
        fn caches_ready(&self) -> bool {
            true
        }
    }

    fn policy(version: &str, kind: &str) -> Value {
        json!({"spec": {"paramKind": {"apiVersion": version, "kind": kind}}})
    }

    fn binding(policy: &str, reference: Value) -> Value {
        json!({"spec": {"policyName": policy, "paramRef": reference}})
    }

    async fn check(
        allowed: &'static [&'static str],
        resource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> bool {
        let fake = || Arc::new(Fake(allowed));
        let user = User::default();
        let operation = old.map_or(Operation::Create, |_| Operation::Update);
        let request = AdmissionRequest {
            operation,
            user: &user,
            group: GROUP,
            version: "v1",
            resource,
            subresource: "",
            kind: "Policy",
            namespace: "",
            name: "x",
            object: object.clone(),
            old: old.cloned(),
            options: Value::Null,
            dry_run: false,
            warnings: Default::default(),
            reinvocation: Default::default(),
        };
        let check = ParamAccessCheck::new(fake(), fake(), fake());
        let checked = check.validate(&request).await;
        assert!(checked.as_ref().err().is_none_or(|e| e.code() == 422));
        checked.is_ok()
    }

    #[tokio::test]
    async fn policy_needs_get_on_all_objects_of_its_kind() {
        for resource in ["validatingadmissionpolicies", "mutatingadmissionpolicies"] {
            for (allowed, version, kind, expect) in [
                (&[][..], "v1", "Secret", false),
                (&["get /v1/secrets */*"], "v1", "Secret", true),
                (&["get /v1/secrets default/s"], "v1", "Secret", false),
                (&["get /v1/secrets */*"], "v1", "Unknown", false),
                (&["get /v1/* */*"], "v1", "Unknown", true),
                (&["get g/v1/* */*"], "g/v1", "Unknown", true),
                (&["get g/v1/* */*"], "g/v1/x", "Unknown", false),
                (&["get */*/* */*"], "g/v1/x", "Unknown", true),
            ] {
                let object = policy(version, kind);
                let found = check(allowed, resource, &object, None).await;
                assert_eq!(found, expect, "{resource} {allowed:?} {version} {kind}");
            }
            let (old, new) = (policy("v1", "Other"), policy("v1", "Secret"));
            assert!(!check(&[], resource, &new, Some(&old)).await);
            assert!(check(&[], resource, &new, Some(&new)).await, "unchanged");
            assert!(check(&[], resource, &json!({"spec": {}}), None).await);
        }
    }

    #[tokio::test]
    async fn binding_needs_access_to_what_it_names() {
        let one = json!({"name": "s", "namespace": "n"});
        let all = json!({"selector": {}});
        for resource in [
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicybindings",
        ] {
            for (allowed, policy, reference, expect) in [
                (&[][..], "p", &one, false),
                (&["get /v1/secrets n/s"], "p", &one, true),
                (&["list /v1/secrets n/"], "p", &one, false),
                (&["get /v1/secrets n/s"], "missing", &one, false),
                (&["get */*/* n/s"], "missing", &one, true),
                (&["get /v1/secrets n/s"], "p", &all, false),
                (&["list /v1/secrets /"], "p", &all, true),
            ] {
                let object = binding(policy, reference.clone());
                let found = check(allowed, resource, &object, None).await;
                assert_eq!(found, expect, "{resource} {allowed:?} {object}");
            }
            let (old, new) = (binding("a", one.clone()), binding("p", one.clone()));
            assert!(!check(&[], resource, &new, Some(&old)).await, "policy");
            assert!(check(&[], resource, &new, Some(&new)).await, "unchanged");
        }
    }
}
