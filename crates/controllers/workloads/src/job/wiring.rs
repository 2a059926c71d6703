//! Enqueues Jobs, and releases tracked pods whose Job was deleted.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

use super::view::TRACKING;
use super::{pods, reconcile_job};

const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const TRACKED: &str = "job-tracked";

struct JobController {
    jobs: Cache<Job>,
    pods: Cache<Pod>,
}

/// Sets up the Job controller.
pub fn add_job_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let jobs = setup
        .informers
        .for_kind::<Job>()
        .index_namespace()
        .index_claims()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let waiting = queue.clone();
    let kind = setup
        .informers
        .for_kind::<Pod>()
        .index(TRACKED, |pod| tracking_job(pod).into_iter().collect());
    let kind = kind.on_event(move |event| {
        tracking_job(event.object())
            .into_iter()
            .for_each(|key| waiting.add(key))
    });
    let pods = wake::on_owned(kind, &queue, &jobs, pod_selector);
    setup.add_reconciler(
        "job-controller",
        workers,
        queue,
        JobController { jobs, pods },
    );
}

fn pod_selector(job: &Job) -> LabelSelector {
    job.spec
        .as_ref()
        .and_then(|s| s.selector.clone())
        .unwrap_or_default()
}

/// Returns the key of the current or former Job of a pod with the finalizer.
fn tracking_job(pod: &Pod) -> Option<String> {
    if !pod.has_finalizer(TRACKING) {
        return None;
    }
    let owner = pod
        .controller()
        .filter(|r| r.kind == "Job")
        .map(|r| r.name.as_str());
    // A pod that was released has no reference any more, but its label still names the Job.
    let name = owner.or_else(|| pod.label(NAME_LABEL)).unwrap_or_default();
    Some(format!("{}/{name}", pod.namespace()))
}

impl Decide for JobController {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let tracked = self.pods.by_index(TRACKED, key);
        let Some(job) = self.jobs.get(key) else {
            return pods::release_pods(tracked.iter()).into_iter().collect();
        };
        let candidates = self.pods.claim_candidates(job.namespace(), job.uid());
        let mut actions = reconcile_job(&job, &candidates, now);
        // A pod with the finalizer that no longer belongs to the Job would never be deleted,
        // because no other controller removes it.
        let stray = |p: &&Arc<Pod>| match p.controller() {
            Some(owner) => owner.uid != job.uid(),
            None => {
                !controllers_runtime::labels::labels_match(
                    Some(&pod_selector(&job)),
                    p.meta().labels.as_ref(),
                ) || job.is_deleting()
            }
        };
        actions.extend(pods::release_pods(tracked.iter().filter(stray)));
        actions
    }
}
