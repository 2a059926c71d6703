//! `ValidatingAdmissionWebhook`: all webhooks at once, on the final object.

use crate::annotate::{annotate_response, annotate_validation_failure};
use crate::attributes::Attributes;
use crate::dispatch::{call_hook, check_verdict, conclude_call};
use crate::matching::Invocation;
use crate::metrics::{CallLabels, Phase};
use crate::plugin::{Plugin, Setup};
use crate::select::{Lookups, select_hook};
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
            let selected = (hook, Phase::Validating);
            let matched = select_hook(setup, request, &attributes, selected, &mut lookups);
            if let Some((invocation, objects)) = matched.await? {
                let (setup, attributes) = (setup, &attributes);
                let call = async move {
                    let concluded =
                        run_call(setup, request, attributes, invocation, objects).await?;
                    if concluded.is_none() {
                        annotate_validation_failure(index, hook);
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

/// Calls a webhook; returns None if the call has failed and the policy ignores that.
async fn run_call(
    setup: &Setup,
    request: &AdmissionRequest<'_>,
    attributes: &Attributes<'_>,
    invocation: Invocation,
    objects: Arc<VersionedObjects>,
) -> Result<Option<()>, ApiError> {
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
    conclude_call(setup, &hook, &call, begun, result)
}
