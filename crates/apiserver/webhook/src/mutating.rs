//! `MutatingAdmissionWebhook`: one webhook after another, each on the result of the earlier ones.

use crate::annotate::{
    CallIndex, annotate_mutation, annotate_mutation_failure, annotate_patch, annotate_response,
};
use crate::attributes::Attributes;
use crate::dispatch::{call_hook, check_verdict, conclude_call};
use crate::hook::Hook;
use crate::matching::Invocation;
use crate::metrics::{CallLabels, Phase};
use crate::outcome::HookError;
use crate::patch::{PatchTarget, apply_response};
use crate::plugin::{Plugin, Setup};
use crate::select::{HookCall, Lookups, select_hook};
use crate::versioned::{VersionedObjects, convert_back};
use api_meta::ApiError;
use apiserver_request::{Admission, AdmissionRequest};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// The plugin.
pub struct MutatingWebhooks(Plugin);

impl MutatingWebhooks {
    /// Creates the plugin and observes the configurations.
    pub fn new(setup: Setup) -> Self {
        MutatingWebhooks(Plugin::new(setup, "mutatingwebhookconfigurations"))
    }
}

#[async_trait::async_trait]
impl Admission for MutatingWebhooks {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let hooks = self.0.candidate_hooks(request)?;
        if hooks.is_empty() {
            return Ok(());
        }
        let calls = &mut request.reinvocation;
        if calls.is_second_pass() && calls.webhooks.is_changed_since(&request.object) {
            // In-tree plugins have changed the object in the second pass.
            calls.webhooks.require_reinvocation();
        }
        let mut pass = Pass {
            setup: &self.0.setup,
            attributes: self.0.attributes(request),
            lookups: Lookups::default(),
        };
        let round = usize::from(request.reinvocation.is_second_pass());
        for (index, hook) in hooks.iter().enumerate() {
            let call = CallIndex { round, index };
            pass.run_hook(request, hook, call).await?;
        }
        let object = &request.object;
        request.reinvocation.webhooks.record_output(object);
        Ok(())
    }
}

/// An object that a webhook has changed.
struct ChangedObject {
    /// In the version of the request.
    of_request: Value,
    /// In the version of the webhook.
    of_webhook: Value,
}

/// One pass over the webhooks.
struct Pass<'a> {
    setup: &'a Setup,
    attributes: Attributes<'a>,
    lookups: Lookups,
}

impl Pass<'_> {
    async fn run_hook(
        &mut self,
        request: &mut AdmissionRequest<'_>,
        hook: &Arc<Hook>,
        index: CallIndex,
    ) -> Result<(), ApiError> {
        let (attributes, lookups) = (&self.attributes, &mut self.lookups);
        // With the object as earlier webhooks have left it: their labels may select or exempt it.
        let hook_call = HookCall {
            hook,
            phase: Phase::Admit,
        };
        let selected = select_hook(self.setup, request, attributes, hook_call, lookups);
        let Some((invocation, objects)) = selected.await? else {
            return Ok(());
        };
        // In the second pass, no webhook is called for the first time.
        let calls = &request.reinvocation;
        if calls.is_second_pass() && !calls.webhooks.is_due(&hook.id) {
            return Ok(());
        }
        let call = CallLabels {
            name: hook.name.clone(),
            phase: Phase::Admit,
            operation: self.attributes.operation,
        };
        let begun = Instant::now();
        let result = self.call(request, &invocation, &objects, index).await;
        let mutated = matches!(result, Ok(Some(_)));
        annotate_mutation(index, hook, mutated);
        let concluded = conclude_call(self.setup, hook, &call, begun, result)?;
        if concluded.is_none() {
            annotate_mutation_failure(index, hook);
        }
        let changed = concluded.flatten();
        if let Some(changed) = changed {
            request.object = changed.of_request;
            let versions = &mut self.lookups.versions;
            versions.replace_object(&invocation.kind, changed.of_webhook);
            // In-tree plugins run again as well: they may have defaults for fields that this
            // webhook has added.
            request.reinvocation.request();
            request.reinvocation.webhooks.require_reinvocation();
        }
        // After the change is recorded: a webhook is not due because of its own change.
        if hook.is_reinvocable {
            request.reinvocation.webhooks.record_invoked(&hook.id);
        }
        Ok(())
    }

    /// Calls the webhook; returns the object if it was changed.
    async fn call(
        &self,
        request: &AdmissionRequest<'_>,
        invocation: &Invocation,
        objects: &VersionedObjects,
        index: CallIndex,
    ) -> Result<Option<ChangedObject>, HookError> {
        let (setup, attributes) = (self.setup, &self.attributes);
        let response = call_hook(setup, invocation, attributes, objects, Phase::Admit).await?;
        // Before the verdict: a denial may have warnings, too.
        annotate_response(&invocation.hook, &response);
        request.warnings.extend(response.warnings.iter().cloned());
        check_verdict(&invocation.hook, &response)?;
        let target = PatchTarget {
            hook: &invocation.hook.name,
            resource: &invocation.resource,
            subresource: attributes.subresource,
        };
        let Some(patched) = apply_response(&target, &*setup.kinds, &objects.object, &response)?
        else {
            return Ok(None);
        };
        annotate_patch(index, &invocation.hook, &response.patch);
        request.warnings.extend(patched.warning);
        // A patch that sets existing values must not start a second pass.
        if patched.object == objects.object {
            return Ok(None);
        }
        let mut object = patched.object;
        let (kinds, subresource) = (&*setup.kinds, attributes.subresource);
        // Later webhooks and the registry expect defaults in what the patch has added, such as a
        // container.
        kinds.default_object(&invocation.resource, subresource, &mut object);
        let target = (invocation.resource.clone(), invocation.kind.clone());
        let converted = convert_back(kinds, attributes, &target, object.clone()).await;
        Ok(Some(ChangedObject {
            of_request: converted.map_err(HookError::Internal)?,
            of_webhook: object,
        }))
    }
}
