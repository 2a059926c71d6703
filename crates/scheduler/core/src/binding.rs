//! From a chosen node to a bound pod: assume, Reserve and Permit run in the scheduling cycle;
//! waiting and binding run in the background.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scheduler_framework::cycle::ScheduleResult;
use scheduler_framework::{
    BindError, ClusterEvent, Code, CycleState, Diagnosis, PermitOutcome, PodInfo, Profile,
    Rejection, Wait,
};

use crate::queue::{Attempt, Failure};
use crate::scheduler::{Scheduler, now_nanos};

/// A pod that is assumed on its node and is to be bound to it.
struct Binding {
    pod: Arc<PodInfo>,
    node: String,
    state: CycleState,
    /// Set while Permit plugins delay the binding.
    wait: Option<Wait>,
}

impl Scheduler {
    /// Assumes the pod on the node and binds it in the background.
    pub(crate) fn assume_and_bind(self: &Arc<Self>, attempt: &Attempt, result: ScheduleResult) {
        let (pod, node) = (attempt.pod.clone(), result.node.to_string());
        // Before the nomination is removed: in between the pod would count nowhere, and the next
        // attempt could take its room.
        self.cache.assume_pod(&pod, &node);
        self.release_nomination(&pod, &node);
        let mut binding = Binding {
            pod,
            node,
            state: result.state,
            wait: None,
        };
        // Reserve and Permit belong to the scheduling cycle: the next pod must see what they
        // reserved.
        let permitted = self
            .run_reserve_plugins(&mut binding)
            .and_then(|()| self.run_permit_plugins(&mut binding));
        // While a Permit plugin may still reject the pod, cluster events are kept as for a running
        // attempt.
        if binding.wait.is_none() && permitted.is_ok() {
            self.queue.done(binding.pod.uid());
        }
        let (this, arrived) = (self.clone(), attempt.arrived);
        // A panic stops the component: otherwise the cache would count the pod on its node forever.
        self.tasks.spawn("binding", async move {
            let bound = match permitted {
                Ok(()) => this.run_binding_cycle(&mut binding).await,
                Err(rejection) => Err(rejection),
            };
            match bound {
                // The queue drops the pod when the informer shows the binding, not here. Until then
                // the cache counts it as assumed.
                Ok(took) => {
                    let since =
                        Duration::from_nanos(u64::try_from(now_nanos() - arrived).unwrap_or(0));
                    this.metrics.observe_bound(took, since);
                    this.writer.record_scheduled(&binding.pod, &binding.node);
                }
                Err(rejection) => this.handle_binding_error(&mut binding, &rejection).await,
            }
        });
    }

    /// Removes the pod's nomination, since the cache counts the pod now. The room reserved on
    /// another node is released.
    fn release_nomination(&self, pod: &Arc<PodInfo>, node: &str) {
        if self
            .nominations
            .remove_nomination(pod.uid())
            // On the nominated node itself no room is released: the pod takes it.
            .is_some_and(|nominated| &*nominated != node)
        {
            self.queue
                .move_other_pods(pod.uid(), ClusterEvent::AssignedPodDeleted(pod.clone()));
        }
    }

    fn profile_for(&self, pod: &PodInfo) -> Result<&Profile, Rejection> {
        self.profiles
            .profile_for(&pod.pod)
            .ok_or_else(|| Rejection::error("", "the pod's scheduler name has no profile"))
    }

    fn run_reserve_plugins(&self, binding: &mut Binding) -> Result<(), Rejection> {
        let Binding {
            pod, node, state, ..
        } = binding;
        let profile = self.profile_for(pod)?;
        profile
            .points
            .reserve
            .iter()
            .try_for_each(|entry| entry.plugin.reserve(state, pod, node))
    }

