//! `/metrics`, in Prometheus' text format 0.0.4 with upstream's names.
//!
//! Not with a registry: it writes the OpenMetrics form, whose TYPE lines name counters differently
//! from what upstream's dashboards and tests expect.

use crate::body::Body;
use crate::respond;
use crate::server::Server;
use apiserver_storage::LatencyMetrics;
use apiserver_webhook::MatchConditionMetrics;
use base_telemetry::{FileDescriptors, MetricsPage, format_labels};
use http::Response;

/// Responds with the page.
pub fn respond_metrics(server: &Server) -> Response<Body> {
    let mut page = MetricsPage::default();
    server.metrics.write_requests(&mut page);
    server.metrics.write_activity(&mut page);
    write_stored_objects(&mut page, server);
    server.metrics.write_authentication(&mut page);
    if let Some(accounts) = server.authn.accounts() {
        accounts.metrics().write_metrics(&mut page);
    }
    server.authz.write_metrics(&mut page);
    if let Some(jwt) = server.authn.jwt() {
        jwt.metrics().write_metrics(&mut page);
    }
    write_parts(&mut page, server);
    server.webhook_metrics.write_metrics(&mut page);
    server.conversion_metrics.write_metrics(&mut page);
    server.policy_metrics.write_metrics(&mut page);
    let conditions = [
        &server.webhook_metrics.conditions,
        &server.policy_metrics.conditions,
    ];
    MatchConditionMetrics::write_all(&conditions, &mut page);
    server.registry.admission_steps().write_metrics(&mut page);
    server.feature_gates.write_metrics(&mut page);
    page.write_process(FileDescriptors::read());
    respond::raw_response(
        200,
        "text/plain; version=0.0.4; charset=utf-8",
        page.finish(),
    )
}

fn write_stored_objects(page: &mut MetricsPage, server: &Server) {
    page.head("apiserver_storage_objects", "gauge", "Stored objects.");
    // The caches hold every object, so that counting does not burden the store.
    for cache in server.caches.served().iter_caches() {
        let row = &cache.kind().resource;
        page.sample(
            "apiserver_storage_objects",
            &format_labels(&[("resource", row.group_resource())]),
            cache.len() as f64,
        );
    }
}

/// Writes the latencies of the store and of admission, and the state of other parts.
fn write_parts(page: &mut MetricsPage, server: &Server) {
    write_latencies(
        page,
        "etcd_request_duration_seconds",
        "operation",
        server.store.latencies(),
    );
    let admission = server.registry.admission_latencies();
    write_latencies(
        page,
        "apiserver_admission_controller_admission_duration_seconds",
        "name",
        admission,
    );
    write_certificate_life(page, server);
    write_certificate_files(page, server);
    server.audit_metrics.write_metrics(page);
    let flows = "apiserver_flowcontrol_dispatched_requests_total";
    page.head(
        flows,
        "counter",
        "Requests by the flow schema and level that they were classified to.",
    );
    for (schema, level, count) in server.flow.dispatched_counts() {
        page.sample(
            flows,
            &format_labels(&[("flow_schema", schema), ("priority_level", level)]),
            count as f64,
        );
    }
    page.head(
        "kubernetes_build_info",
        "gauge",
        "The version that is running.",
    );
    page.sample(
        "kubernetes_build_info",
        &format_labels(&[("git_version", crate::version::GIT_VERSION)]),
        1.0,
    );
}

fn write_certificate_life(page: &mut MetricsPage, server: &Server) {
    const NAME: &str = "apiserver_client_certificate_expiration_seconds";
    page.head(
        NAME,
        "histogram",
        "Time left of the certificates that requests came with.",
    );
    page.histogram(NAME, "", &server.authn.certificate_life());
}

fn write_certificate_files(page: &mut MetricsPage, server: &Server) {
    page.add_certificate_expirations(&base_task::blocking(|| {
        server.certificate_files.read_expirations()
    }));
}

/// Writes histograms of operation durations, with the operation in `label`.
fn write_latencies(
    page: &mut MetricsPage,
    name: &str,
    label: &'static str,
    latencies: &LatencyMetrics,
) {
    page.head(name, "histogram", "Time taken, in seconds.");
    for (operation, durations) in latencies.list_histograms() {
        let labels = format_labels(&[(label, operation)]);
        page.histogram(name, &labels, &durations);
    }
}
