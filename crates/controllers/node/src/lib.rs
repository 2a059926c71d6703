//! Controllers of nodes: health, taints, pod networks, and garbage collection of pods.

pub mod evict;
pub mod ipam;
pub mod lifecycle;
pub mod pod_gc;

pub use evict::taint_eviction;
pub use ipam::ipam;
pub use lifecycle::lifecycle;
pub use pod_gc::pod_gc;
