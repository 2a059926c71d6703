//! The built-in plugins, one type each, and their registry.
//!
//! A new plugin needs one line in [`registry`]. Names, reasons and default weights are upstream's.

mod balanced_allocation;
mod default_binder;
mod default_preemption;
mod dynamic_resources;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_fit;
mod node_unschedulable;
mod pod_topology_spread;
mod priority_sort;
mod registry;
mod scheduling_gates;
mod score;
mod taint_toleration;
#[cfg(test)]
mod testing;
mod volume_binding;

pub use default_binder::DefaultBinder;
pub use dynamic_resources::DynamicResourceBinder;
pub use registry::{Entry, default_plugins, plugin_registry};
pub use volume_binding::VolumeBinder;
