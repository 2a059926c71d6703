//! Pods that wait for Permit plugins.
//!
//! A pod waits until every plugin that requested the wait has allowed it. The first rejection ends
//! the wait; so does the first plugin that does not decide within its limit, which counts as a
//! rejection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::diagnosis::Rejection;
use crate::pod::PodInfo;

/// Maximum wait of a plugin (upstream's limit).
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

type End = Result<(), Rejection>;

struct Entry {
    pod: Arc<PodInfo>,
    /// Plugins that have not allowed the pod yet, with their limits.
    pending: HashMap<&'static str, (Instant, Duration)>,
    end: Option<oneshot::Sender<End>>,
}

impl Entry {
    fn finish_wait(&mut self, end: End) -> bool {
        self.end
            .take()
            .is_some_and(|sender| sender.send(end).is_ok())
    }
}

/// Pods in a Permit wait, by uid. Cheap to clone.
#[derive(Clone, Default)]
pub struct WaitingPods {
    pods: Arc<Mutex<HashMap<String, Entry>>>,
}

impl WaitingPods {
    /// Registers a pod with the limits of the plugins that requested the wait.
    pub fn add_pod(&self, pod: &Arc<PodInfo>, limits: Vec<(&'static str, Duration)>) -> Wait {
        let (sender, receiver) = oneshot::channel();
        let now = Instant::now();
        let bounded = |(plugin, limit): (&'static str, Duration)| {
            // A pod that waits keeps its node's room, so that a plugin cannot wait for any length
            // of time.
            let limit = limit.min(LONGEST_WAIT);
            (plugin, (now + limit, limit))
        };
        let pending = limits.into_iter().map(bounded).collect();
        let entry = Entry {
            pod: pod.clone(),
            pending,
            end: Some(sender),
        };
        self.pods.lock().insert(pod.uid().to_owned(), entry);
        Wait {
            pods: self.clone(),
            uid: pod.uid().to_owned(),
            receiver,
        }
    }

    /// Returns the waiting pods.
    pub fn list_pods(&self) -> Vec<Arc<PodInfo>> {
        self.pods
            .lock()
            .values()
            .map(|entry| entry.pod.clone())
            .collect()
    }

    /// Records that a plugin allows a pod, which is bound once all its plugins have. Returns false
    /// if it does not wait.
    pub fn allow_pod(&self, uid: &str, plugin: &str) -> bool {
        let mut pods = self.pods.lock();
        let Some(entry) = pods.get_mut(uid) else {
            return false;
        };
        // All plugins that asked for the wait must agree; one approval is not enough.
        entry.pending.remove(plugin);
        if entry.pending.is_empty() {
            entry.finish_wait(Ok(()));
        }
        true
    }

    /// Rejects a pod. Returns false if it does not wait.
    pub fn reject_pod(&self, uid: &str, rejection: Rejection) -> bool {
        self.pods
            .lock()
            .get_mut(uid)
            .is_some_and(|entry| entry.finish_wait(Err(rejection)))
    }

    /// Returns the earliest limit of a pod's plugins; rejects the pod if that limit has passed.
    fn next_limit(&self, uid: &str) -> Option<Instant> {
        let mut pods = self.pods.lock();
        let entry = pods.get_mut(uid)?;
        // Limits differ, and a plugin that has agreed takes its limit with it, so the earliest is
        // computed again.
        let (plugin, (until, limit)) = entry.pending.iter().min_by_key(|(_, (until, _))| *until)?;
        let (plugin, until, limit) = (*plugin, *until, *limit);
        if until <= Instant::now() {
            let reason =
                format!("rejected due to timeout after waiting {limit:?} at plugin {plugin}");
            entry.finish_wait(Err(Rejection::unschedulable(plugin, reason)));
        }
        Some(until)
    }
}

/// The wait of one pod; ends when dropped.
pub struct Wait {
    pods: WaitingPods,
    uid: String,
    receiver: oneshot::Receiver<End>,
}

impl Wait {
    /// Waits for the end.
    ///
    /// # Errors
    /// The rejection, or the timeout of a plugin.
    pub async fn wait_for_end(mut self) -> End {
        loop {
            let limit = self.pods.next_limit(&self.uid);
            // Without a pending plugin the result was already sent.
            let limit = limit.unwrap_or_else(|| Instant::now() + LONGEST_WAIT);
            // After a timeout the loop looks again: the plugin whose limit passed may have agreed
            // in the meantime.
            match tokio::time::timeout_at(limit, &mut self.receiver).await {
                Ok(Ok(end)) => return end,
                Ok(Err(_)) => {
                    return Err(Rejection::error(
                        "",
                        "the wait for permission was abandoned",
                    ));
                }
                Err(_) => {}
            }
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // Also when the binding task is cancelled or panics. Otherwise the pod would be listed as
        // waiting forever.
        self.pods.pods.lock().remove(&self.uid);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn pod() -> Arc<PodInfo> {
        let object = json!({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": []}});
        Arc::new(PodInfo::new(Arc::new(
            serde_json::from_value(object).unwrap(),
        )))
    }

    fn limits() -> Vec<(&'static str, Duration)> {
        vec![
            ("Quota", Duration::from_secs(10)),
            ("Gang", Duration::from_millis(50)),
        ]
    }

    #[tokio::test]
    async fn wait_times_out_as_a_rejection_by_the_plugin_that_did_not_decide() {
        let pods = WaitingPods::default();
        let rejection = pods
            .add_pod(&pod(), limits())
            .wait_for_end()
            .await
            .unwrap_err();
        assert_eq!(rejection.plugin, "Gang");
        assert_eq!(
            rejection.reasons,
            ["rejected due to timeout after waiting 50ms at plugin Gang"]
        );
        assert!(pods.list_pods().is_empty());
    }

    #[tokio::test]
    async fn wait_ends_when_every_plugin_has_allowed_the_pod() {
        let pods = WaitingPods::default();
        let wait = pods.add_pod(&pod(), limits());
        assert_eq!(pods.list_pods().len(), 1);
        assert!(pods.allow_pod("p", "Gang"));
        let others = pods.clone();
        let later = async move {
            tokio::time::sleep(Duration::from_millis(80)).await;
            others.allow_pod("p", "Quota")
        };
        let (end, allowed) = tokio::join!(wait.wait_for_end(), later);
        assert_eq!(end, Ok(()));
        assert!(allowed && !pods.allow_pod("p", "Quota"));
    }

    #[tokio::test]
    async fn rejection_ends_the_wait_at_once() {
        let pods = WaitingPods::default();
        let wait = pods.add_pod(&pod(), limits());
        assert!(pods.reject_pod("p", Rejection::unschedulable("Quota", "no")));
        assert!(!pods.allow_pod("other", "Quota"));
        assert_eq!(wait.wait_for_end().await.unwrap_err().reasons, ["no"]);
    }

    #[tokio::test]
    async fn dropped_wait_is_no_longer_listed() {
        let pods = WaitingPods::default();
        let wait = pods.add_pod(&pod(), limits());
        drop(wait);
        assert!(pods.list_pods().is_empty());
        assert!(!pods.reject_pod("p", Rejection::unschedulable("Quota", "late")));
    }
}
