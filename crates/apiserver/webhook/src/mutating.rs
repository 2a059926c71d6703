//! `MutatingAdmissionWebhook`: one webhook after another, each on the result of the earlier ones.

use crate::attributes::Attributes;
use crate::dispatch::{call_hook, check_verdict, conclude_call};
use crate::hook::Hook;
use crate::labels::NamespaceLabels;
use crate::matching::Invocation;
use crate::metrics::{CallLabels, Phase};
use crate::outcome::HookError;
use crate::patch::{PatchTarget, apply_response};
use crate::plugin::{Plugin, Setup};
use crate::select::select_hook;
use crate::versioned::{VersionedObjects, convert_object, with_type};
use api_meta::ApiError;
use apiserver_request::{Admission, AdmissionRequest, Operation};
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
            namespace: NamespaceLabels::default(),
        };
        for hook in hooks.iter() {
            pass.run_hook(request, hook).await?;
        }
        let object = &request.object;
        request.reinvocation.webhooks.record_output(object);
        Ok(())
    }
}

/// One pass over the webhooks.
struct Pass<'a> {
    setup: &'a Setup,
    attributes: Attributes<'a>,
    namespace: NamespaceLabels,
}

impl Pass<'_> {
    async fn run_hook(
        &mut self,
        request: &mut AdmissionRequest<'_>,
        hook: &Arc<Hook>,
    ) -> Result<(), ApiError> {
        let (attributes, namespace) = (&self.attributes, &mut self.namespace);
        let selected = select_hook(self.setup, request, attributes, hook, namespace).await?;
        let Some((invocation, objects)) = selected else {
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
        let result = self.call(request, &invocation, &objects).await;
        let changed = conclude_call(self.setup, hook, &call, begun, result)?.flatten();
        if let Some(object) = changed {
            request.object = object;
            request.reinvocation.request();
            request.reinvocation.webhooks.require_reinvocation();
        }
        if hook.is_reinvocable {
            request.reinvocation.webhooks.record_invoked(&hook.id);
        }
        Ok(())
    }

    /// Calls the webhook; returns the object in the request's version if it was changed.
    async fn call(
        &self,
        request: &AdmissionRequest<'_>,
        invocation: &Invocation,
        objects: &VersionedObjects,
    ) -> Result<Option<Value>, HookError> {
        let (setup, attributes) = (self.setup, &self.attributes);
        let response = call_hook(setup, invocation, attributes, objects, Phase::Admit).await?;
        request.warnings.extend(response.warnings.iter().cloned());
        check_verdict(&invocation.hook, &response)?;
        // The options of a connection are not read from the object, so that a patch of it would
        // have no effect.
        let fixed = attributes.operation == Operation::Connect;
        let object = if fixed { &Value::Null } else { &objects.object };
        let target = PatchTarget {
            hook: &invocation.hook.name,
            resource: &invocation.resource,
            subresource: attributes.subresource,
        };
        let Some(patched) = apply_response(&target, &*setup.kinds, object, &response)? else {
            return Ok(None);
        };
        request.warnings.extend(patched.warning);
        if patched.object == objects.object {
            return Ok(None);
        }
        self.to_request_version(invocation, patched.object)
            .map(Some)
            .map_err(HookError::Internal)
    }

    fn to_request_version(
        &self,
        invocation: &Invocation,
        mut object: Value,
    ) -> Result<Value, ApiError> {
        let (kinds, attributes) = (&*self.setup.kinds, &self.attributes);
        let subresource = attributes.subresource;
        kinds.default_object(&invocation.resource, subresource, &mut object);
        if invocation.kind == attributes.kind {
            return Ok(object);
        }
        let (from, to) = (&invocation.resource, &attributes.resource);
        let mut object = convert_object(kinds, object, from, to)?;
        kinds.default_object(to, subresource, &mut object);
        let kind = &attributes.kind;
        Ok(with_type(object, &kind.api_version(), &kind.kind))
    }
}
