//! The nominator: pods nominated to nodes on which preemption makes room.
//!
//! Invariant: a pod that counts on a node in the cache is not nominated, so that no filter counts
//! it twice.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use scheduler_framework::PodInfo;
use scheduler_framework::cycle::PodNominator;

#[derive(Default)]
struct Inner {
    by_node: HashMap<Arc<str>, Vec<Arc<PodInfo>>>,
    by_pod: HashMap<String, Arc<str>>,
}

impl Inner {
    fn insert_nomination(&mut self, pod: &Arc<PodInfo>, node: Arc<str>) {
        self.remove_nomination(pod.uid());
        self.by_node
            .entry(node.clone())
            .or_default()
            .push(pod.clone());
        self.by_pod.insert(pod.uid().to_owned(), node);
    }

    fn remove_nomination(&mut self, uid: &str) -> Option<Arc<str>> {
        let node = self.by_pod.remove(uid)?;
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| pod.uid() != uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some(node)
    }
}

fn nominated_node(pod: &Pod) -> Option<&str> {
    pod.status
        .as_ref()?
        .nominated_node_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

/// Nominations by node and by pod.
#[derive(Default)]
pub struct Nominator {
    inner: Mutex<Inner>,
}

impl Nominator {
    /// Records the nomination in a pod's status. A status that never named a node does not remove a
    /// nomination that was made in memory and is still being written.
    pub fn observe_status(&self, old: Option<&Pod>, new: &Arc<PodInfo>) {
        let mut inner = self.inner.lock();
        let known = inner.by_pod.get(new.uid()).cloned();
        match (new.nominated_node(), old.and_then(nominated_node), known) {
            (Some(node), _, _) => inner.insert_nomination(new, node.into()),
            // The status named a node and does no more: a user or another component has withdrawn
            // the nomination.
            (None, Some(_), _) => drop(inner.remove_nomination(new.uid())),
            // The nomination is in memory, and the write of the status is on its way. The state of
            // the pod is still replaced by the newer one.
            (None, None, Some(node)) => inner.insert_nomination(new, node),
            (None, None, None) => {}
        }
    }

    /// Nominates a pod to a node, replacing an earlier nomination.
    pub fn nominate_pod(&self, pod: &Arc<PodInfo>, node: &str) {
        self.inner.lock().insert_nomination(pod, node.into());
    }

    /// Removes a pod's nomination and returns its node.
    pub fn remove_nomination(&self, uid: &str) -> Option<Arc<str>> {
        self.inner.lock().remove_nomination(uid)
    }

    /// Removes and returns the pods with a lower priority that are nominated to a node.
    pub fn remove_lower(&self, node: &str, priority: i32) -> Vec<Arc<PodInfo>> {
        let mut inner = self.inner.lock();
        let pods = inner.by_node.get(node).into_iter().flatten();
        let lower: Vec<Arc<PodInfo>> = pods
            .filter(|pod| pod.priority() < priority)
            .cloned()
            .collect();
        lower
            .iter()
            .for_each(|pod| drop(inner.remove_nomination(pod.uid())));
        lower
    }
}

impl PodNominator for Nominator {
    fn pods_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        self.inner
            .lock()
            .by_node
            .get(node)
            .cloned()
            .unwrap_or_default()
    }

    fn node_of(&self, uid: &str) -> Option<Arc<str>> {
        self.inner.lock().by_pod.get(uid).cloned()
    }

    fn is_empty(&self) -> bool {
        self.inner.lock().by_pod.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn pod(name: &str, priority: i32, node: Option<&str>) -> Arc<PodInfo> {
        let object = json!({"metadata": {"name": name, "uid": name}, "status": {"nominatedNodeName": node},
            "spec": {"priority": priority, "containers": []}});
        Arc::new(PodInfo::new(Arc::new(
            serde_json::from_value(object).unwrap(),
        )))
    }

    #[test]
    fn nomination_in_memory_survives_a_status_that_does_not_name_it_yet() {
        let index = Nominator::default();
        index.nominate_pod(&pod("p", 0, None), "a");
        index.observe_status(Some(&pod("p", 0, None).pod), &pod("p", 0, None));
        assert_eq!(index.node_of("p").as_deref(), Some("a"));
        index.observe_status(Some(&pod("p", 0, Some("a")).pod), &pod("p", 0, Some("b")));
        assert_eq!((index.pods_on("a").len(), index.pods_on("b").len()), (0, 1));
        index.observe_status(Some(&pod("p", 0, Some("b")).pod), &pod("p", 0, None));
        assert!(index.is_empty() && index.pods_on("b").is_empty());
    }

    #[test]
    fn only_nominations_of_lower_priority_are_removed_from_a_node() {
        let index = Nominator::default();
        index.nominate_pod(&pod("low", 1, None), "a");
        index.nominate_pod(&pod("equal", 5, None), "a");
        index.nominate_pod(&pod("elsewhere", 1, None), "b");
        let removed = index.remove_lower("a", 5);
        assert_eq!(
            removed.iter().map(|pod| pod.name()).collect::<Vec<_>>(),
            ["low"]
        );
        assert_eq!((index.pods_on("a").len(), index.pods_on("b").len()), (1, 1));
    }
}
