//! The scheduling loop: takes a pod, runs the scheduling cycle on a snapshot, and starts a task
//! that writes the result.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use base_task::{CancellationToken, Tasks};
use k8s_openapi::api::core::v1::Pod;
use scheduler_framework::cycle::{self, FitError};
use scheduler_framework::{ClusterEvent, PodInfo, Profile, Rank, Rejection, WaitingPods};

use crate::cache::Cache;
use crate::metrics::SchedulerMetrics;
use crate::nominated::Nominator;
use crate::outcome::OutcomeWriter;
use crate::queue::{Attempt, Failure, Queue, QueuePlugins};

const UNSCHEDULABLE: &str = "Unschedulable";
const ERROR: &str = "SchedulerError";

/// Profiles by scheduler name; makes the queue's decisions.
pub(crate) struct Profiles(pub(crate) Vec<Profile>);

impl Profiles {
    pub(crate) fn profile_for(&self, pod: &Pod) -> Option<&Profile> {
        let name = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.scheduler_name.as_deref())
            .unwrap_or_default();
        // The API server defaults the field. Pods of tests and of static files may lack it.
        let name = if name.is_empty() {
            crate::profiles::DEFAULT_NAME
        } else {
            name
        };
        self.0.iter().find(|profile| profile.name == name)
    }

    fn run_pre_enqueue_plugins(&self, pod: &PodInfo) -> Option<Rejection> {
        let points = &self.profile_for(&pod.pod)?.points;
        points
            .pre_enqueue
            .iter()
            .find_map(|entry| entry.plugin.pre_enqueue(pod))
    }
}

impl QueuePlugins for Profiles {
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank {
        let sort = self
            .profile_for(&pod.pod)
            .and_then(|profile| profile.points.queue_sort.first());
        sort.map_or(Rank(0, since), |entry| entry.plugin.rank(pod, since))
    }

    fn is_gated(&self, pod: &PodInfo) -> bool {
        self.run_pre_enqueue_plugins(pod).is_some()
    }

    fn listens_for(&self, plugin: &str, event: &ClusterEvent) -> bool {
        self.0
            .iter()
            .any(|profile| profile.points.listens_for(plugin, event))
    }

    fn queueing_hint(&self, plugin: &str, pod: &PodInfo, event: &ClusterEvent) -> bool {
        self.profile_for(&pod.pod)
            .is_none_or(|profile| profile.points.queueing_hint(plugin, pod, event))
    }
}

/// Returns the current time in nanoseconds.
pub(crate) fn now_nanos() -> i128 {
    jiff::Timestamp::now().as_nanosecond()
}

/// The scheduler's parts.
pub(crate) struct Scheduler {
    pub(crate) cache: Cache,
    pub(crate) queue: Queue,
    pub(crate) nominations: Nominator,
    pub(crate) profiles: Arc<Profiles>,
    pub(crate) waiting: WaitingPods,
    pub(crate) writer: OutcomeWriter,
    pub(crate) metrics: SchedulerMetrics,
    pub(crate) tasks: Tasks,
}

impl Scheduler {
    /// Returns whether one of the profiles schedules the pod.
    pub(crate) fn is_ours(&self, pod: &Pod) -> bool {
        self.profiles.profile_for(pod).is_some()
    }

    /// Writes the condition of a gated pod, unless the API server has already done so.
    pub(crate) fn note_gated(self: &Scheduler, pod: &Arc<PodInfo>) {
        let gates = pod
            .spec()
            .and_then(|spec| spec.scheduling_gates.as_deref())
            .unwrap_or_default();
        let conditions = pod
            .pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default();
        // The API server sets the condition on creation. Older servers do not, and a patch of this
        // scheduler could have removed it.
        let noted = conditions
            .iter()
            .any(|condition| condition.reason.as_deref() == Some("SchedulingGated"));
        if gates.is_empty() || noted {
            return;
        }
        let (writer, pod) = (self.writer.clone(), pod.pod.clone());
        self.tasks
            .spawn_isolated("gated pod's condition", async move {
                let message = "Scheduling is blocked due to non-empty scheduling gates";
                writer
                    .write_condition(&pod, "SchedulingGated", message, None)
                    .await;
            });
    }

