//! The scheduler cache: nodes and their pods, from the informers and the scheduler's own decisions.
//!
//! A pod counts on its node from the moment it is chosen: it is assumed there until the informer
//! shows the binding, or forgotten when the binding fails. A snapshot shares the entries of
//! unchanged nodes with the previous one.

use std::collections::HashMap;
use std::sync::Arc;

use api_semantics::selectors::Labels;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use scheduler_framework::{NodeInfo, PodInfo, Snapshot};

struct Placed {
    node: String,
    assumed: bool,
}

#[derive(Default)]
struct Inner {
    snapshot: Arc<Snapshot>,
    /// Pods on nodes that are not known yet or were deleted.
    strays: HashMap<String, NodeInfo>,
    pods: HashMap<String, Placed>,
}

impl Inner {
    fn snapshot_mut(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.snapshot)
    }

    /// Returns the entry of a node, known or not, for a change.
    fn node_mut(&mut self, name: &str) -> &mut NodeInfo {
        let at = self
            .snapshot
            .by_name
            .get(name)
            .copied()
            // The index is kept apart from the array; an index out of range must not panic in the
            // task that all scheduling depends on.
            .filter(|at| *at < self.snapshot.nodes.len());
        match at {
            Some(at) => Arc::make_mut(&mut Arc::make_mut(&mut self.snapshot).nodes[at]),
            // Informers of pods and nodes are independent: a pod may be shown before its node, or
            // after its node was deleted.
            None => self
                .strays
                .entry(name.to_owned())
                .or_insert_with(|| NodeInfo::new(name)),
        }
    }

    fn place_pod(&mut self, pod: &Arc<PodInfo>, node: &str, assumed: bool) {
        // The informer may show the pod on another node than assumed, if another scheduler bound
        // it. It must not count twice.
        self.take_pod(pod.uid());
        self.node_mut(node).add_pod(pod.clone());
        self.pods.insert(
            pod.uid().to_owned(),
            Placed {
                node: node.to_owned(),
                assumed,
            },
        );
    }

    fn take_pod(&mut self, uid: &str) -> bool {
        let Some(placed) = self.pods.remove(uid) else {
            return false;
        };
        self.node_mut(&placed.node).remove_pod(uid);
        if self
            .strays
            .get(&placed.node)
            .is_some_and(|stray| stray.pods.is_empty())
        {
            self.strays.remove(&placed.node);
        }
        true
    }
}

/// The cache.
#[derive(Default)]
pub struct Cache {
    inner: Mutex<Inner>,
}

