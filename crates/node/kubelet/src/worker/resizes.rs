//! Resizes of containers that are in progress.

use crate::pod::Nanos;
use k8s_openapi::api::core::v1::ResourceRequirements;
use std::collections::{BTreeMap, BTreeSet};

/// Resources that were set on running containers.
#[derive(Debug, Default)]
pub(super) struct Resizes {
    pub(crate) applied: BTreeMap<String, ResourceRequirements>,
    pub(crate) busy: BTreeSet<String>,
    /// Time of the next try after a failure.
    pub(super) again: Option<Nanos>,
}

impl Resizes {
    /// Records the resources that a container has now.
    pub(super) fn record(&mut self, name: String, resources: ResourceRequirements) {
        self.applied.insert(name, resources);
    }
}
