//! `/livez`, `/readyz`, `/healthz`: lists of named checks.

use crate::body::Body;
use crate::bootstrap_steps::Step;
use crate::context::Context;
use crate::method::method_not_allowed;
use crate::respond;
use crate::server::Server;
use api_meta::ApiError;
use http::{Method, Response};
use std::time::Duration;

/// Timeout of the store's response.
const STORE: Duration = Duration::from_secs(2);

/// Checks that always pass while the process responds; upstream's monitoring expects them by name.
const ALWAYS: [&str; 2] = ["ping", "log"];
/// As upstream, only with such a certificate. It is loaded before the server listens.
const CLIENT_CERTIFICATE: &str = "poststarthook/aggregator-reload-proxy-client-cert";
/// Bootstrap steps by upstream's names.
const HOOKS: [(&str, Step); 15] = [
    ("poststarthook/rbac/bootstrap-roles", Step::Rbac),
    (
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        Step::Objects,
    ),
    (
        "poststarthook/priority-and-fairness-config-producer",
        Step::Objects,
    ),
    ("poststarthook/bootstrap-controller", Step::Service),
    (
        "poststarthook/start-service-ip-repair-controllers",
        Step::Allocations,
    ),
    (
        "poststarthook/start-system-namespaces-controller",
        Step::Namespaces,
    ),
    (
        "poststarthook/start-kubernetes-service-cidr-controller",
        Step::Objects,
    ),
    (
        "poststarthook/start-cluster-authentication-info-controller",
        Step::Objects,
    ),
    (
        "poststarthook/priority-and-fairness-config-consumer",
        Step::Objects,
    ),
    ("poststarthook/priority-and-fairness-filter", Step::Objects),
    (
        "poststarthook/start-kube-apiserver-identity-lease-controller",
        Step::Identity,
    ),
    (
        "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
        Step::Identity,
    ),
    (
        "poststarthook/kube-apiserver-autoregistration",
        Step::ApiServices,
    ),
    (
        "poststarthook/apiservice-status-local-available-controller",
        Step::ApiServices,
    ),
    ("autoregister-completion", Step::ApiServices),
];

/// Upstream's names for the start of the controllers of custom resources.
const CUSTOM_RESOURCES: [&str; 2] = [
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
];
/// Upstream's names for caches that are filled. Admission reads them, and the aggregation layer
/// starts with them.
const CACHES: [&str; 11] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-wait-for-first-sync",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/storage-readiness",
];

struct Check {
    name: String,
    failure: Option<String>,
}

/// Responds to `/livez`, `/readyz`, `/healthz` and to one check below them.
pub async fn respond_health(
    server: &Server,
    context: &Context,
    endpoint: &str,
    one: Option<&str>,
) -> Result<Response<Body>, ApiError> {
    if !matches!(context.method, Method::GET | Method::HEAD) {
        return Err(method_not_allowed());
    }
    let checks = run_checks(server, endpoint).await;
    if let Some(name) = one {
        // With the reason: by default, unauthenticated callers may read the lists, but no single
        // check.
        return Ok(match checks.iter().find(|check| check.name == name) {
            None => respond::text_response(404, "404 page not found\n"),
            Some(check) => single_response(check),
        });
    }
    // Load balancers exclude checks, such as etcd, whose failure all servers share.
    let excluded: Vec<&str> = context.query.all("exclude").collect();
    let failed = checks
        .iter()
        .any(|check| check.failure.is_some() && !excluded.contains(&check.name.as_str()));
    if failed || context.query.first("verbose").is_some() {
        // Probes look at the status only; the report is for operators.
        let code = if failed { 500 } else { 200 };
        return Ok(respond::text_response(
            code,
            format_report(endpoint, &checks, &excluded, failed),
        ));
    }
    Ok(respond::text_response(200, "ok"))
}

fn single_response(check: &Check) -> Response<Body> {
    match &check.failure {
        None => respond::text_response(200, "ok"),
        Some(why) => respond::text_response(500, format!("internal server error: {why}\n")),
    }
}

fn format_report(endpoint: &str, checks: &[Check], excluded: &[&str], failed: bool) -> String {
    let line = |check: &Check| match &check.failure {
        _ if excluded.contains(&check.name.as_str()) => format!("[+]{} excluded: ok\n", check.name),
        None => format!("[+]{} ok\n", check.name),
        // As upstream: these paths may be read without credentials.
        Some(_) => format!("[-]{} failed: reason withheld\n", check.name),
    };
    let mut text: String = checks.iter().map(line).collect();
    text.push_str(&format!(
        "{endpoint} check {}\n",
        if failed { "failed" } else { "passed" }
    ));
    text
}

async fn run_checks(server: &Server, endpoint: &str) -> Vec<Check> {
    let passed = |name: &str| Check {
        name: name.to_owned(),
        failure: None,
    };
    let check = |name: &str, ok: bool, why: &str| Check {
        name: name.to_owned(),
        failure: (!ok).then(|| why.to_owned()),
    };
    let mut all: Vec<Check> = ALWAYS.iter().map(|name| passed(name)).collect();
    if server.aggregation.has_client_certificate() {
        all.push(passed(CLIENT_CERTIFICATE));
    }
    // Once for both checks: with a stalled store, each would take the whole timeout.
    let store = check_store(server).await;
    all.push(Check {
        name: "etcd".into(),
        failure: store.clone(),
    });
    if endpoint == "readyz" {
        all.push(Check {
            name: "etcd-readiness".into(),
            failure: store,
        });
        let synced = server.caches.is_ready();
        all.push(check(
            "informer-sync",
            synced,
            "the caches are not filled yet",
        ));
    }
    // Liveness must not depend on steps that wait for another process.
    let done = |step| server.bootstrapped.is_done(step) || endpoint == "livez";
    all.extend(
        HOOKS
            .iter()
            .map(|(name, step)| check(name, done(*step), "not finished")),
    );
    let synced = server.definitions.is_synced() || endpoint == "livez";
    all.extend(CUSTOM_RESOURCES.map(|name| check(name, synced, "not finished")));
    let filled = server.caches.is_ready() || endpoint == "livez";
    all.extend(CACHES.map(|name| check(name, filled, "the caches are not filled yet")));
    if endpoint == "readyz" {
        let stops = server.stopping.is_cancelled() || server.tasks.shutdown().is_cancelled();
        all.push(check("shutdown", !stops, "process is shutting down"));
    }
    all
}

/// Returns why the store can't be used; None if it can.
async fn check_store(server: &Server) -> Option<String> {
    match tokio::time::timeout(STORE, server.store.current_revision()).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("the store does not answer".into()),
    }
}
