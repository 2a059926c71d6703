//! Metrics of the kubelet itself.

use crate::context::KubeletContext;
use std::fmt::Write;

/// Renders `/metrics`. The values are computed on request, so that they cost nothing between
/// scrapes.
pub(crate) fn text(node: &KubeletContext) -> String {
    let all = node.workers.all();
    let containers = all
        .iter()
        .flat_map(|s| s.observed.all())
        .filter(|i| i.running())
        .count();
    let pods = all.iter().filter(|s| s.active).count();
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, value: usize| {
        // Writing to a String can't fail.
        let _ = writeln!(
            text,
            "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}"
        );
    };
    gauge(
        "kubelet_running_pods",
        "Number of pods that have a running pod sandbox.",
        pods,
    );
    gauge(
        "kubelet_running_containers",
        "Number of containers currently running.",
        containers,
    );
    gauge(
        "kubelet_desired_pods",
        "Number of pods that this node looks after.",
        all.len(),
    );
    text.push_str("# EOF\n");
    text
}
