//! Controllers of nodes: their health, their taints, their share of the pod network, their leftovers.

pub mod evict;
pub mod ipam;
pub mod lifecycle;
pub mod pod_gc;

pub use evict::taint_eviction;
pub use ipam::ipam;
pub use lifecycle::lifecycle;
pub use pod_gc::pod_gc;
