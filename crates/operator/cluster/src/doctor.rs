//! `ironclad doctor`: the problems of a cluster, each with a command that helps.

mod finding;
mod machine;
mod objects;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use client::{Api, Client, ListParams, Object, ObjectExt, Request};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Serialize;

use crate::admin_kubeconfig::connect_admin_anywhere;
use crate::certificates::list_certificates;
use crate::error::Result;
use crate::layout::Layout;
use crate::process::{Record, read_boot_time};
use crate::published;
use crate::settings::Settings;
use crate::status::cluster_status;
use crate::store_members::Warning;
pub use finding::{Finding, Severity};

/// The result of an examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The areas that were examined.
    pub examined: Vec<&'static str>,
    /// The problems, errors first.
    pub findings: Vec<Finding>,
}

/// Examines the cluster in `data_dir`, or this machine's part of another cluster. Changes nothing.
pub async fn diagnose(data_dir: &Path) -> Result<Diagnosis> {
    let report = cluster_status(data_dir).await?;
    let now = Timestamp::now();
    let mut examined = vec!["components", "certificates", "disk"];
    let mut findings = machine::examine_components(&report);
    match list_certificates(data_dir) {
        Ok(all) => findings.extend(machine::examine_certificates(&all, now)),
        Err(error) => findings.push(Finding::new(
            Severity::Warning,
            "certificates",
            error.to_string(),
            "ironclad certs list",
        )),
    }
    findings.extend(machine::examine_disk(data_dir));
    let warnings = report.warnings.iter();
    findings.extend(warnings.map(|Warning { problem, remedy }| {
        Finding::new(Severity::Warning, "control plane", problem, remedy)
    }));
    let settings = Settings::load_existing(data_dir)?;
    let layout = Layout::for_settings(&settings);
    findings.extend(machine::examine_upgrade(&layout));
    // A node may not read what the rest needs.
    if !report.is_joined && machine::is_started(&report) {
        examined.push("API server");
        let client = connect_admin_anywhere(&settings, &layout)?;
        match examine_objects(&client, now, &layout).await {
            Ok(problems) => {
                examined.extend(OBJECTS);
                findings.extend(problems);
            }
            Err(problem) => findings.push(Finding::new(
                Severity::Error,
                "API server",
                problem,
                format!("tail -n 50 {}", layout.log("kube-apiserver").display()),
            )),
        }
    }
    findings.sort_by(|a, b| (a.severity, &a.subject).cmp(&(b.severity, &b.subject)));
    Ok(Diagnosis { examined, findings })
}

/// The areas that `examine_objects` examines.
const OBJECTS: [&str; 6] = [
    "nodes",
    "pods",
    "namespaces",
    "leaders",
    "extension API servers",
    "admission webhooks",
];

/// Examines the objects of the API. The error says why the API server does not answer.
async fn examine_objects(
    client: &Client,
    now: Timestamp,
    layout: &Layout,
) -> std::result::Result<Vec<Finding>, String> {
    // The names of failed checks say more than the failure of every list below.
    let ready = client.bytes(Request::get("/readyz")).await;
    ready.map_err(|error| objects::describe_unready(&error.to_string()))?;
    let services = client.dynamic(&objects::api_services(), None);
    let leases = client.namespaced::<Lease>(published::NAMESPACE);
    let mut findings = Vec::new();
    let nodes = list(&client.api::<Node>()).await?;
    findings.extend(nodes.iter().flat_map(objects::examine_node));
    let pods = list(&client.api::<Pod>()).await?;
    findings.extend(pods.iter().filter_map(|pod| objects::examine_pod(pod, now)));
    let namespaces = list(&client.api::<Namespace>()).await?;
    let namespaces = namespaces.iter();
    findings.extend(namespaces.filter_map(|namespace| objects::examine_namespace(namespace, now)));
    let leases = list(&leases).await?;
    findings.extend(leases.iter().filter_map(|lease| {
        let find_age = || find_age(layout, &["kube-apiserver", lease.name()]);
        objects::examine_lease(lease, now, find_age)
    }));
    let services = list(&services).await?;
    findings.extend(services.iter().filter_map(objects::examine_api_service));
    findings.extend(examine_webhooks(client).await?);
    Ok(findings)
}

/// Returns the age of the youngest of these processes; None if none runs.
fn find_age(layout: &Layout, names: &[&str]) -> Option<Duration> {
    let records = names
        .iter()
        .filter_map(|name| Record::load(&layout.record(name)))
        .filter(Record::is_alive);
    let started = records.map(|record| record.started()).max()?;
    Some(read_boot_time().saturating_sub(started))
}

/// Examines the webhooks whose failure rejects requests.
async fn examine_webhooks(client: &Client) -> std::result::Result<Vec<Finding>, String> {
    let mut strict = Vec::new();
    for kind in webhooks::list_configuration_kinds() {
        let configurations = list(&client.dynamic(&kind, None)).await?;
        let found = configurations
            .iter()
            .flat_map(|configuration| webhooks::find_strict_webhooks(&kind, configuration));
        strict.extend(found);
    }
    let find_key = |webhook: &webhooks::StrictWebhook| {
        let service = webhook.service()?;
        Some((service.namespace.clone(), service.name.clone()))
    };
    // Each Service once: an operator has dozens of webhooks behind one of them.
    let keys: BTreeSet<_> = strict.iter().filter_map(find_key).collect();
    let mut backends = BTreeMap::new();
    for (namespace, name) in keys {
        let backend = read_backend(client, &namespace, &name).await;
        backends.insert((namespace, name), backend);
    }
    let examine = |webhook: &webhooks::StrictWebhook| {
        webhook.examine(find_key(webhook).and_then(|key| backends.get(&key)))
    };
    Ok(strict.iter().filter_map(examine).collect())
}

/// Reads the Service of a webhook. Its name may be no valid label value: an error is about this
/// Service, and not about the API server.
async fn read_backend(client: &Client, namespace: &str, name: &str) -> webhooks::BackendResult {
    let service = client.namespaced::<Service>(namespace).get_opt(name).await;
    let service = service.map_err(|error| format!("services can't be read: {error}"))?;
    if service.is_none() {
        return Ok(webhooks::Backend::default());
    }
    let selector = format!("{}={name}", webhooks::SERVICE_LABEL);
    let slices = client
        .namespaced::<EndpointSlice>(namespace)
        .list(&ListParams::new().with_labels(selector))
        .await
        .map_err(|error| format!("endpointslices can't be listed: {error}"))?;
    Ok(webhooks::Backend {
        service,
        slices: slices.items,
    })
}

async fn list<K: Object>(api: &Api<K>) -> std::result::Result<Vec<K>, String> {
    let found = api.list(&ListParams::default()).await;
    let found =
        found.map_err(|error| format!("{} can't be listed: {error}", api.resource().plural));
    Ok(found?.items)
}
