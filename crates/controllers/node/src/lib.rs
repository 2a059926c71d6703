//! Controllers of nodes: health, taints, pod networks, and garbage collection of pods.

pub mod evict;
pub mod ipam;
pub mod lifecycle;
pub mod pod_gc;

pub use evict::add_taint_eviction;
pub use ipam::add_node_ipam;
pub use lifecycle::add_node_lifecycle;
pub use pod_gc::add_pod_gc;
