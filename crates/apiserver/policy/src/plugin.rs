//! `ValidatingAdmissionPolicy`: all policies whose bindings match, on the final object.

use crate::activation::Input;
use crate::annotate::{PolicyAnnotations, annotate_failure};
use crate::authorizer::UserCheck;
use crate::conditions::request_resource;
use crate::denial::{Denial, denial_error, forbidden_error};
use crate::evaluate::Allowance;
use crate::exempt::is_exempt;
use crate::lookup::{Lookup, Versioned};
use crate::metrics::{Action, PolicyMetrics};
use crate::namespace::find_namespace_object;
use crate::params::ParamObjects;
use crate::patch::PatchObjects;
use crate::source::{Binding, Hook, PolicySource};
use crate::validating::{Decision, Outcome, ValidatingPolicy, Verdict};
use api_meta::ApiError;
use apiserver_request::{Admission, AdmissionRequest, Authorizer, Objects};
use apiserver_webhook::{Attributes, Kinds, NamespaceLabels, ObjectVersions};
use serde_json::Value;
use std::sync::Arc;

/// The parts of the server that the plugins use.
#[derive(Clone)]
pub struct PolicySetup {
    /// The watch caches.
    pub objects: Arc<dyn Objects>,
    /// The served kinds.
    pub kinds: Arc<dyn Kinds>,
    /// The objects that can be parameters.
    pub params: Arc<dyn ParamObjects>,
    /// The authorizer that expressions ask.
    pub authorizer: Arc<dyn Authorizer>,
    /// Applies mutations.
    pub patches: Arc<dyn PatchObjects>,
    /// Metrics.
    pub metrics: Arc<PolicyMetrics>,
}

impl PolicySetup {
    /// Collects the facts of a request.
    pub(crate) fn look_up<'a>(&'a self, request: &AdmissionRequest<'a>) -> Lookup<'a> {
        Lookup {
            attributes: Attributes::new(request, &*self.kinds),
            kinds: &*self.kinds,
            objects: &*self.objects,
            params: &*self.params,
            labels: NamespaceLabels::default(),
            versions: ObjectVersions::default(),
        }
    }
}

/// The plugin.
pub struct ValidatingPolicies {
    setup: PolicySetup,
    source: Arc<PolicySource<ValidatingPolicy>>,
}

impl ValidatingPolicies {
    /// Creates the plugin and observes policies and bindings.
    pub fn new(setup: PolicySetup) -> Self {
        let source = PolicySource::observe(
            &*setup.objects,
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            ValidatingPolicy::compile,
        );
        ValidatingPolicies { setup, source }
    }
}

#[async_trait::async_trait]
impl Admission for ValidatingPolicies {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if is_exempt(request.group, request.resource) {
            return Ok(());
        }
        // Fails closed: without the first list, no policy would be enforced.
        if !self.setup.objects.caches_ready() {
            return Err(forbidden_error(request, "not yet ready to handle request"));
        }
        let hooks = self.source.current_hooks();
        if hooks.is_empty() {
            return Ok(());
        }
        let mut pass = Pass {
            setup: &self.setup,
            request,
            lookup: self.setup.look_up(request),
            namespace: None,
            allowance: Allowance::new(),
            denials: Vec::new(),
        };
        for hook in hooks.iter() {
            pass.run_policy(hook).await?;
        }
        match pass.denials.first() {
            Some(denial) => Err(denial_error(request, denial)),
            None => Ok(()),
        }
    }
}

/// The evaluation of all policies for one request.
struct Pass<'a> {
    setup: &'a PolicySetup,
    request: &'a AdmissionRequest<'a>,
    lookup: Lookup<'a>,
    /// `namespaceObject`, once it is needed.
    namespace: Option<Value>,
    allowance: Allowance,
    denials: Vec<Denial>,
}

