//! The registry and its options.

use crate::allocators::Allocators;
use crate::services::finding_queue::FindingQueue;
use crate::step_metrics::{ADMISSION, Step, StepLabels, StepMetrics};
use crate::write::Write;
use api_kinds::Resource;
use api_meta::ApiError;
use api_strategy::DisabledFields;
use apiserver_authn::TokenIssuer;
use apiserver_cache::{Caches, ResourceCache};
use apiserver_request::{Admission, AdmissionRequest};
use apiserver_storage::{LatencyMetrics, Store};
use std::sync::Arc;
use std::time::Instant;

/// Options of a registry.
pub struct RegistryOptions {
    /// `--event-ttl` in seconds.
    pub event_ttl: i64,
    /// Admission plugins in order.
    pub admission: Vec<Arc<dyn Admission>>,
    /// Issues ServiceAccount tokens; `None` rejects TokenRequests.
    pub tokens: Option<Arc<TokenIssuer>>,
    /// Allocators of cluster IPs and node ports.
    pub services: Allocators,
    /// Fields of features that are turned off.
    pub disabled_fields: DisabledFields,
}

/// Reads and writes of all kinds.
pub struct Registry {
    pub(crate) store: Store,
    pub(crate) caches: Arc<Caches>,
    pub(crate) options: RegistryOptions,
    admission: LatencyMetrics,
    steps: StepMetrics,
    pub(crate) findings: FindingQueue,
}

impl Registry {
    /// Creates a registry over a store and the watch caches that it feeds.
    pub fn new(store: Store, caches: Arc<Caches>, options: RegistryOptions) -> Arc<Self> {
        Arc::new(Registry {
            store,
            caches,
            options,
            admission: LatencyMetrics::new(&ADMISSION),
            steps: StepMetrics::default(),
            findings: FindingQueue::new(),
        })
    }

    /// Returns the watch caches.
    pub fn caches(&self) -> &Arc<Caches> {
        &self.caches
    }

    /// Returns the durations of the plugins' mutating phase, by name.
    pub fn admission_latencies(&self) -> &LatencyMetrics {
        &self.admission
    }

    /// Returns the durations of the steps of admission.
    pub fn admission_steps(&self) -> &StepMetrics {
        &self.steps
    }

    /// Returns the watch cache of a write's resource.
    pub(crate) fn write_cache(&self, write: &Write) -> Result<Arc<ResourceCache>, ApiError> {
        self.caches
            .find_cache(&write.resource.group, &write.resource.plural)
            .ok_or_else(ApiError::no_such_path)
    }

    /// Returns the version in which the write's objects are stored.
    pub(crate) fn storage_version(&self, write: &Write) -> Arc<Resource> {
        match self.write_cache(write) {
            Ok(cache) => cache.kind().resource.clone(),
            // The resource was removed during the write, and with it the description of its stored
            // version.
            Err(_) => write.resource.clone(),
        }
    }

    /// Returns the seconds after which objects of the resource expire.
    pub(crate) fn key_ttl(&self, write: &Write) -> Option<i64> {
        let resource = &write.resource;
        // By the group as well: a custom resource may be called events, too.
        let are_events = resource.plural == "events"
            && (resource.group.is_empty() || resource.group == "events.k8s.io");
        are_events.then_some(self.options.event_ttl)
    }

    /// Runs the mutating plugins, and again if a webhook has changed the object.
    pub async fn run_mutating(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let begun = Instant::now();
        let mut admitted = self.run_mutating_once(request).await;
        if admitted.is_ok() && request.reinvocation.begin_second_pass() {
            admitted = self.run_mutating_once(request).await;
        }
        let labels = StepLabels {
            step: Step::Admit,
            operation: request.operation,
            rejected: admitted.is_err(),
        };
        self.steps.record(labels, begun.elapsed());
        admitted.map_err(|error| with_warnings(error, request))
    }

    async fn run_mutating_once(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        for plugin in &self.options.admission {
            let begun = Instant::now();
            let admitted = plugin.admit(request).await;
            // Before the result is returned: rejections belong into the histogram, too.
            self.admission.record_duration(plugin.name(), begun);
            admitted?;
        }
        Ok(())
    }

    /// Runs the validating plugins.
    pub async fn run_validating(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let begun = Instant::now();
        let validated = self.run_validating_plugins(request).await;
        let labels = StepLabels {
            step: Step::Validate,
            operation: request.operation,
            rejected: validated.is_err(),
        };
        self.steps.record(labels, begun.elapsed());
        validated.map_err(|error| with_warnings(error, request))
    }

    async fn run_validating_plugins(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        for plugin in &self.options.admission {
            plugin.validate(request).await?;
        }
        Ok(())
    }
}

/// Adds the warnings so far to a rejection: they may say how to avoid it.
fn with_warnings(mut error: ApiError, request: &AdmissionRequest<'_>) -> ApiError {
    error.warnings.extend(request.warnings.take());
    error
}
