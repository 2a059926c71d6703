//! Metrics of the kubelet itself.

use crate::context::KubeletContext;
use base_telemetry::MetricsPage;

/// Renders `/metrics`. The values are computed on request, so that they cost nothing between
/// scrapes.
pub(crate) fn format_metrics(kubelet: &KubeletContext) -> String {
    let all = kubelet.workers.all();
    let containers = all
        .iter()
        .flat_map(|s| s.observed.iter_containers())
        .filter(|i| i.is_running())
        .count();
    let pods = all.iter().filter(|s| s.active).count();
    let mut page = MetricsPage::default();
    let mut gauge = |name: &str, help: &str, value: usize| page.gauge(name, help, value as f64);
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
    // The end of a page in the OpenMetrics format, the media type of this page.
    page.finish() + "# EOF\n"
}
