//! The scheduling framework, without any IO.
//!
//! A [`Snapshot`] of nodes and their pods, a [`CycleState`] for one attempt, and a trait for each
//! extension point of upstream's scheduling framework. [`cycle`] runs a profile's plugins over a
//! snapshot and returns a decision; the scheduler core executes it.

pub mod cycle;
mod diagnosis;
mod event;
mod host_ports;
mod node;
mod plugin;
mod pod;
mod profile;
mod resources;
mod snapshot;
mod state;
mod waiting;

pub use diagnosis::{Code, Diagnosis, Rejection};
pub use event::{ClusterEvent, EventKind};
pub use host_ports::{HostPort, PortTable};
pub use node::{ImageState, Images, NodeInfo};
pub use plugin::{
    Bind, BindError, Eviction, Filter, Permit, PermitOutcome, PluginsRunner, PostBind, PostFilter,
    PostFilterResult, PreBind, PreEnqueue, PreFilter, PreFilterResult, PreScore, QueueSort, Rank,
    Reserve, Score,
};
pub use pod::{AffinityTerm, PodInfo};
pub use profile::{ExtensionPoints, Plugin, Profile, Weighted};
pub use resources::Resources;
pub use snapshot::{ClaimView, Cluster, Snapshot};
pub use state::CycleState;
pub use waiting::{Wait, WaitingPods};

/// Maximum score of a node after normalization.
pub const MAX_NODE_SCORE: i64 = 100;
