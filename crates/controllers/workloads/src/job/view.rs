//! Inputs of a reconcile of a Job.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Meta, pods as pod_state};

/// Finalizer of pods that are not counted yet.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Inputs of one reconcile.
pub struct View<'a> {
    /// The Job.
    pub job: &'a Job,
    /// The Job's spec.
    pub spec: &'a JobSpec,
    /// The status before the reconcile.
    pub old: JobStatus,
    /// The Job's pods.
    pub pods: Vec<Arc<Pod>>,
    /// Current time.
    pub now: Timestamp,
}

impl View<'_> {
    /// Returns whether completions are indexed.
    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    /// Returns the number of concurrent pods.
    pub fn parallelism(&self) -> usize {
        usize::try_from(self.spec.parallelism.unwrap_or(1)).unwrap_or(0)
    }

    /// Returns the desired completions; None for a work queue.
    pub fn completions(&self) -> Option<usize> {
        self.spec
            .completions
            .map(|n| usize::try_from(n).unwrap_or(0))
    }

    /// Returns whether the Job is suspended: it may have no pods.
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// Returns whether a pod is replaced only after it has terminated.
    pub fn replaces_only_failed(&self) -> bool {
        match self.spec.pod_replacement_policy.as_deref() {
            Some(policy) => policy == "Failed",
            // With a failure policy the reason of a pod's end must be known before it is replaced.
            None => self.spec.pod_failure_policy.is_some(),
        }
    }

    /// Returns pods that are running or pending.
    pub fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.pods
            .iter()
            .filter(|p| pod_state::is_active(p))
            .cloned()
            .collect()
    }

    /// Returns the number of pods that are being deleted.
    pub fn count_terminating(&self) -> usize {
        self.pods
            .iter()
            .filter(|p| pod_state::is_terminating(p))
            .count()
    }

    /// Returns whether the pod counts as failed.
    pub fn has_failed(&self, pod: &Pod) -> bool {
        let phase = pod_state::phase(pod);
        phase == "Failed"
            || (!self.replaces_only_failed() && pod.is_deleting() && phase != "Succeeded")
    }

    /// Returns a condition that was true before the reconcile.
    pub fn find_true_condition(&self, kind: &str) -> Option<&JobCondition> {
        let all = self.old.conditions.iter().flatten();
        all.into_iter()
            .find(|c| c.type_ == kind && c.status == "True")
    }
}
