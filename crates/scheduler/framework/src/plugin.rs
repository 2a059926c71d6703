//! The extension points, one trait each.
//!
//! A plugin implements [`Plugin`] and the traits of the points that it extends, and registers itself with
//! each in [`Plugin::extend`]. All decisions are pure; PreBind and Bind alone may wait for the cluster.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::cycle::Feasibility;
use crate::diagnosis::{Diagnosis, Rejection};
use crate::event::{ClusterEvent, EventKind};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::profile::Points;
use crate::snapshot::{Cluster, Snapshot};
use crate::state::CycleState;

/// A plugin: how it is made and where it takes part.
pub trait Plugin: Send + Sync + Sized + 'static {
    /// Its name in configuration, messages and metrics.
    const NAME: &'static str;

    /// Makes it from its arguments (`null` if none are configured) and its view of the cluster.
    ///
    /// # Errors
    /// A sentence that names the argument.
    fn new(args: &Value, cluster: &Arc<dyn Cluster>) -> Result<Self, String>;

    /// Registers it with each extension point that it implements.
    fn extend(self: Arc<Self>, points: &mut Points);

    /// Kinds of changes that may help a pod that this plugin rejected; [`Plugin::hint`] sees no others.
    fn events(&self) -> &'static [EventKind] {
        EventKind::ALL
    }

    /// Returns true if a change may make room for a pod that this plugin rejected. True when in doubt.
    fn hint(&self, _pod: &PodInfo, _event: &ClusterEvent) -> bool {
        true
    }
}

/// Place in the queue; the lowest is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub i64, pub i128);

/// Orders the queue.
pub trait QueueSort: Send + Sync {
    /// Returns the place of a pod that entered the queue, or was last tried, at `since` (nanoseconds).
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank;
}

/// Decides whether a pod may enter the queue.
pub trait PreEnqueue: Send + Sync {
    /// None if it may.
    fn pre_enqueue(&self, pod: &PodInfo) -> Option<Rejection>;
}

/// What PreFilter found.
#[derive(Debug)]
pub enum PreFilterOutcome {
    /// Any node may do.
    All,
    /// Any node may do, and the plugin's Filter has nothing to check.
    Skip,
    /// Only these nodes may do.
    Nodes(HashSet<String>),
    /// No node does.
    Reject(Rejection),
}

/// Looks at the pod and the whole cluster before nodes are looked at.
pub trait PreFilter: Send + Sync {
    /// Prepares the filter.
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> PreFilterOutcome;

    /// Corrects the prepared state as if `added` were on `node`.
    fn add_pod(&self, _state: &mut CycleState, _pod: &PodInfo, _added: &PodInfo, _node: &NodeInfo) {}

    /// Corrects the prepared state as if `removed` were not on `node`.
    fn remove_pod(&self, _state: &mut CycleState, _pod: &PodInfo, _removed: &PodInfo, _node: &NodeInfo) {}
}

/// Says whether a node will do.
pub trait Filter: Send + Sync {
    /// Err if it will not.
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection>;
}

/// A pod to be removed to make room.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The node.
    pub node: String,
}

/// What PostFilter decided.
#[derive(Debug, Default)]
pub struct PostFilterOutcome {
    /// Node on which room is being made; an empty name clears an earlier one.
    pub nominate: Option<String>,
    /// Pods to remove.
    pub evict: Vec<Eviction>,
    /// For the event and the condition.
    pub message: String,
}

/// Looks for a way when no node will do.
pub trait PostFilter: Send + Sync {
    /// Decides; pure.
    fn post_filter(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        diagnosis: &Diagnosis,
        feasibility: &Feasibility<'_>,
    ) -> PostFilterOutcome;
}

/// Prepares scoring.
pub trait PreScore: Send + Sync {
    /// False if the plugin's Score has nothing to say about this pod.
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, nodes: &[Arc<NodeInfo>], snapshot: &Snapshot) -> bool;
}

/// Says how good a node is.
pub trait Score: Send + Sync {
    /// Higher is better; 0 to 100 after normalisation.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64;

    /// Brings the scores of all nodes into 0 to 100.
    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, _nodes: &[Arc<NodeInfo>], _scores: &mut [i64]) {}
}

/// Keeps resources of its own for a pod that has a node.
pub trait Reserve: Send + Sync {
    /// Keeps them, or says why not.
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> Result<(), Rejection>;

    /// Gives them back.
    fn unreserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str);
}

/// What Permit decided.
#[derive(Debug)]
pub enum PermitOutcome {
    /// Bind.
    Allow,
    /// Wait at most so long for the plugin to allow it through [`crate::WaitingPods`]; then it is rejected.
    Wait(Duration),
    /// Do not bind.
    Reject(Rejection),
}

/// Holds up or forbids a binding.
pub trait Permit: Send + Sync {
    /// Decides.
    fn permit(&self, state: &CycleState, pod: &PodInfo, node: &str) -> PermitOutcome;
}

/// A binding that failed.
#[derive(Debug, thiserror::Error)]
#[error("plugin {plugin:?}: {message}")]
pub struct BindError {
    /// The plugin.
    pub plugin: &'static str,
    /// Why.
    pub message: String,
}

/// Work before the binding.
#[async_trait]
pub trait PreBind: Send + Sync {
    /// Does it.
    async fn pre_bind(&self, state: &CycleState, pod: &PodInfo, node: &str) -> Result<(), BindError>;
}

/// Binds.
#[async_trait]
pub trait Bind: Send + Sync {
    /// True if it did, false if it leaves the pod to the next plugin.
    async fn bind(&self, pod: &PodInfo, node: &str) -> Result<bool, BindError>;
}

/// Hears of a binding.
pub trait PostBind: Send + Sync {
    /// The pod is bound.
    fn post_bind(&self, pod: &PodInfo, node: &str);
}
