//! The extension points, one trait each.
//!
//! A plugin implements [`crate::Plugin`] and the traits of its extension points, and registers
//! itself with each. All decisions are pure; only PreBind and Bind may wait for the cluster.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::diagnosis::{Diagnosis, Rejection};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::snapshot::Snapshot;
use crate::state::CycleState;

/// Sort key in the queue; the lowest is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub i64, pub i128);

/// Orders the queue.
pub trait QueueSort: Send + Sync {
    /// Returns the rank of a pod that entered the queue, or last failed, at `since` (nanoseconds).
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank;
}

/// Decides whether a pod may enter the queue.
pub trait PreEnqueue: Send + Sync {
    /// Returns a rejection; None if the pod may enter the queue.
    fn pre_enqueue(&self, pod: &PodInfo) -> Option<Rejection>;
}

/// The result of a PreFilter plugin.
#[derive(Debug)]
pub enum PreFilterResult {
    /// All nodes are possible.
    All,
    /// All nodes are possible, and the plugin's Filter is skipped.
    Skip,
    /// Only these nodes are possible.
    Nodes(HashSet<String>),
    /// No node is possible.
    Reject(Rejection),
}

/// Inspects the pod and the whole cluster before nodes are filtered.
pub trait PreFilter: Send + Sync {
    /// Prepares the state for Filter.
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> PreFilterResult;

    /// Updates the prepared state as if `added` were on `node`.
    fn add_pod(&self, _state: &mut CycleState, _pod: &PodInfo, _added: &PodInfo, _node: &NodeInfo) {
    }

    /// Updates the prepared state as if `removed` were not on `node`.
    fn remove_pod(
        &self,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _removed: &PodInfo,
        _node: &NodeInfo,
    ) {
    }
}

/// Decides whether a node can run the pod.
pub trait Filter: Send + Sync {
    /// Returns an error if the node can't run the pod.
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection>;
}

/// A preemption victim.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The node.
    pub node: String,
}

/// The result of a PostFilter plugin.
#[derive(Debug, Default)]
pub struct PostFilterResult {
    /// Nominated node; an empty name clears an earlier nomination.
    pub nominate: Option<String>,
    /// Pods to evict.
    pub evict: Vec<Eviction>,
    /// Claims whose devices are to be freed, as the plugin read them.
    pub deallocate: Vec<Arc<ResourceClaim>>,
    /// Message for the event and the condition.
    pub message: String,
}

/// Runs the PreFilter and Filter plugins of a profile for PostFilter plugins, which try out
/// changes.
pub trait PluginsRunner {
    /// Returns the snapshot.
    fn snapshot(&self) -> &Snapshot;

    /// Returns the node that a pod is nominated to in memory; the status may lag behind.
    fn nominated_node(&self, pod: &PodInfo) -> Option<Arc<str>>;

    /// Runs the filters with the node's nominated pods of equal or higher priority, and again
    /// without them: the pod must fit whether or not they arrive.
    fn run_filters_with_nominated_pods(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<(), Rejection>;

    /// Adds a pod to a node and to the state.
    fn add_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        added: &Arc<PodInfo>,
        node: &mut NodeInfo,
    );

    /// Removes a pod from a node and from the state.
    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &Arc<PodInfo>,
        node: &mut NodeInfo,
    );
}

/// Tries to make an unschedulable pod schedulable.
pub trait PostFilter: Send + Sync {
    /// Decides what to do about the unschedulable pod; must be pure.
    fn post_filter(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        diagnosis: &Diagnosis,
        runner: &dyn PluginsRunner,
    ) -> PostFilterResult;
}

/// Prepares scoring.
pub trait PreScore: Send + Sync {
    /// Returns false if the plugin's Score does not apply to this pod.
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &[Arc<NodeInfo>],
        snapshot: &Snapshot,
    ) -> bool;
}

/// Scores nodes.
pub trait Score: Send + Sync {
    /// Returns the score; higher is better, 0 to 100 after normalization.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot)
    -> i64;

    /// Scales the scores of all nodes to 0 to 100.
    fn normalize_scores(
        &self,
        _state: &CycleState,
        _pod: &PodInfo,
        _nodes: &[Arc<NodeInfo>],
        _scores: &mut [i64],
    ) {
    }
}

/// Reserves resources of the plugin's own for a pod with a chosen node.
pub trait Reserve: Send + Sync {
    /// Reserves the resources, or rejects the pod.
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> Result<(), Rejection>;

    /// Releases the resources.
    fn unreserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str);
}

/// The result of a Permit plugin.
#[derive(Debug)]
pub enum PermitOutcome {
    /// Bind the pod.
    Allow,
    /// Wait at most this long until the plugin allows the pod through [`crate::WaitingPods`]; then
    /// reject it.
    Wait(Duration),
    /// Do not bind the pod.
    Reject(Rejection),
}

/// Delays or rejects a binding.
pub trait Permit: Send + Sync {
    /// Decides whether to bind.
    fn permit(&self, state: &CycleState, pod: &PodInfo, node: &str) -> PermitOutcome;
}

/// A failed binding.
#[derive(Debug, thiserror::Error)]
#[error("plugin {plugin:?}: {message}")]
pub struct BindError {
    /// The plugin.
    pub plugin: &'static str,
    /// The reason.
    pub message: String,
}

/// Work before the binding, such as binding volumes.
#[async_trait]
pub trait PreBind: Send + Sync {
    /// Performs the work.
    async fn pre_bind(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &str,
    ) -> Result<(), BindError>;
}

/// Writes the Binding.
#[async_trait]
pub trait Bind: Send + Sync {
    /// Returns true if the plugin bound the pod, false if the next plugin is to bind it.
    async fn bind(&self, pod: &PodInfo, node: &str) -> Result<bool, BindError>;
}

/// Runs after a binding.
pub trait PostBind: Send + Sync {
    /// Handles a bound pod.
    fn post_bind(&self, pod: &PodInfo, node: &str);
}
