//! The steps of the bootstrap, as `/readyz` shows them.

use api_meta::ApiError;
use std::sync::atomic::{AtomicU8, Ordering};

/// A step of the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Cluster IPs and node ports of existing Services are allocated.
    Allocations,
    /// The system namespaces.
    Namespaces,
    /// Priority classes, flow control, the default ServiceCIDR.
    Objects,
    /// Roles and bindings.
    Rbac,
    /// The Service `kubernetes` and its endpoints.
    Service,
    /// The identity lease.
    Identity,
    /// An APIService for each local group version.
    ApiServices,
}

/// The completed steps.
#[derive(Debug, Default)]
pub struct Steps(AtomicU8);

impl Steps {
    /// Returns whether the step was completed.
    pub fn is_done(&self, step: Step) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << step as u8) != 0
    }

    /// Does the work of a step, and records that it is done.
    pub(super) async fn complete_step<T>(
        &self,
        step: Step,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<(), ApiError> {
        work.await?;
        self.mark_done(step);
        Ok(())
    }

    /// Records that a step is done.
    pub fn mark_done(&self, step: Step) {
        // Relaxed, because no other data is read on the strength of a bit.
        self.0.fetch_or(1 << step as u8, Ordering::Relaxed);
    }
}