impl Cache {
    /// Returns a snapshot of the current state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        // Copy on write: no attempt waits for another, and an attempt sees one state throughout.
        self.inner.lock().snapshot.clone()
    }

    /// Records an added or changed node.
    pub fn set_node(&self, node: &Arc<Node>) {
        let Some(name) = node.metadata.name.as_deref() else {
            return;
        };
        let mut inner = self.inner.lock();
        // Pods that came before their node are already counted in the stray entry.
        if !inner.snapshot.by_name.contains_key(name) {
            let info = inner
                .strays
                .remove(name)
                .unwrap_or_else(|| NodeInfo::new(name));
            inner.snapshot_mut().push_node(Arc::new(info));
        }
        let info = inner.node_mut(name);
        // The number of nodes with an image is kept up to date by differences. Counting all nodes
        // again made each node update cost as much as the cluster is large.
        let before = info.images.clone();
        info.set_node(node.clone());
        let after = info.images.clone();
        if before != after {
            inner.snapshot_mut().change_images(&before, &after);
        }
    }

    /// Removes a deleted node; its pods are kept until they are deleted, too.
    pub fn remove_node(&self, name: &str) {
        let mut inner = self.inner.lock();
        if !inner.snapshot.by_name.contains_key(name) {
            return;
        }
        let Some(info) = inner.snapshot_mut().remove_node(name) else {
            return;
        };
        // The pods are not deleted with the node. If it comes back, under the same name, they still
        // use its resources.
        if !info.pods.is_empty() {
            let mut stray = NodeInfo::new(name);
            info.pods.iter().for_each(|pod| stray.add_pod(pod.clone()));
            inner.strays.insert(name.to_owned(), stray);
        }
    }

    /// Records an added or changed bound pod.
    pub fn set_pod(&self, pod: &Arc<PodInfo>) {
        self.inner.lock().place_pod(pod, pod.node_name(), false);
    }

    /// Removes a bound pod.
    pub fn remove_pod(&self, uid: &str) {
        self.inner.lock().take_pod(uid);
    }

    /// Assumes a pod on its chosen node.
    pub fn assume_pod(&self, pod: &Arc<PodInfo>, node: &str) {
        self.inner.lock().place_pod(pod, node, true);
    }

    /// Forgets an assumed pod after its binding failed, unless the informer has shown it bound.
    pub fn forget_pod(&self, uid: &str) {
        let mut inner = self.inner.lock();
        // A binding whose response was lost fails here, yet is in effect. Once the informer has
        // shown it, the pod stays.
        if inner.pods.get(uid).is_some_and(|placed| placed.assumed) {
            inner.take_pod(uid);
        }
    }

    /// Returns whether a pod counts on a node.
    pub fn has_pod(&self, uid: &str) -> bool {
        self.inner.lock().pods.contains_key(uid)
    }

    /// Sets or removes the labels of a namespace.
    pub fn set_namespace(&self, name: &str, labels: Option<Labels>) {
        let mut inner = self.inner.lock();
        let namespaces = Arc::make_mut(&mut inner.snapshot_mut().namespaces);
        match labels {
            Some(labels) => drop(namespaces.insert(name.to_owned(), labels)),
            None => drop(namespaces.remove(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn node(name: &str) -> Arc<Node> {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}})).unwrap())
    }

    fn pod(name: &str, node: &str) -> Arc<PodInfo> {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
        let object = json!({"metadata": {"name": name, "uid": name}, "spec": spec});
        Arc::new(PodInfo::new(Arc::new(
            serde_json::from_value(object).unwrap(),
        )))
    }

    fn used(cache: &Cache, node: &str) -> Option<i64> {
        cache
            .snapshot()
            .node(node)
            .map(|info| info.requested.milli_cpu)
    }

    #[test]
    fn assumed_pods_count_until_forgotten() {
        let cache = Cache::default();
        cache.set_node(&node("a"));
        let before = cache.snapshot();
        cache.assume_pod(&pod("p", ""), "a");
        assert_eq!(before.node("a").unwrap().requested.milli_cpu, 0);
        assert_eq!(used(&cache, "a"), Some(1000));
        cache.forget_pod("p");
        assert_eq!(used(&cache, "a"), Some(0));
        cache.assume_pod(&pod("p", ""), "a");
        cache.set_pod(&pod("p", "a"));
        cache.forget_pod("p");
        assert_eq!(used(&cache, "a"), Some(1000));
        cache.remove_pod("p");
        assert_eq!(used(&cache, "a"), Some(0));
    }

    #[test]
    fn pods_may_come_before_their_node() {
        let cache = Cache::default();
        cache.set_pod(&pod("p", "a"));
        assert_eq!(used(&cache, "a"), None);
        cache.set_node(&node("a"));
        assert_eq!(used(&cache, "a"), Some(1000));
        cache.remove_node("a");
        cache.set_node(&node("a"));
        assert_eq!(used(&cache, "a"), Some(1000));
    }

    #[test]
    fn pod_that_the_informer_shows_on_another_node_counts_only_there() {
        let cache = Cache::default();
        cache.set_node(&node("a"));
        cache.set_node(&node("b"));
        cache.assume_pod(&pod("p", ""), "a");
        cache.set_pod(&pod("p", "b"));
        assert_eq!(
            (used(&cache, "a"), used(&cache, "b")),
            (Some(0), Some(1000))
        );
    }

    #[test]
    fn snapshot_of_an_attempt_does_not_change() {
        let cache = Cache::default();
        cache.set_node(&node("a"));
        let snapshot = cache.snapshot();
        cache.set_node(&node("b"));
        cache.remove_node("a");
        let names: Vec<&str> = snapshot.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["a"]);
        assert!(cache.snapshot().node("a").is_none());
    }
}
