//! Warnings about objects that are valid, but hardly meant so. They reach the client as headers of
//! the response.

mod access;
mod labels;
mod network;
mod placement;
mod pod;
mod ports;
mod service;
mod storage;
mod volumes;

use self::pod::warn_about_pod;
use crate::field::Path;
use crate::ip::ip_warning;
use api_meta::tree::{get, has, int, list, same, text};
use api_meta::{Kind, names};
use serde_json::Value;

/// Returns the warnings about a new object, or a changed one if `old` is given. `subresource` is
/// empty for the object itself. The object must be valid.
pub fn object_warnings(
    kind: Kind<'_>,
    subresource: &str,
    object: &Value,
    old: Option<&Value>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    match (kind.group, kind.kind, subresource) {
        ("", "Pod", "") => warnings_for_pod(object, old, &mut warnings),
        ("", "Pod", "status") => warnings_for_pod_status(object, &mut warnings),
        ("", "PodTemplate", "") => warnings_for_pod_template(object, old, &mut warnings),
        ("apps", "Deployment" | "ReplicaSet", "") | ("", "ReplicationController", "") => {
            warn_about_name(object, old, &mut warnings);
            warnings_for_workload(object, old, &mut warnings);
        }
        ("apps", "DaemonSet", "") => warnings_for_daemon_set(object, old, &mut warnings),
        ("apps", "StatefulSet", "") => warnings_for_stateful_set(object, old, &mut warnings),
        ("batch", "Job", "") => warnings_for_job(object, old, &mut warnings),
        ("batch", "CronJob", "") => warnings_for_cron_job(object, old, &mut warnings),
        ("", "Service", "status") | ("networking.k8s.io", "Ingress", "status") => {
            warnings.extend(service::load_balancer_warnings(object));
        }
        (_, _, "") => warnings.extend(warnings_for_others(kind, object, old)),
        _ => {}
    }
    warnings
}

fn warnings_for_others(kind: Kind<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
    match (kind.group, kind.kind) {
        ("", "Service") => service::service_warnings(object),
        ("", "Endpoints") => network::endpoints_warnings(object),
        ("", "Node") => network::node_warnings(object),
        ("", "Secret") => access::secret_warnings(object).into_iter().collect(),
        ("", "ServiceAccount") => access::service_account_warnings(object, old)
            .into_iter()
            .collect(),
        ("", "ResourceQuota") if old.is_none() => access::quota_warnings(object),
        ("", "PersistentVolume") => storage::volume_warnings(object),
        ("", "PersistentVolumeClaim") => storage::claim_warnings(object),
        ("admissionregistration.k8s.io", _) => admission_warnings(object).into_iter().collect(),
        ("resource.k8s.io", "ResourceSlice") => slice_warnings(object).into_iter().collect(),
        ("storage.k8s.io", "StorageClass") => storage::storage_class_warnings(object),
        ("storage.k8s.io", "CSIStorageCapacity") => storage::storage_capacity_warnings(object),
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver_warnings(object, old),
        ("node.k8s.io", "RuntimeClass") => labels::runtime_class_warnings(object),
        ("networking.k8s.io", "Ingress") if old.is_none() => network::ingress_warnings(object),
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy_warnings(object),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice_warnings(object, old),
        _ => Vec::new(),
    }
}

fn admission_warnings(object: &Value) -> Option<String> {
    const RESERVED: &str = ".static.k8s.io";
    let name = text(get(object, "metadata"), "name");
    name.ends_with(RESERVED).then(|| format!("metadata.name: names ending with {RESERVED:?} are reserved for static manifest-based configurations and cannot be managed via the API"))
}

fn slice_warnings(object: &Value) -> Option<String> {
    let driver = text(get(object, "spec"), "driver");
    (driver != driver.to_lowercase()).then(|| format!("spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"))
}