impl Pass<'_> {
    async fn run_policy(&mut self, hook: &Hook<ValidatingPolicy>) -> Result<(), ApiError> {
        let policy = &hook.policy;
        let objects = (&self.request.object, self.request.old.as_ref());
        let found = self.lookup.find_target(&policy.constraints, objects).await;
        let target = match found {
            Ok(Some(target)) => target,
            Ok(None) => return Ok(()),
            Err(error) => {
                let why = format!("failed to configure policy: {}", error.message);
                self.deny_misconfigured(policy, None, why);
                return Ok(());
            }
        };
        let mut versioned = None;
        let mut annotations = PolicyAnnotations::default();
        for binding in &hook.bindings {
            let kind = policy.param_kind.as_ref();
            let params = match self.lookup.find_params(kind, binding, objects).await {
                Ok(params) => params,
                Err(why) => {
                    let why = format!("failed to configure binding: {why}");
                    self.deny_misconfigured(policy, Some(binding), why);
                    continue;
                }
            };
            if params.is_empty() {
                continue;
            }
            // Not before a binding applies, and kept for the others: a conversion may call a
            // webhook.
            if versioned.is_none() {
                match self.lookup.convert_objects(&target, objects).await {
                    Ok(objects) => versioned = Some(objects),
                    Err(error) => {
                        let why = format!(
                            "failed to configure binding: failed to convert object version: {}",
                            error.message
                        );
                        self.deny_misconfigured(policy, Some(binding), why);
                        continue;
                    }
                }
            }
            if let Some(versioned) = &versioned {
                self.run_binding(policy, binding, versioned, &params, &mut annotations)
                    .await?;
            }
        }
        annotations.publish(&policy.name);
        Ok(())
    }

    async fn run_binding(
        &mut self,
        policy: &ValidatingPolicy,
        binding: &Binding,
        versioned: &Versioned,
        params: &[Value],
        annotations: &mut PolicyAnnotations,
    ) -> Result<(), ApiError> {
        let namespace = match self.namespace.take() {
            Some(namespace) => namespace,
            None => {
                let setup = self.setup;
                find_namespace_object(&self.lookup.attributes, &*setup.kinds, &*setup.objects)
                    .await?
            }
        };
        let authorizer = self.setup.authorizer.clone();
        let check = Arc::new(UserCheck::new(authorizer, self.request.user));
        for params in params {
            let input = Input {
                request: &versioned.request,
                object: &versioned.object,
                old_object: &versioned.old,
                namespace: &namespace,
                params,
                check: check.clone(),
                resource: request_resource(&versioned.request),
            };
            let evaluation = |allowance: &mut Allowance| policy.evaluate(&input, allowance);
            let outcome = check.evaluate(&mut self.allowance, evaluation).await;
            annotations.extend(self.apply_outcome(policy, binding, outcome));
        }
        self.namespace = Some(namespace);
        Ok(())
    }

    /// Records the decisions, and returns the audit annotations.
    fn apply_outcome(
        &mut self,
        policy: &ValidatingPolicy,
        binding: &Binding,
        outcome: Outcome,
    ) -> Vec<(String, String)> {
        let metrics = &self.setup.metrics;
        if let Some(verdict) = &outcome.conditions {
            metrics.record_conditions(&policy.name, self.request.operation, verdict);
        }
        let record = |decision: &Decision, action| {
            metrics.record(&policy.name, &binding.name, decision, action);
        };
        for (index, decision) in outcome.decisions.into_iter().enumerate() {
            match decision.verdict {
                // Upstream counts admissions only if they are ignored errors.
                Verdict::Admit => continue,
                Verdict::Ignored => {
                    record(&decision, Action::Allow);
                    continue;
                }
                Verdict::Deny | Verdict::Failed => {}
            }
            // Deny and Warn exclude each other by validation; Audit may accompany either.
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => {
                        record(&decision, Action::Deny);
                        self.denials
                            .push(Denial::new(policy, Some(binding), &decision));
                    }
                    "Warn" => {
                        record(&decision, Action::Warn);
                        self.request.warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                            policy.name, binding.name, decision.message
                        ));
                    }
                    "Audit" => {
                        record(&decision, Action::Audit);
                        annotate_failure(&policy.name, binding, index, &decision.message);
                    }
                    _ => {}
                }
            }
        }
        for decision in outcome.failed_annotations {
            record(&decision, Action::Deny);
            self.denials
                .push(Denial::new(policy, Some(binding), &decision));
        }
        outcome.annotations
    }

    fn deny_misconfigured(
        &mut self,
        policy: &ValidatingPolicy,
        binding: Option<&Binding>,
        message: String,
    ) {
        if policy.ignores_failure {
            tracing::debug!(policy = policy.name, message, "admission policy ignored");
            return;
        }
        let decision = Decision {
            // Upstream adds the denial whatever the `validationActions` are: with Warn alone, a
            // broken policy still rejects.
            verdict: Verdict::Failed,
            message,
            reason: String::new(),
            elapsed: std::time::Duration::ZERO,
        };
        self.denials.push(Denial::new(policy, binding, &decision));
    }
}
