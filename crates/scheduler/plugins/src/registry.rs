//! The plugin registry.

use std::sync::Arc;

use scheduler_framework::{Cluster, ExtensionPoints, Plugin};
use serde_json::Value;

use crate::balanced_allocation::BalancedAllocation;
use crate::default_preemption::DefaultPreemption;
use crate::dynamic_resources::DynamicResources;
use crate::image_locality::ImageLocality;
use crate::inter_pod_affinity::InterPodAffinity;
use crate::node_affinity::NodeAffinity;
use crate::node_name::NodeName;
use crate::node_ports::NodePorts;
use crate::node_resources_fit::Fit;
use crate::node_unschedulable::NodeUnschedulable;
use crate::pod_topology_spread::PodTopologySpread;
use crate::priority_sort::PrioritySort;
use crate::scheduling_gates::SchedulingGates;
use crate::taint_toleration::TaintToleration;
use crate::volume_binding::VolumeBinding;

type Make = fn(&Value, &Arc<dyn Cluster>, &mut ExtensionPoints) -> Result<(), String>;

/// A plugin that profiles may name.
pub struct Entry {
    /// Name.
    pub name: &'static str,
    /// Creates the plugin and registers it with its extension points.
    pub make: Make,
}

fn plugin_entry<P: Plugin>() -> Entry {
    let make: Make = |args, cluster, points| {
        points.add_plugin(P::new(args, cluster)?);
        Ok(())
    };
    Entry {
        name: P::NAME,
        make,
    }
}

/// Returns all plugins except those that need a client (`DefaultBinder`), in upstream's default
/// order.
pub fn plugin_registry() -> Vec<Entry> {
    vec![
        plugin_entry::<SchedulingGates>(),
        plugin_entry::<PrioritySort>(),
        plugin_entry::<NodeUnschedulable>(),
        plugin_entry::<NodeName>(),
        plugin_entry::<TaintToleration>(),
        plugin_entry::<NodeAffinity>(),
        plugin_entry::<NodePorts>(),
        plugin_entry::<Fit>(),
        plugin_entry::<VolumeBinding>(),
        plugin_entry::<PodTopologySpread>(),
        plugin_entry::<InterPodAffinity>(),
        // Before preemption: an idle claim is freed before a pod is evicted.
        plugin_entry::<DynamicResources>(),
        plugin_entry::<DefaultPreemption>(),
        plugin_entry::<BalancedAllocation>(),
        plugin_entry::<ImageLocality>(),
    ]
}

/// Returns the plugins of the default profile with the weights of their scores.
pub fn default_plugins() -> Vec<(&'static str, i64)> {
    let weight = |name: &str| match name {
        // Upstream's weights: what users ask for explicitly outweighs what the scheduler prefers by
        // itself.
        "TaintToleration" => 3,
        "NodeAffinity" | "PodTopologySpread" | "InterPodAffinity" | "DynamicResources" => 2,
        _ => 1,
    };
    let names = plugin_registry().into_iter().map(|entry| entry.name);
    names
        // Not in the registry, since it needs a client, but part of the profile.
        .chain([crate::DefaultBinder::NAME])
        .map(|name| (name, weight(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_profile_has_upstream_s_weights() {
        let weights: std::collections::HashMap<_, _> = default_plugins().into_iter().collect();
        for (name, want) in [
            ("TaintToleration", 3),
            ("NodeAffinity", 2),
            ("PodTopologySpread", 2),
            ("InterPodAffinity", 2),
            ("DynamicResources", 2),
            ("NodeResourcesFit", 1),
            ("NodeResourcesBalancedAllocation", 1),
            ("ImageLocality", 1),
        ] {
            assert_eq!(weights.get(name), Some(&want), "{name}");
        }
        assert!(weights.contains_key("DefaultBinder"));
    }
}
