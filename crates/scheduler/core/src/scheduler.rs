//! The scheduling loop: takes a pod, runs the scheduling cycle on a snapshot, and starts a task
//! that writes the result.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use base_task::{CancellationToken, Tasks};
use k8s_openapi::api::core::v1::Pod;
use scheduler_framework::cycle::{self, Unfit};
use scheduler_framework::{ClusterEvent, PodInfo, Profile, Rank, Rejection, WaitingPods};

use crate::cache::Cache;
use crate::metrics::Numbers;
use crate::nominated::NominationIndex;
use crate::outcome::Writer;
use crate::queue::{Attempt, Failure, Judge, Queue};

const UNSCHEDULABLE: &str = "Unschedulable";
const ERROR: &str = "SchedulerError";

/// Profiles by scheduler name; makes the queue's decisions.
pub(crate) struct Profiles(pub(crate) Vec<Profile>);

impl Profiles {
    pub(crate) fn of(&self, pod: &Pod) -> Option<&Profile> {
        let name = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.scheduler_name.as_deref())
            .unwrap_or_default();
        let name = if name.is_empty() {
            crate::profiles::DEFAULT_NAME
        } else {
            name
        };
        self.0.iter().find(|profile| profile.name == name)
    }

    fn gate(&self, pod: &PodInfo) -> Option<Rejection> {
        let points = &self.of(&pod.pod)?.points;
        points
            .pre_enqueue
            .iter()
            .find_map(|entry| entry.plugin.pre_enqueue(pod))
    }
}

impl Judge for Profiles {
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank {
        let sort = self
            .of(&pod.pod)
            .and_then(|profile| profile.points.queue_sort.first());
        sort.map_or(Rank(0, since), |entry| entry.plugin.rank(pod, since))
    }

    fn is_gated(&self, pod: &PodInfo) -> bool {
        self.gate(pod).is_some()
    }

    fn listens(&self, plugin: &str, event: &ClusterEvent) -> bool {
        self.0
            .iter()
            .any(|profile| profile.points.listens(plugin, event))
    }

    fn hint(&self, plugin: &str, pod: &PodInfo, event: &ClusterEvent) -> bool {
        self.of(&pod.pod)
            .is_none_or(|profile| profile.points.hint(plugin, pod, event))
    }
}

/// Returns the current time in nanoseconds.
pub(crate) fn now() -> i128 {
    jiff::Timestamp::now().as_nanosecond()
}

/// The scheduler's parts.
pub(crate) struct Scheduler {
    pub(crate) cache: Cache,
    pub(crate) queue: Queue,
    pub(crate) nominations: NominationIndex,
    pub(crate) profiles: Arc<Profiles>,
    pub(crate) waiting: WaitingPods,
    pub(crate) writer: Writer,
    pub(crate) numbers: Numbers,
    pub(crate) tasks: Tasks,
}

impl Scheduler {
    /// Returns whether one of the profiles schedules the pod.
    pub(crate) fn is_ours(&self, pod: &Pod) -> bool {
        self.profiles.of(pod).is_some()
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
        let noted = conditions
            .iter()
            .any(|condition| condition.reason.as_deref() == Some("SchedulingGated"));
        if gates.is_empty() || noted {
            return;
        }
        let (writer, pod) = (self.writer.clone(), Arc::clone(&pod.pod));
        self.tasks
            .spawn_isolated("gated pod's condition", async move {
                let message = "Scheduling is blocked due to non-empty scheduling gates";
                writer
                    .condition(&pod, "SchedulingGated", message, None)
                    .await;
            });
    }

    /// Schedules until `term` ends.
    pub(crate) async fn run(self: Arc<Self>, term: CancellationToken) {
        self.queue.recover();
        let mut start = 0;
        loop {
            let attempt = tokio::select! {
                () = term.cancelled() => return,
                attempt = self.queue.next() => attempt,
            };
            let Some(attempt) = attempt else { return };
            self.attempt(attempt, &mut start);
        }
    }

    pub(crate) fn attempt(self: &Arc<Self>, attempt: Attempt, start: &mut usize) {
        let pod = Arc::clone(&attempt.pod);
        let Some(profile) = self.profiles.of(&pod.pod) else {
            return self.queue.remove(pod.uid());
        };
        if pod.pod.metadata.deletion_timestamp.is_some() || self.cache.has_pod(pod.uid()) {
            // The pod is being deleted or bound: the informer or the end of the binding removes it.
            return self.queue.settle(pod.uid());
        }
        let (snapshot, began) = (self.cache.snapshot(), Instant::now());
        match cycle::schedule(profile, &snapshot, &self.nominations, &pod, start) {
            Ok(chosen) => {
                drop(snapshot);
                self.numbers
                    .attempt("scheduled", &profile.name, began.elapsed());
                self.commit(&attempt, chosen);
            }
            Err(unfit) => {
                let result = if unfit.error.is_some() {
                    "error"
                } else {
                    "unschedulable"
                };
                self.numbers.attempt(result, &profile.name, began.elapsed());
                self.unfit(&pod, *unfit);
            }
        }
    }

    /// Writes why the pod is unschedulable, and executes the post-filter result.
    fn unfit(self: &Arc<Self>, pod: &Arc<PodInfo>, unfit: Unfit) {
        let message = match &unfit.error {
            Some(error) => error.clone(),
            None => unfit.diagnosis.message(),
        };
        let errored = unfit.error.is_some();
        let reason = if errored { ERROR } else { UNSCHEDULABLE };
        let nominate = unfit.remedy.nominate;
        match nominate.as_deref() {
            Some("") => drop(self.nominations.remove(pod.uid())),
            Some(node) => self.nominations.set(pod, node),
            None => {}
        }
        tracing::debug!(pod = pod.key(), message, "no node fits");
        let evictions = unfit.remedy.evict;
        let preempting = !evictions.is_empty();
        self.queue.reject(
            pod.uid(),
            Failure {
                plugins: unfit.diagnosis.plugins,
                errored,
                preempting,
            },
            now(),
        );
        let (this, pod) = (Arc::clone(self), Arc::clone(pod));
        self.tasks
            .spawn_isolated("outcome of an attempt", async move {
                let node = nominate.as_deref();
                if preempting {
                    this.preempt(&pod, node.unwrap_or_default(), &evictions, &message)
                        .await;
                } else {
                    this.writer
                        .unschedulable(&pod.pod, reason, &message, node)
                        .await;
                }
            });
    }
}
