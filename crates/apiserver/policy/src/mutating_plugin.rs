//! `MutatingAdmissionPolicy`: one mutation after another, each on the result of the earlier ones.

use crate::activation::Input;
use crate::authorizer::UserCheck;
use crate::conditions::request_resource;
use crate::denial::forbidden_error;
use crate::evaluate::Allowance;
use crate::exempt::is_exempt;
use crate::lookup::{Lookup, Versioned};
use crate::mutating::{MutatingPolicy, Mutation, Patch};
use crate::namespace::find_namespace_object;
use crate::plugin::PolicySetup;
use crate::source::{Binding, Hook, PolicySource};
use api_meta::{ApiError, Cause, Meta, Reason};
use api_patch::json_patch;
use apiserver_request::{Admission, AdmissionRequest, Operation};
use apiserver_webhook::{
    GroupVersionKind, GroupVersionResource, ReviewTarget, bound_mutation, convert_back, with_type,
};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// The plugin.
pub struct MutatingPolicies {
    setup: PolicySetup,
    /// `None` if the feature gate is off.
    source: Option<Arc<PolicySource<MutatingPolicy>>>,
}

impl MutatingPolicies {
    /// Creates the plugin and observes policies and bindings if the feature gate is on.
    pub fn new(setup: PolicySetup, is_enabled: bool) -> Self {
        let observe = || {
            PolicySource::observe(
                &*setup.objects,
                "mutatingadmissionpolicies",
                "mutatingadmissionpolicybindings",
                MutatingPolicy::compile,
            )
        };
        let source = is_enabled.then(observe);
        MutatingPolicies { setup, source }
    }
}

#[async_trait::async_trait]
impl Admission for MutatingPolicies {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let Some(source) = &self.source else {
            return Ok(());
        };
        // A deletion has no object to mutate.
        let deletes = request.operation == Operation::Delete;
        if deletes || is_exempt(request.group, request.resource) {
            return Ok(());
        }
        // Fails closed: without the first list, no policy would apply and writes would pass
        // unmutated.
        if !self.setup.objects.caches_ready() {
            return Err(forbidden_error(request, "not yet ready to handle request"));
        }
        let hooks = source.current_hooks();
        if hooks.is_empty() {
            return Ok(());
        }
        let mut pass = Pass {
            setup: &self.setup,
            lookup: self.setup.look_up(request),
            user_check: Arc::new(UserCheck::new(self.setup.authorizer.clone(), request.user)),
            namespace: Value::Null,
            allowance: Allowance::new(),
            versioned: None,
            errors: Vec::new(),
        };
        let invocations = pass.collect_invocations(request, &hooks).await;
        if !invocations.is_empty() {
            pass.run_invocations(request, &invocations).await?;
        }
        // After all mutations: upstream collects the errors of every policy, and lists them as
        // causes.
        match pass.errors.first() {
            Some(first) => Err(build_error(request, first, &pass.errors)),
            None => Ok(()),
        }
    }
}

/// The evaluation of a policy for one binding and parameter.
struct Invocation {
    policy: Arc<MutatingPolicy>,
    binding: Arc<Binding>,
    params: Value,
    target: ReviewTarget,
}

impl Invocation {
    // The parts of upstream's `keyFor`: one policy is invoked again for the same binding and
    // parameter only.
    fn id(&self) -> String {
        let params = (self.params.namespace(), self.params.name());
        let (policy, binding) = (&self.policy.name, &self.binding.name);
        format!("{policy}/{binding}/{}/{}", params.0, params.1)
    }
}

/// The error of a policy that does not ignore failures.
struct PolicyError {
    message: String,
    reason: Reason,
}

/// The effect of an invocation.
enum Effect {
    /// The match conditions do not hold, or can't be evaluated.
    Skipped,
    /// Mutations were applied; the flag tells whether they have changed the object.
    Applied(bool),
    /// No mutation could be applied.
    Nothing,
}

/// One pass over the policies.
struct Pass<'a> {
    setup: &'a PolicySetup,
    lookup: Lookup<'a>,
    user_check: Arc<UserCheck>,
    namespace: Value,
    allowance: Allowance,
    /// The objects in the version of the last invocation.
    versioned: Option<(ReviewTarget, Versioned)>,
    errors: Vec<PolicyError>,
}

