//! The registry's parts.

use crate::services::Allocators;
use crate::write::Write;
use api_meta::ApiError;
use apiserver_authn::TokenIssuer;
use apiserver_cache::{Caches, ResourceCache};
use apiserver_request::{Admission, AdmissionRequest};
use apiserver_storage::{Store, Timings};
use std::sync::Arc;
use std::time::Instant;

/// What a registry is made with.
pub struct RegistryOptions {
    /// `--event-ttl` in seconds.
    pub event_ttl: i64,
    /// Admission plugins in their order.
    pub admission: Vec<Arc<dyn Admission>>,
    /// Makes ServiceAccount tokens; `None` refuses TokenRequests.
    pub tokens: Option<Arc<TokenIssuer>>,
    /// Addresses and node ports of Services.
    pub services: Allocators,
}

/// Reads and writes of all kinds.
pub struct Registry {
    pub(crate) store: Store,
    pub(crate) caches: Arc<Caches>,
    pub(crate) options: RegistryOptions,
    admission: Timings,
}

/// Upstream's bounds for the time that an admission plugin takes, in seconds.
const ADMISSION: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

impl Registry {
    /// A registry over a store and the caches that it feeds.
    pub fn new(store: Store, caches: Arc<Caches>, options: RegistryOptions) -> Arc<Self> {
        Arc::new(Registry { store, caches, options, admission: Timings::new(&ADMISSION) })
    }

    /// The caches.
    pub fn caches(&self) -> &Arc<Caches> {
        &self.caches
    }

    /// How long admission plugins took, by name.
    pub fn admission_timings(&self) -> &Timings {
        &self.admission
    }

    /// The cache of a write's resource.
    pub(crate) fn cache(&self, write: &Write) -> Result<&Arc<ResourceCache>, ApiError> {
        self.caches.of(write.row.group, write.row.plural).ok_or_else(ApiError::no_such_path)
    }

    /// Seconds after which objects of the resource go by themselves.
    pub(crate) fn ttl(&self, write: &Write) -> Option<i64> {
        (write.row.plural == "events").then_some(self.options.event_ttl)
    }

    /// Runs the mutating half of admission.
    pub async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        for plugin in &self.options.admission {
            let begun = Instant::now();
            let admitted = plugin.admit(request).await;
            self.admission.add(plugin.name(), begun);
            admitted?;
        }
        Ok(())
    }

    /// Runs the validating half of admission.
    pub async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        for plugin in &self.options.admission {
            plugin.validate(request).await?;
        }
        Ok(())
    }
}
