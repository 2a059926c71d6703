//! Access to parameters: a policy may read every object of its `paramKind`, so that its author needs
//! the right to do so, and the author of a binding the right to read what `paramRef` names.
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

    fn is_allowed(&self, user: &User, verb: &str, kind: &Value, place: (&str, &str)) -> bool {
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
            version: version.to_owned(),
            resource: found.map_or("*".to_owned(), |found| found.resource.resource),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_resource: true,
            ..Attributes::default()
        };
        matches!(self.authorizer.authorize(&attributes), Decision::Allow(_))
    }

    fn check_policy(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let kind = param_kind(&request.object);
        let unchanged = request
            .old
            .as_ref()
            .is_some_and(|old| param_kind(old) == kind);
        if kind.is_null() || unchanged || self.is_allowed(request.user, "get", kind, ("*", "*")) {
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
        let verb = if name.is_empty() { "list" } else { "get" };
        // Without a namespace, the binding reads the parameters of all.
        let place = (text(reference, "namespace"), name);
        if self.is_allowed(request.user, verb, param_kind(&policy), place) {
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
            || request.user.in_group(User::MASTERS)
        {
            return Ok(());
        }
        match request.resource {
            "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
                self.check_policy(request)
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
