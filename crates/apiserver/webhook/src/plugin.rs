//! The base of both plugins: the parts they are built from, readiness, and checks of configurations.

use crate::attributes::Attributes;
use crate::conditions::{ConditionCompiler, NoConditions, UNSUPPORTED};
use crate::hook::{Hook, has_conditions};
use crate::kinds::Kinds;
use crate::metrics::WebhookMetrics;
use crate::rules::is_exempt;
use crate::source::Source;
use crate::transport::Transport;
use api_meta::{ApiError, Cause};
use apiserver_request::{AdmissionRequest, GroupResource, Objects, Operation};
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
    /// Compiles match conditions; without it, configurations that have some are rejected.
    pub conditions: Option<Arc<dyn ConditionCompiler>>,
}

/// The state of one plugin.
pub struct Plugin {
    pub(crate) setup: Setup,
    source: Arc<Source>,
    configurations: &'static str,
}

impl Plugin {
    /// Observes the configurations of a resource.
    pub fn new(setup: Setup, configurations: &'static str) -> Self {
        let compiler: Arc<dyn ConditionCompiler> = match &setup.conditions {
            Some(compiler) => compiler.clone(),
            None => Arc::new(NoConditions),
        };
        let source = Arc::new(Source::new(compiler, &setup.skipped));
        setup
            .objects
            .observe(&GroupResource::new(GROUP, configurations), source.clone());
        Plugin {
            setup,
            source,
            configurations,
        }
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

    /// Rejects a configuration with match conditions that would not be evaluated.
    ///
    /// # Errors
    /// 422
    pub fn check_configuration(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let written = matches!(request.operation, Operation::Create | Operation::Update)
            && request.group == GROUP
            && request.resource == self.configurations;
        // Stored conditions stay writable: their webhooks fail according to their policy.
        let is_new = || request.old.as_ref().is_none_or(|old| !has_conditions(old));
        if !written
            || self.setup.conditions.is_some()
            || !has_conditions(&request.object)
            || !is_new()
        {
            return Ok(());
        }
        let cause = Cause {
            reason: "FieldValueForbidden".into(),
            message: format!("Forbidden: {UNSUPPORTED}"),
            field: "webhooks.matchConditions".into(),
        };
        Err(ApiError::invalid(
            GROUP,
            request.kind,
            request.name,
            vec![cause],
        ))
    }
}