impl Pass<'_> {
    fn add_error(
        &mut self,
        policy: &MutatingPolicy,
        binding: Option<&Binding>,
        reason: Reason,
        why: &str,
    ) {
        // `failurePolicy: Ignore` covers errors of the configuration as well as those of
        // expressions.
        if policy.ignores_failure {
            tracing::debug!(policy = policy.name, why, "admission policy ignored");
            return;
        }
        let name = &policy.name;
        let message = match binding {
            Some(binding) => {
                let binding = &binding.name;
                format!("policy '{name}' with binding '{binding}' denied request: {why}")
            }
            // Upstream prints the name with `%q` here, and with single quotes above.
            None => format!("policy {name:?} denied request: {why}"),
        };
        self.errors.push(PolicyError { message, reason });
    }

    /// Matches all policies before the first mutation: as upstream, a mutation has no influence on
    /// which policies apply.
    async fn collect_invocations(
        &mut self,
        request: &AdmissionRequest<'_>,
        hooks: &[Hook<MutatingPolicy>],
    ) -> Vec<Invocation> {
        let objects = (&request.object, request.old.as_ref());
        let mut invocations = Vec::new();
        for hook in hooks {
            let policy = &hook.policy;
            let found = self.lookup.find_target(&policy.constraints, objects).await;
            let target = match found {
                Ok(Some(target)) => target,
                Ok(None) => continue,
                Err(error) => {
                    let why = format!("failed to configure policy: {}", error.message);
                    self.add_error(policy, None, Reason::Forbidden, &why);
                    continue;
                }
            };
            for binding in &hook.bindings {
                let kind = policy.param_kind.as_ref();
                let found = self.lookup.find_params(kind, binding, objects).await;
                match found {
                    Ok(all) => invocations.extend(all.into_iter().map(|params| Invocation {
                        policy: policy.clone(),
                        binding: binding.clone(),
                        params,
                        target: target.clone(),
                    })),
                    Err(why) => {
                        let why = format!("failed to configure binding: {why}");
                        self.add_error(policy, Some(binding), Reason::Forbidden, &why);
                    }
                }
            }
        }
        invocations
    }

    async fn run_invocations(
        &mut self,
        request: &mut AdmissionRequest<'_>,
        invocations: &[Invocation],
    ) -> Result<(), ApiError> {
        let state = &mut request.reinvocation;
        if state.is_second_pass() && state.policies.is_changed_since(&request.object) {
            // In-tree plugins or webhooks have changed the object since the first pass.
            state.policies.require_reinvocation();
        }
        // Not before a policy applies, because it may read the store. A missing namespace fails the
        // request whatever the failure policy.
        let setup = self.setup;
        self.namespace =
            find_namespace_object(&self.lookup.attributes, &*setup.kinds, &*setup.objects).await?;
        let mut is_applied = false;
        for invocation in invocations {
            let id = invocation.id();
            let state = &request.reinvocation;
            // The second pass calls only policies with `IfNeeded` after whose call the object has
            // changed.
            if state.is_second_pass() && !state.policies.is_due(&id) {
                continue;
            }
            let effect = self.run_invocation(request, invocation).await?;
            let state = &mut request.reinvocation;
            match effect {
                Effect::Skipped => continue,
                Effect::Nothing => {}
                Effect::Applied(is_changed) => {
                    is_applied = true;
                    if is_changed {
                        // Earlier policies have not seen this change.
                        state.policies.require_reinvocation();
                    }
                }
            }
            if invocation.policy.is_reinvocable {
                state.policies.record_invoked(&id);
            }
        }
        let (state, object) = (&mut request.reinvocation, &request.object);
        if is_applied {
            // As upstream, also if the mutations have set what was there already.
            state.policies.require_reinvocation();
            state.request();
        }
        // The next pass compares with this to find changes of other plugins.
        state.policies.record_output(object);
        Ok(())
    }

    async fn take_versioned(
        &mut self,
        request: &AdmissionRequest<'_>,
        target: &ReviewTarget,
    ) -> Result<Versioned, ApiError> {
        match self.versioned.take() {
            // Most policies match in one version: the explicit copies of both objects are made once
            // for them.
            Some((known, versioned)) if known == *target => Ok(versioned),
            _ => {
                let objects = (&request.object, request.old.as_ref());
                self.lookup.convert_objects(target, objects).await
            }
        }
    }

    async fn run_invocation(
        &mut self,
        request: &mut AdmissionRequest<'_>,
        invocation: &Invocation,
    ) -> Result<Effect, ApiError> {
        let Invocation {
            policy,
            binding,
            target,
            ..
        } = invocation;
        let mut versioned = match self.take_versioned(request, target).await {
            Ok(versioned) => versioned,
            Err(error) => {
                let why = format!("failed to configure policy: {}", error.message);
                self.add_error(policy, None, Reason::Forbidden, &why);
                return Ok(Effect::Skipped);
            }
        };
        let matched = {
            let input = build_input(&self.user_check, &self.namespace, &versioned, invocation);
            let evaluation = |allowance: &mut Allowance| policy.match_conditions(&input, allowance);
            let check = &self.user_check;
            check.evaluate(&mut self.allowance, evaluation).await
        };
        if let Some(verdict) = &matched {
            let metrics = &self.setup.metrics;
            metrics.record_conditions(&policy.name, request.operation, verdict);
        }
        let effect = match matched.map_or(Ok(true), |verdict| verdict.holds) {
            Ok(true) => {
                let effect = self.run_mutations(request, invocation, &mut versioned);
                effect.await?
            }
            Ok(false) => Effect::Skipped,
            Err(why) => {
                self.add_error(policy, Some(binding), Reason::Invalid, &why);
                Effect::Skipped
            }
        };
        self.versioned = Some((target.clone(), versioned));
        Ok(effect)
    }

    async fn run_mutations(
        &mut self,
        request: &mut AdmissionRequest<'_>,
        invocation: &Invocation,
        versioned: &mut Versioned,
    ) -> Result<Effect, ApiError> {
        let (policy, binding) = (&invocation.policy, &invocation.binding);
        let (mut is_applied, mut is_changed) = (false, false);
        for mutation in &policy.mutations {
            // As upstream, no patch is computed without an object.
            if !versioned.canonical.is_object() {
                break;
            }
            let begun = Instant::now();
            let mutated = self.run_mutation(invocation, mutation, versioned).await;
            let error = mutated.as_ref().err().map(String::as_str);
            let (metrics, elapsed) = (&self.setup.metrics, begun.elapsed());
            metrics.record_mutation(&policy.name, &binding.name, error, elapsed);
            match mutated {
                Ok((object, warning)) => {
                    is_applied = true;
                    request.warnings.extend(warning);
                    if object != versioned.canonical {
                        is_changed = true;
                        let (kinds, resource) = (&self.setup.kinds, &invocation.target.0);
                        let subresource = self.lookup.attributes.subresource;
                        versioned.object = kinds.explicit_object(resource, subresource, &object);
                        versioned.canonical = object;
                    }
                }
                Err(why) => self.add_error(policy, Some(binding), Reason::Invalid, &why),
            }
        }
        // Once for all mutations of a policy: converting back may call a webhook.
        if is_changed {
            let (target, object) = (&invocation.target, versioned.canonical.clone());
            self.lookup
                .versions
                .replace_object(&target.1, object.clone());
            let attributes = &self.lookup.attributes;
            request.object = convert_back(&*self.setup.kinds, attributes, target, object).await?;
        }
        Ok(match is_applied {
            true => Effect::Applied(is_changed),
            false => Effect::Nothing,
        })
    }

    /// Applies a mutation; returns the object in canonical form, and a warning.
    async fn run_mutation(
        &mut self,
        invocation: &Invocation,
        mutation: &Mutation,
        versioned: &Versioned,
    ) -> Result<(Value, Option<String>), String> {
        let (setup, subresource) = (self.setup, self.lookup.attributes.subresource);
        // Copies of a large object take time that the cost of the expression does not count.
        self.allowance
            .charge_total(count_values(&versioned.object))?;
        let input = build_input(&self.user_check, &self.namespace, versioned, invocation);
        let (policy, (resource, kind)) = (&invocation.policy, &invocation.target);
        // Options of a connection have no schema in OpenAPI, by which upstream merges.
        let is_mergeable = self.lookup.attributes.operation != Operation::Connect;
        let evaluation = |allowance: &mut Allowance| {
            let patch = policy.compute_patch(mutation, &input, allowance)?;
            let before = &versioned.canonical;
            let mut object = match patch {
                Patch::Partial(_) if !is_mergeable => return Err(untyped_error(kind)),
                Patch::Partial(partial) => {
                    merge_partial(setup, resource, subresource, before, partial)
                        .map_err(|why| format!("error applying patch: {why}"))?
                }
                Patch::Operations(operations) => {
                    // Upstream encodes the typed object, so that paths to empty fields such as
                    // `/status` exist.
                    let explicit = versioned.object.clone();
                    match json_patch(explicit, operations.to_string().as_bytes()) {
                        Ok(object) => {
                            setup
                                .patches
                                .decode_patched(resource, subresource, object)?
                        }
                        // A failed test is a condition that does not hold.
                        Err(error) if error.to_string().ends_with("test failed") => before.clone(),
                        Err(error) => return Err(format!("JSON Patch: {error}")),
                    }
                }
            };
            setup
                .kinds
                .default_object(resource, subresource, &mut object);
            // The same bounds as for webhooks: a policy must not move the object or set metadata of
            // the server.
            let warning = bound_mutation(before, &mut object)
                .map_err(|field| format!("{field} may not be changed"))?;
            Ok((object, warning))
        };
        let check = &self.user_check;
        check.evaluate(&mut self.allowance, evaluation).await
    }
}