    fn run_permit_plugins(&self, binding: &mut Binding) -> Result<(), Rejection> {
        let mut limits = Vec::new();
        for entry in &self.profile_for(&binding.pod)?.points.permit {
            match entry
                .plugin
                .permit(&binding.state, &binding.pod, &binding.node)
            {
                PermitOutcome::Allow => {}
                PermitOutcome::Wait(limit) => limits.push((entry.name, limit)),
                PermitOutcome::Reject(rejection) => return Err(rejection),
            }
        }
        if !limits.is_empty() {
            binding.wait = Some(self.waiting.add_pod(&binding.pod, limits));
        }
        Ok(())
    }

    async fn run_binding_cycle(&self, binding: &mut Binding) -> Result<Duration, Rejection> {
        if let Some(wait) = binding.wait.take() {
            // Upstream waits in the binding cycle, too: a pod that waits must not stop the
            // scheduling of others.
            wait.wait_for_end().await?;
            self.queue.done(binding.pod.uid());
        }
        let Binding {
            pod, node, state, ..
        } = binding;
        let points = &self.profile_for(pod)?.points;
        let failed = |error: BindError| Rejection::error(error.plugin, error.message);
        // One after the other, in order: volumes must be bound before the pod is.
        for entry in &points.pre_bind {
            entry
                .plugin
                .pre_bind(state, pod, node)
                .await
                .map_err(failed)?;
        }
        let began = Instant::now();
        for entry in &points.bind {
            if entry.plugin.bind(pod, node).await.map_err(failed)? {
                points
                    .post_bind
                    .iter()
                    .for_each(|entry| entry.plugin.post_bind(pod, node));
                return Ok(began.elapsed());
            }
        }
        Err(Rejection::error("", "no plugin bound the pod"))
    }

    /// Forgets the assumed pod and puts it back into the queue.
    async fn handle_binding_error(&self, binding: &mut Binding, rejection: &Rejection) {
        let Binding {
            pod, node, state, ..
        } = binding;
        if let Some(profile) = self.profiles.profile_for(&pod.pod) {
            // In reverse order, and for all plugins: one of them may have failed halfway. Unreserve
            // must tolerate that nothing was reserved.
            for entry in profile.points.reserve.iter().rev() {
                entry.plugin.unreserve(state, pod, node);
            }
        }
        self.cache.forget_pod(pod.uid());
        // The pod may have been deleted, or the binding may have been written although its response
        // was lost. In both cases there is nothing to retry.
        let returns = self.queue.pod(pod.uid()).is_some() && !self.cache.has_pod(pod.uid());
        let errored = rejection.code == Code::Error;
        if returns {
            let plugins = if errored {
                HashSet::new()
            } else {
                // A rejection waits for an event of its plugin. An error has no event: the pod is
                // retried after the back-off.
                [rejection.plugin].into()
            };
            self.queue.requeue_failed(
                pod.uid(),
                Failure {
                    plugins,
                    errored,
                    preempting: false,
                },
                now_nanos(),
            );
        }
        // The node has room again for other pods; this pod did not fail for lack of room.
        self.queue
            .move_other_pods(pod.uid(), ClusterEvent::AssignedPodDeleted(pod.clone()));
        if returns {
            let (reason, message) = explain_rejection(node, rejection);
            tracing::warn!(pod = pod.key(), node, message, "pod not bound");
            self.writer
                .write_unschedulable(&pod.pod, reason, &message, Some(""))
                .await;
        }
    }
}

/// Returns reason and message of the condition of a pod that was not bound.
fn explain_rejection(node: &str, rejection: &Rejection) -> (&'static str, String) {
    if rejection.code == Code::Error {
        // Errors and rejections have different reasons in the condition: the cluster autoscaler
        // acts on Unschedulable only.
        return (
            "SchedulerError",
            format!("binding rejected: {}", rejection.reasons.join(", ")),
        );
    }
    let rejections = [(Arc::from(node), rejection.clone())].into();
    (
        "Unschedulable",
        Diagnosis {
            nodes: 1,
            rejections,
            ..Diagnosis::default()
        }
        .message(),
    )
}
