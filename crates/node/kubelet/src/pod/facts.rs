//! The facts that plans and statuses are computed from.

use crate::pod::Nanos;
use crate::pod::memory::Memory;
use crate::pod::view::Observed;
use api_semantics::devices::claims_of_pod;
use k8s_openapi::api::core::v1::Pod;

/// The inputs of a plan.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) observed: &'a Observed,
    pub(crate) memory: &'a Memory,
    pub(crate) now: Nanos,
}

impl Facts<'_> {
    /// Returns whether the pod has claims whose devices are not released yet.
    pub(crate) fn holds_devices(&self) -> bool {
        !claims_of_pod(self.pod).is_empty() && !self.memory.devices_released
    }
}