    /// Schedules until `term` ends.
    pub(crate) async fn run(self: Arc<Self>, term: CancellationToken) {
        // Attempts of a former term ended without a result when its token was cancelled.
        self.queue.requeue_in_flight();
        let mut start = 0;
        loop {
            let attempt = tokio::select! {
                () = term.cancelled() => return,
                attempt = self.queue.next() => attempt,
            };
            let Some(attempt) = attempt else { return };
            self.schedule_one(attempt, &mut start);
        }
    }

    pub(crate) fn schedule_one(self: &Arc<Self>, attempt: Attempt, start: &mut usize) {
        let pod = attempt.pod.clone();
        let Some(profile) = self.profiles.profile_for(&pod.pod) else {
            return self.queue.remove_pod(pod.uid());
        };
        if pod.pod.metadata.deletion_timestamp.is_some() || self.cache.has_pod(pod.uid()) {
            // The pod is being deleted or bound: the informer or the end of the binding removes it.
            return self.queue.done(pod.uid());
        }
        // Taken after the pod left the queue, so that it contains every event that requeued it.
        let (snapshot, began) = (self.cache.snapshot(), Instant::now());
        match cycle::schedule_pod(profile, &snapshot, &self.nominations, &pod, start) {
            Ok(result) => {
                // Else the assumption that follows would copy the snapshot, which only one holder
                // may change in place.
                drop(snapshot);
                self.metrics
                    .observe_attempt("scheduled", &profile.name, began.elapsed());
                self.assume_and_bind(&attempt, result);
            }
            Err(fit_error) => {
                let result = if fit_error.error.is_some() {
                    "error"
                } else {
                    "unschedulable"
                };
                self.metrics
                    .observe_attempt(result, &profile.name, began.elapsed());
                self.handle_scheduling_failure(&pod, *fit_error);
            }
        }
    }

    /// Writes why the pod is unschedulable, and executes the post-filter result.
    fn handle_scheduling_failure(self: &Arc<Self>, pod: &Arc<PodInfo>, fit_error: FitError) {
        let message = match &fit_error.error {
            Some(error) => error.clone(),
            None => fit_error.diagnosis.message(),
        };
        let errored = fit_error.error.is_some();
        let reason = if errored { ERROR } else { UNSCHEDULABLE };
        let nominate = fit_error.post_filter_result.nominate;
        match nominate.as_deref() {
            // Before the pod is requeued: the next attempt of another pod must not count this one
            // on its former node.
            Some("") => drop(self.nominations.remove_nomination(pod.uid())),
            Some(node) => self.nominations.nominate_pod(pod, node),
            None => {}
        }
        tracing::debug!(pod = pod.key(), message, "no node fits");
        let evictions = fit_error.post_filter_result.evict;
        let preempting = !evictions.is_empty();
        let idle = fit_error.post_filter_result.deallocate;
        // Requeued before the status is written. The write may take seconds, and events in between
        // must not be lost.
        self.queue.requeue_failed(
            pod.uid(),
            Failure {
                plugins: fit_error.diagnosis.plugins,
                errored,
                preempting,
            },
            now_nanos(),
        );
        let (this, pod) = (self.clone(), pod.clone());
        self.tasks
            .spawn_isolated("outcome of an attempt", async move {
                let node = nominate.as_deref();
                this.writer.deallocate_claims(&idle).await;
                if preempting {
                    this.run_preemption(&pod, node.unwrap_or_default(), &evictions, &message)
                        .await;
                } else {
                    this.writer
                        .write_unschedulable(&pod.pod, reason, &message, node)
                        .await;
                }
            });
    }
}
