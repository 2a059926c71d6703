//! Counts terminated pods and selects the finalizers that may be removed.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::UncountedTerminatedPods;
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Meta, pods as pod_state};

use super::policy::{self, Verdict};
use super::view::{TRACKING, View};

/// The counts of one reconcile.
#[derive(Default)]
pub struct Tally {
    /// Failures included in the status' number.
    pub counted_failed: usize,
    /// Successes included in the status' number.
    pub counted_succeeded: usize,
    /// Failures that count against the limit, whether in the status or not.
    pub failed: usize,
    /// Successes, whether in the status or not.
    pub succeeded: usize,
    /// UIDs of pods that are not yet included in the numbers.
    pub uncounted: UncountedTerminatedPods,
    /// Pods whose finalizer may be removed once the status is written.
    pub release: Vec<Arc<Pod>>,
    /// Message of the failure policy if it fails the Job.
    pub fail_job: Option<String>,
    /// Failed pods seen for the first time, and whether the policy ignores them.
    pub fresh_failures: Vec<(Arc<Pod>, bool)>,
}

/// Counts the pods. Pods whose UID is in `kept` keep their finalizer and are not written as counted
/// yet.
pub fn tally_pods(view: &View<'_>, kept: &HashSet<&str>) -> Tally {
    let number = |n: Option<i32>| usize::try_from(n.unwrap_or(0)).unwrap_or(0);
    let mut t = Tally {
        counted_failed: number(view.old.failed),
        counted_succeeded: number(view.old.succeeded),
        ..Tally::default()
    };
    let old = view
        .old
        .uncounted_terminated_pods
        .clone()
        .unwrap_or_default();
    let held: BTreeSet<&str> = view
        .pods
        .iter()
        .filter(|p| p.has_finalizer(TRACKING))
        .map(|p| p.uid())
        .collect();
    // A UID without a pod that still has the finalizer was released in an earlier reconcile, so it
    // becomes a count now.
    let (failed, done) = settle_uncounted(old.failed, &held);
    t.counted_failed += done;
    let (succeeded, done) = settle_uncounted(old.succeeded, &held);
    t.counted_succeeded += done;
    t.uncounted = UncountedTerminatedPods {
        failed: nonempty_list(failed),
        succeeded: nonempty_list(succeeded),
    };
    let lists = [&t.uncounted.failed, &t.uncounted.succeeded];
    let known: HashSet<String> = lists.into_iter().flatten().flatten().cloned().collect();
    for pod in &view.pods {
        count_pod(view, pod, &known, kept, &mut t);
    }
    t.failed += t.counted_failed + t.uncounted.failed.as_ref().map_or(0, Vec::len);
    t.succeeded = t.counted_succeeded + t.uncounted.succeeded.as_ref().map_or(0, Vec::len);
    t
}

fn nonempty_list(list: Vec<String>) -> Option<Vec<String>> {
    (!list.is_empty()).then_some(list)
}

/// Returns the UIDs that remain uncounted, and the number of those that become counted.
fn settle_uncounted(uids: Option<Vec<String>>, held: &BTreeSet<&str>) -> (Vec<String>, usize) {
    let all = uids.unwrap_or_default();
    let total = all.len();
    let waiting: Vec<_> = all
        .into_iter()
        .filter(|uid| held.contains(uid.as_str()))
        .collect();
    let done = total - waiting.len();
    (waiting, done)
}

fn count_pod(
    view: &View<'_>,
    pod: &Arc<Pod>,
    known: &HashSet<String>,
    kept: &HashSet<&str>,
    t: &mut Tally,
) {
    let succeeded = pod_state::phase(pod) == "Succeeded";
    let failed = view.has_failed(pod);
    if !succeeded && !failed {
        return;
    }
    if failed {
        apply_failure_policy(view, pod, t);
    }
    if !pod.has_finalizer(TRACKING) {
        return;
    }
    let kept = kept.contains(pod.uid());
    if !kept {
        t.release.push(pod.clone());
    }
    // The status already lists the pod; counting it again after a crash would count it twice.
    if known.contains(pod.uid()) {
        return;
    }
    let ignored = failed
        && policy::match_failure_policy(view, pod).is_some_and(|v| matches!(v, Verdict::Ignore));
    if failed {
        t.fresh_failures.push((pod.clone(), ignored));
    }
    if ignored {
        return;
    }
    // Not yet in the status, but it must count against the limit now.
    if kept {
        t.failed += 1;
        return;
    }
    let list = if succeeded {
        &mut t.uncounted.succeeded
    } else {
        &mut t.uncounted.failed
    };
    list.get_or_insert_default().push(pod.uid().to_owned());
}

fn apply_failure_policy(view: &View<'_>, pod: &Pod, t: &mut Tally) {
    if let Some(Verdict::FailJob(text)) = policy::match_failure_policy(view, pod) {
        t.fail_job.get_or_insert(text);
    }
}