/// Returns whether an object is new or has a new generation: clients repeat writes, and the
/// warnings of an unchanged spec are known.
fn is_changed(object: &Value, old: Option<&Value>) -> bool {
    let generation = |object| int(get(object, "metadata"), "generation");
    old.is_none_or(|old| generation(object) != generation(old))
}

fn join_problems(name: &str) -> Option<String> {
    let problems = names::dns1123_label(name);
    (!problems.is_empty()).then(|| format!("[{}]", problems.join(" ")))
}

fn warn_about_name(object: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    let problems = join_problems(text(get(object, "metadata"), "name"));
    if let (None, Some(problems)) = (old, problems) {
        warnings.push(format!("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: {problems}"));
    }
}

fn warnings_for_pod(object: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    // Changes of pods are frequent and come from programs.
    if old.is_some() {
        return;
    }
    if let Some(problems) = join_problems(text(get(object, "metadata"), "name")) {
        warnings.push(format!("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: {problems}"));
    }
    warn_about_pod(object, &Path::ROOT, warnings);
}

fn warnings_for_pod_status(object: &Value, warnings: &mut Vec<String>) {
    let path = Path::ROOT.child("status");
    for field in ["podIPs", "hostIPs"] {
        let at = path.child(field);
        for (i, item) in list(get(object, "status"), field).iter().enumerate() {
            warnings.extend(ip_warning(&at.index(i).child("ip"), text(item, "ip")));
        }
    }
}

fn warnings_for_pod_template(object: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if is_changed(object, old) {
        warn_about_pod(
            get(object, "template"),
            &Path::ROOT.child("template"),
            warnings,
        );
    }
}

fn warnings_for_workload(object: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if is_changed(object, old) {
        let path = Path::ROOT.child("spec");
        warn_about_pod(
            get(get(object, "spec"), "template"),
            &path.child("template"),
            warnings,
        );
    }
}

fn warnings_for_daemon_set(object: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    let is_same = |old: &Value| same(get(object, "spec"), get(old, "spec"), "template");
    if !old.is_some_and(is_same) {
        warnings_for_workload(object, None, warnings);
    }
}

fn warnings_for_stateful_set(object: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    warnings_for_workload(object, old, warnings);
    let spec = get(object, "spec");
    let path = Path::ROOT.child("spec");
    let at = path.child("volumeClaimTemplates");
    for (i, claim) in list(spec, "volumeClaimTemplates").iter().enumerate() {
        let at = at.index(i);
        // Upstream's paths of the two writes differ.
        match old {
            None => volumes::warn_about_claim(get(claim, "spec"), &at, warnings),
            Some(_) => volumes::warn_about_claim(get(claim, "spec"), &at.child("Spec"), warnings),
        }
    }
    if int(spec, "revisionHistoryLimit").is_some_and(|n| n < 0) {
        warnings.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned());
    }
}

fn warnings_for_job(object: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    warn_about_name(object, old, warnings);
    if is_changed(object, old) {
        warn_about_job(get(object, "spec"), &Path::ROOT.child("spec"), warnings);
    }
}

fn warnings_for_cron_job(object: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    warn_about_name(object, old, warnings);
    let spec = get(object, "spec");
    if is_changed(object, old) {
        let path = Path::ROOT.child("spec");
        let path = path.child("jobTemplate");
        warn_about_job(
            get(get(spec, "jobTemplate"), "spec"),
            &path.child("spec"),
            warnings,
        );
    }
    // Upstream's path has the spec twice.
    if old.is_some() && text(spec, "schedule").contains("TZ") {
        warnings.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
    }
}

fn warn_about_job(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let exceeds = |field, limit| int(spec, field).is_some_and(|n| n > limit);
    if text(spec, "completionMode") == "Indexed"
        && exceeds("completions", 100_000)
        && exceeds("parallelism", 10_000)
    {
        warnings.push(format!("{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"));
    }
    if has(spec, "template") {
        warn_about_pod(get(spec, "template"), &path.child("template"), warnings);
    }
}
