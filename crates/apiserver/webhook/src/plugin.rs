//! The base of both plugins: the parts they are built from, and readiness.

use crate::attributes::Attributes;
use crate::conditions::ConditionCompiler;
use crate::hook::Hook;
use crate::kinds::Kinds;
use crate::metrics::WebhookMetrics;
use crate::rules::is_exempt;
use crate::source::Source;
use api_meta::ApiError;
use apiserver_request::{AdmissionRequest, GroupResource, Objects};
use apiserver_webhook_client::Transport;
use std::sync::Arc;

const GROUP: &str = "admissionregistration.k8s.io";

/// The parts of the server that a plugin uses.
pub struct Setup {
    /// The watch caches.
    pub objects: Arc<dyn Objects>,
    /// The served kinds.
    pub kinds: Arc<dyn Kinds>,
    /// Connections to webhooks.
    pub transport: Arc<Transport>,
    /// Metrics.
    pub metrics: Arc<WebhookMetrics>,
    /// Names of webhooks that are not called.
    pub skipped: Vec<String>,
    /// Compiles match conditions.
    pub conditions: Arc<dyn ConditionCompiler>,
}

/// The state of one plugin.
pub struct Plugin {
    pub(crate) setup: Setup,
    source: Arc<Source>,
}

impl Plugin {
    /// Observes the configurations of a resource.
    pub fn new(setup: Setup, configurations: &'static str) -> Self {
        let source = Arc::new(Source::new(setup.conditions.clone(), &setup.skipped));
        setup
            .objects
            .observe(&GroupResource::new(GROUP, configurations), source.clone());
        Plugin { setup, source }
    }

    /// Returns the webhooks that may be called for a request; none for exempt kinds.
    ///
    /// # Errors
    /// The caches have no first list yet, so that the webhooks are unknown.
    pub fn candidate_hooks(
        &self,
        request: &AdmissionRequest<'_>,
    ) -> Result<Arc<Vec<Arc<Hook>>>, ApiError> {
        if is_exempt(request.kind, request.group) {
            return Ok(Arc::default());
        }
        // Fails closed: a restart must not open a gap in which no webhook is called.
        if !self.setup.objects.caches_ready() {
            let why = "not yet ready to handle request";
            return Err(ApiError::forbidden(
                request.group,
                request.resource,
                request.name,
                why,
            ));
        }
        Ok(self.source.current_hooks())
    }

    /// Returns the facts of a request.
    pub fn attributes<'a>(&self, request: &AdmissionRequest<'a>) -> Attributes<'a> {
        Attributes::new(request, &*self.setup.kinds)
    }
}
