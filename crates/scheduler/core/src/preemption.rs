//! Carrying out a preemption that the scheduling cycle decided on.
//!
//! The preemptor is not tried again before all of it is done: until then its nomination and the deletions of its
//! victims are on their way, and another attempt could choose other victims.

use std::sync::Arc;

use scheduler_framework::{Eviction, PodInfo, Rejection};

use crate::scheduler::Scheduler;

/// Ends the preemptor's hold in the queue, also if the task that preempts panics or is dropped.
struct Hold<'a> {
    scheduler: &'a Scheduler,
    uid: &'a str,
    failed: bool,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.scheduler.queue.release(self.uid, self.failed);
    }
}

impl Scheduler {
    /// Nominates the pod to the node, clears less important nominations there, and evicts the victims.
    pub(crate) async fn preempt(&self, pod: &Arc<PodInfo>, node: &str, evictions: &[Eviction], message: &str) {
        let mut hold = Hold { scheduler: self, uid: pod.uid(), failed: true };
        self.writer.unschedulable(&pod.pod, "Unschedulable", message, Some(node)).await;
        for lower in self.nominations.remove_lower(node, pod.priority()) {
            // It may fit elsewhere now, instead of waiting for room that the preemptor takes.
            self.queue.activate(lower.uid());
            self.writer.clear_nomination(&lower.pod).await;
        }
        let mut failed = false;
        for eviction in evictions {
            self.numbers.preempted();
            failed |= !self.evict(eviction, pod).await;
        }
        hold.failed = failed;
    }

    /// True if the victim is being deleted, or was stopped before it was bound.
    async fn evict(&self, eviction: &Eviction, pod: &Arc<PodInfo>) -> bool {
        let victim = &eviction.pod.metadata;
        tracing::info!(pod = pod.key(), victim = victim.name, node = eviction.node, "preempting a pod");
        let uid = victim.uid.as_deref().unwrap_or_default();
        // A victim that still waits for permission to be bound goes back to the queue and is not deleted.
        if self.waiting.reject(uid, Rejection::error("DefaultPreemption", "preempted")) {
            return true;
        }
        self.writer.evict(eviction, &pod.pod).await
    }
}
