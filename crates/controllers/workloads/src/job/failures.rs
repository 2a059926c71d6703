//! Failures of an index, which each of its pods carries to the next in annotations.

use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::Meta;

use super::policy::{self, Verdict};
use super::view::View;

/// Annotation with the index's earlier failures that count against the limit.
pub const COUNTED: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation with the index's earlier failures that the failure policy ignores.
pub const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Failures of one index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Failures that count against `backoffLimitPerIndex`.
    pub counted: i64,
    /// Failures that the failure policy ignores.
    pub ignored: i64,
}

impl Failures {
    /// Returns the failures of the pod's index before the pod.
    pub fn before_pod(pod: &Pod) -> Self {
        let number = |key: &str| {
            pod.annotation(key)
                .and_then(|v| v.parse().ok())
                .unwrap_or(0)
        };
        Self {
            counted: number(COUNTED),
            ignored: number(IGNORED),
        }
    }

    /// Returns the failures of the pod's index including the failed pod.
    pub fn including_pod(view: &View<'_>, pod: &Pod) -> Self {
        let before = Self::before_pod(pod);
        match policy::match_failure_policy(view, pod) {
            Some(Verdict::Ignore) => Self {
                ignored: before.ignored.saturating_add(1),
                ..before
            },
            _ => Self {
                counted: before.counted.saturating_add(1),
                ..before
            },
        }
    }

    /// Returns the number of all failures.
    pub fn total_failures(self) -> i64 {
        self.counted.saturating_add(self.ignored)
    }
}
