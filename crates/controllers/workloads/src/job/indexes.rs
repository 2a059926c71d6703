//! Completion indexes: succeeded, failed, and pending ones.

use std::collections::{BTreeSet, HashSet};

use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Meta, pods as pod_state};

use super::failures::Failures;
use super::policy::{self, Verdict};
use super::view::View;

pub use intervals::Intervals;

mod intervals;

/// Annotation and label with a pod's index.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The state of all indexes.
#[derive(Debug, Default)]
pub struct Indexes {
    /// Succeeded indexes.
    pub succeeded: Intervals,
    /// Failed indexes, under `backoffLimitPerIndex`.
    pub failed: Intervals,
}

impl Indexes {
    /// Computes the state from the status and the pods.
    pub fn from_view(view: &View<'_>) -> Self {
        let total = view.completions().unwrap_or(0);
        let (mut succeeded, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for pod in &view.pods {
            let Some(index) = completion_index(pod).filter(|i| *i < total) else {
                continue;
            };
            if pod_state::phase(pod) == "Succeeded" {
                succeeded.insert(index);
            } else if view.has_failed(pod) && given_up(view, pod) {
                failed.insert(index);
            }
        }
        let known =
            |text: &Option<String>| Intervals::parse(text.as_deref().unwrap_or_default(), total);
        // The status counts as well: pods of completed indexes may be deleted already.
        let succeeded = known(&view.old.completed_indexes).union(&succeeded.into_iter().collect());
        let failed = known(&view.old.failed_indexes).union(&failed.into_iter().collect());
        Self {
            // An index that succeeded after all, for instance by a second pod, is not failed.
            failed: failed.minus(&succeeded),
            succeeded,
        }
    }

    /// Yields indexes that need a pod, in ascending order.
    pub fn pending_indexes(&self, view: &View<'_>) -> impl Iterator<Item = usize> + use<> {
        let busy: HashSet<usize> = view
            .pods
            .iter()
            .filter(|p| {
                pod_state::is_active(p)
                    // With podReplacementPolicy Failed a terminating pod holds its index until it
                    // has ended.
                    || (view.replaces_only_failed() && pod_state::is_terminating(p))
            })
            .filter_map(|p| completion_index(p))
            .collect();
        let settled = self.succeeded.union(&self.failed);
        settled
            .gaps(view.completions().unwrap_or(0))
            .filter(move |index| !busy.contains(index))
    }
}

/// Returns whether a pod's failure is the last that its index allows.
fn given_up(view: &View<'_>, pod: &Pod) -> bool {
    let Some(limit) = view.spec.backoff_limit_per_index else {
        return false;
    };
    match policy::match_failure_policy(view, pod) {
        Some(Verdict::FailIndex) => true,
        Some(Verdict::Ignore) => false,
        _ => Failures::before_pod(pod).counted >= i64::from(limit),
    }
}

/// Returns a pod's index.
pub fn completion_index(pod: &Pod) -> Option<usize> {
    pod.annotation(INDEX)?.parse().ok()
}
