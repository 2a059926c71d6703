//! Metrics of the kubelet itself.

use crate::context::Node;
use std::fmt::Write;

/// The text of `/metrics`: few and computed when asked for, so that they cost nothing while nobody asks.
pub(crate) fn text(node: &Node) -> String {
    let all = node.workers.all();
    let containers = all.iter().flat_map(|s| s.observed.all()).filter(|i| i.running()).count();
    let pods = all.iter().filter(|s| s.active).count();
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, value: usize| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    };
    gauge("kubelet_running_pods", "Number of pods that have a running pod sandbox.", pods);
    gauge("kubelet_running_containers", "Number of containers currently running.", containers);
    gauge("kubelet_desired_pods", "Number of pods that this node looks after.", all.len());
    text.push_str("# EOF\n");
    text
}
