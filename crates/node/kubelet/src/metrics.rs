//! Metrics of the kubelet itself.

use crate::context::KubeletContext;
use base_telemetry::MetricsPage;
use jiff::Timestamp;

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
    write_certificate_lifetimes(&mut page, kubelet);
    // The end of a page in the OpenMetrics format, the media type of this page.
    page.finish() + "# EOF\n"
}

/// Writes the remaining lifetime of the node's certificates, infinite without one. Upstream has
/// these metrics only if the kubelet requests its certificates from the cluster.
fn write_certificate_lifetimes(page: &mut MetricsPage, kubelet: &KubeletContext) {
    let client = kubelet
        .client
        .as_ref()
        .and_then(client::Client::certificate);
    let serving = kubelet.serving_certificate.get();
    let serving = serving.and_then(|path| base_task::blocking(|| std::fs::read(path)).ok());
    for (name, help, certificate) in [
        (
            "kubelet_certificate_manager_client_ttl_seconds",
            "Time until the client certificate expires, negative afterwards.",
            client,
        ),
        (
            "kubelet_certificate_manager_server_ttl_seconds",
            "Time until the serving certificate expires, negative afterwards.",
            serving,
        ),
    ] {
        let end = certificate.and_then(|pem| base_tls::find_first_expiration(&pem));
        page.gauge(name, help, seconds_left(end, Timestamp::now()));
    }
}

fn seconds_left(end: Option<i64>, now: Timestamp) -> f64 {
    end.map_or(f64::INFINITY, |end| (end - now.as_second()) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_certificate_has_an_infinite_lifetime() {
        let now = Timestamp::UNIX_EPOCH;
        for (end, want) in [(None, f64::INFINITY), (Some(60), 60.0), (Some(-60), -60.0)] {
            assert_eq!(seconds_left(end, now), want, "{end:?}");
        }
    }
}
