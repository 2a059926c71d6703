//! `ValidatingAdmissionWebhook`: all webhooks at once, on the final object.

use crate::annotate::{annotate_response, annotate_validation_failure};
use crate::attributes::Attributes;
use crate::dispatch::{call_hook, check_verdict, conclude_call};
use crate::matching::Invocation;
use crate::metrics::{CallLabels, Phase};
use crate::plugin::{Plugin, Setup};
use crate::select::{HookCall, Lookups, select_hook};
use crate::versioned::VersionedObjects;
use api_meta::ApiError;
use apiserver_request::{Admission, AdmissionRequest};
use futures::FutureExt;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Instant;

/// The plugin.
pub struct ValidatingWebhooks(Plugin);

impl ValidatingWebhooks {
    /// Creates the plugin and observes the configurations.
    pub fn new(setup: Setup) -> Self {
        ValidatingWebhooks(Plugin::new(setup, "validatingwebhookconfigurations"))
    }
}

#[async_trait::async_trait]
impl Admission for ValidatingWebhooks {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let hooks = self.0.candidate_hooks(request)?;
        if hooks.is_empty() {
            return Ok(());
        }
        let setup = &self.0.setup;
        let attributes = self.0.attributes(request);
        let mut lookups = Lookups::default();
        let mut calls = Vec::new();
        // All are matched before one is called, so that a broken selector causes no calls.
        for (index, hook) in hooks.iter().enumerate() {
            let hook_call = HookCall {
                hook,
                phase: Phase::Validating,
            };
            let matched = select_hook(setup, request, &attributes, hook_call, &mut lookups);
            if let Some((invocation, objects)) = matched.await? {
                let (setup, attributes) = (setup, &attributes);
                let call = async move {
                    match run_call(setup, request, attributes, invocation, objects).await? {
                        CallOutcome::Allowed => {}
                        CallOutcome::FailedOpen => annotate_validation_failure(index, hook),
                    }
                    Ok(())
                };
                calls.push(call.boxed());
            }
        }
        // All are awaited: each may have a warning, and side effects that must not be cut off.
        let errors = join_all(calls).await;
        errors.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }
}

/// The outcome of a call after which the request continues.
enum CallOutcome {
    /// The webhook allows the request.
    Allowed,
    /// The call has failed, and the policy is Ignore.
    FailedOpen,
}

/// Calls a webhook.
async fn run_call(
    setup: &Setup,
    request: &AdmissionRequest<'_>,
    attributes: &Attributes<'_>,
    invocation: Invocation,
    objects: Arc<VersionedObjects>,
) -> Result<CallOutcome, ApiError> {
    let hook = invocation.hook.clone();
    let call = CallLabels {
        name: hook.name.clone(),
        phase: Phase::Validating,
        operation: attributes.operation,
    };
    let begun = Instant::now();
    let called = call_hook(setup, &invocation, attributes, &objects, Phase::Validating).await;
    let result = called.and_then(|response| {
        annotate_response(&hook, &response);
        request.warnings.extend(response.warnings.iter().cloned());
        check_verdict(&hook, &response)
    });
    let concluded = conclude_call(setup, &hook, &call, begun, result)?;
    Ok(concluded.map_or(CallOutcome::FailedOpen, |()| CallOutcome::Allowed))
}
