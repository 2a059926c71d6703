//! Executes a preemption that the scheduling cycle decided.
//!
//! The preemptor is not tried again before the preemption is complete: until then its nomination
//! and the deletions of its victims are not visible everywhere, and another attempt could choose
//! other victims.

use std::sync::Arc;

use scheduler_framework::{Eviction, PodInfo, Rejection};

use crate::scheduler::Scheduler;

/// Releases the preemptor in the queue when dropped, so also if the preempting task panics.
struct Hold<'a> {
    scheduler: &'a Scheduler,
    uid: &'a str,
    failed: bool,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.scheduler.queue.release_held(self.uid, self.failed);
    }
}

impl Scheduler {
    /// Nominates the pod to the node, clears lower-priority nominations there, and evicts the
    /// victims.
    pub(crate) async fn run_preemption(
        &self,
        pod: &Arc<PodInfo>,
        node: &str,
        evictions: &[Eviction],
        message: &str,
    ) {
        // Created first, so that every way out of this function releases the pod.
        let mut hold = Hold {
            scheduler: self,
            uid: pod.uid(),
            failed: true,
        };
        // The nomination is written before any victim is evicted: after a restart in between, the
        // room would otherwise go to any pod.
        self.writer
            .write_unschedulable(&pod.pod, "Unschedulable", message, Some(node))
            .await;
        for lower in self.nominations.remove_lower(node, pod.priority()) {
            // The pod may fit on another node, instead of waiting for the room that the preemptor
            // takes.
            self.queue.activate(lower.uid());
            self.writer.clear_nomination(&lower.pod).await;
        }
        let mut failed = false;
        for eviction in evictions {
            self.metrics.count_victim();
            // The others are evicted even if one eviction fails; the preemptor is retried then, and
            // may need fewer victims.
            failed |= !self.evict_victim(eviction, pod).await;
        }
        hold.failed = failed;
    }

    /// Returns whether the victim is being deleted, or was rejected before it was bound.
    async fn evict_victim(&self, eviction: &Eviction, pod: &Arc<PodInfo>) -> bool {
        let victim = &eviction.pod.metadata;
        tracing::info!(
            pod = pod.key(),
            victim = victim.name,
            node = eviction.node,
            "preempting a pod"
        );
        let uid = victim.uid.as_deref().unwrap_or_default();
        // A victim in a Permit wait goes back to the queue instead of being deleted.
        if self
            .waiting
            .reject_pod(uid, Rejection::error("DefaultPreemption", "preempted"))
        {
            return true;
        }
        self.writer.delete_victim(eviction, &pod.pod).await
    }
}