fn build_input<'v>(
    check: &Arc<UserCheck>,
    namespace: &'v Value,
    versioned: &'v Versioned,
    invocation: &'v Invocation,
) -> Input<'v> {
    Input {
        request: &versioned.request,
        object: &versioned.object,
        old_object: &versioned.old,
        namespace,
        params: &invocation.params,
        check: check.clone(),
        resource: request_resource(&versioned.request),
    }
}

fn untyped_error(kind: &GroupVersionKind) -> String {
    let (version, kind) = (kind.api_version(), &kind.kind);
    // Upstream writes the core group as an empty name.
    let slash = if version.contains('/') { "" } else { "/" };
    format!(
        "error applying patch: failed to convert patch object to typed object: \
         no corresponding type for {slash}{version}, Kind={kind}"
    )
}

fn merge_partial(
    setup: &PolicySetup,
    resource: &GroupVersionResource,
    subresource: &str,
    before: &Value,
    partial: Value,
) -> Result<Value, String> {
    let text = |field: &str| {
        before
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    // Expressions build an `Object` without its type. Upstream sets that of the live object, which
    // the merge requires to be equal.
    let partial = with_type(partial, text("apiVersion"), text("kind"));
    setup
        .patches
        .merge_partial(resource, subresource, before, &partial)
}

/// Counts the values of an object, whose depth is bounded.
fn count_values(value: &Value) -> u64 {
    1 + match value {
        Value::Array(elements) => elements.iter().map(count_values).sum(),
        Value::Object(fields) => fields.values().map(count_values).sum::<u64>(),
        _ => 0,
    }
}

/// Builds the error of a request. As upstream, it has the message of the first policy alone.
fn build_error(
    request: &AdmissionRequest<'_>,
    first: &PolicyError,
    errors: &[PolicyError],
) -> ApiError {
    let mut error = forbidden_error(request, &first.message);
    // Without the prefix of a 403, unlike the denial of a validating policy.
    error.message = first.message.clone();
    error.reason = first.reason;
    if let Some(details) = &mut error.details {
        details.causes = errors
            .iter()
            .map(|error| Cause {
                reason: String::new(),
                message: error.message.clone(),
                field: String::new(),
            })
            .collect();
    }
    error
}
