//! Pods and pod templates.

use crate::resources::{default_pod_level_resources, round_up_lists, round_up_resources};
use crate::volumes::{default_claim_spec, default_volume_source};
use api_meta::tree::{
    at_mut, each_mut, entries, fill, fill_int, fill_text, flag, int, make, set, text,
};
use serde_json::{Value, json};

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const FILE_MODE: i64 = 0o644;

/// Sets the defaults of a Pod: those of templates and those of pods only.
pub fn default_pod(object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    // Only in pods: a template shows what its author wrote.
    if flag(spec, "hostNetwork") {
        default_host_ports(spec);
    }
    fill(spec, "enableServiceLinks", true);
    for list in ["containers", "initContainers"] {
        // Not in templates, as the requests would hide a later change of the limits there.
        each_mut(spec, list).for_each(default_requests);
    }
    default_pod_level_resources(object);
    if let Some(spec) = make(object, "spec") {
        default_pod_spec(spec);
    }
    if let Some(status) = at_mut(object, "status") {
        round_up_status(status);
    }
}

fn round_up_status(status: &mut Value) {
    for list in [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in each_mut(status, list) {
            round_up_lists(container, &["allocatedResources"]);
            round_up_resources(container);
        }
    }
    round_up_lists(status, &["allocatedResources"]);
    round_up_resources(status);
}

/// Sets the defaults in `template` of a PodTemplate.
pub fn default_template_object(object: &mut Value) {
    if let Some(template) = make(object, "template") {
        default_template(template);
    }
}

/// Sets the defaults in `spec.template` of a workload.
pub fn default_workload_template(spec: &mut Value) {
    if let Some(template) = make(spec, "template") {
        default_template(template);
    }
}

/// Sets the defaults of a pod template.
pub fn default_template(template: &mut Value) {
    make(template, "metadata");
    if let Some(spec) = make(template, "spec") {
        default_pod_spec(spec);
    }
}

fn default_host_ports(spec: &mut Value) {
    // Nothing maps ports in the host's network, so validation requires equal numbers.
    for list in ["containers", "initContainers"] {
        for container in each_mut(spec, list) {
            for port in each_mut(container, "ports") {
                if let Some(number) = int(port, "containerPort") {
                    fill_int(port, "hostPort", number);
                }
            }
        }
    }
}

fn default_requests(container: &mut Value) {
    let Some(resources) = at_mut(container, "resources") else {
        return;
    };
    // The scheduler reads requests only: a container with limits alone would count as nothing.
    let limits: Vec<(String, Value)> = entries(resources, "limits")
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    if limits.is_empty() {
        return;
    }
    if let Some(requests) = make(resources, "requests") {
        limits
            .into_iter()
            .for_each(|(name, amount)| fill(requests, &name, amount));
    }
}

fn default_pod_spec(spec: &mut Value) {
    // A new default here changes stored templates and starts rollouts everywhere, so upstream adds
    // new ones to pods only.
    fill_text(spec, "dnsPolicy", "ClusterFirst");
    fill_text(spec, "restartPolicy", "Always");
    fill_text(spec, "schedulerName", "default-scheduler");
    fill(spec, "terminationGracePeriodSeconds", 30);
    make(spec, "securityContext");
    default_service_account(spec);
    for list in CONTAINERS {
        each_mut(spec, list).for_each(default_container);
    }
    each_mut(spec, "volumes").for_each(default_volume);
    round_up_lists(spec, &["overhead"]);
    round_up_resources(spec);
}

/// Sets `serviceAccountName` and its former name `serviceAccount` to the same value.
fn default_service_account(spec: &mut Value) {
    // Old clients know the former name only. The new one wins if the two differ.
    let (new, old) = (
        text(spec, "serviceAccountName").to_owned(),
        text(spec, "serviceAccount").to_owned(),
    );
    if !new.is_empty() {
        set(spec, "serviceAccount", new);
    } else if !old.is_empty() {
        set(spec, "serviceAccountName", old);
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(text(container, "image"));
    fill_text(container, "imagePullPolicy", policy);
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    make(container, "resources");
    round_up_resources(container);
    each_mut(container, "ports").for_each(|port| fill_text(port, "protocol", "TCP"));
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(one) = at_mut(container, field) {
            default_probe(one);
        }
    }
    if let Some(lifecycle) = at_mut(container, "lifecycle") {
        for field in ["postStart", "preStop"] {
            if let Some(handler) = at_mut(lifecycle, field) {
                default_http_get(handler);
            }
        }
    }
    for env in each_mut(container, "env") {
        if let Some(from) = at_mut(env, "valueFrom") {
            default_field_source(from);
        }
    }
}

/// Returns `Always` for images with the explicit or implied tag `latest`.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, false), |(n, _)| (n, true));
    let tag = name
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'))
        .map(|(_, tag)| tag);
    match tag {
        // The tag moves, and a node would run the image that it happens to have.
        Some("latest") => "Always",
        // Without tag and digest, `latest` is meant.
        None if !digest => "Always",
        _ => "IfNotPresent",
    }
}

fn default_probe(probe: &mut Value) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        fill_int(probe, field, value);
    }
    default_http_get(probe);
    if let Some(grpc) = at_mut(probe, "grpc") {
        fill(grpc, "service", "");
    }
}

fn default_http_get(handler: &mut Value) {
    if let Some(get) = at_mut(handler, "httpGet") {
        fill_text(get, "path", "/");
        fill_text(get, "scheme", "HTTP");
    }
}

fn default_field_source(source: &mut Value) {
    if let Some(field) = at_mut(source, "fieldRef") {
        fill_text(field, "apiVersion", "v1");
    }
    if let Some(resource) = at_mut(source, "resourceFieldRef") {
        fill(resource, "divisor", "0");
    }
}

fn default_volume(volume: &mut Value) {
    let sources = volume.as_object().map_or(0, |m| {
        m.iter()
            .filter(|(k, v)| *k != "name" && !v.is_null())
            .count()
    });
    // Old clients omit the source and expect an empty directory.
    if sources == 0 {
        set(volume, "emptyDir", json!({}));
    }
    for field in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = at_mut(volume, field) {
            fill(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(source) = at_mut(volume, "downwardAPI") {
        each_mut(source, "items").for_each(default_field_source);
    }
    if let Some(source) = at_mut(volume, "projected") {
        each_mut(source, "sources").for_each(default_projection);
    }
    if let Some(ephemeral) = at_mut(volume, "ephemeral")
        && let Some(template) = at_mut(ephemeral, "volumeClaimTemplate")
    {
        make(template, "metadata");
        default_claim_spec(template);
    }
    if let Some(image) = at_mut(volume, "image") {
        let policy = pull_policy(text(image, "reference"));
        fill_text(image, "pullPolicy", policy);
    }
    default_volume_source(volume);
}

fn default_projection(source: &mut Value) {
    // An hour limits the use of a stolen token. The kubelet requests a new one before the end.
    if let Some(token) = at_mut(source, "serviceAccountToken") {
        fill(token, "expirationSeconds", 3600);
    }
    if let Some(downward) = at_mut(source, "downwardAPI") {
        each_mut(downward, "items").for_each(default_field_source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policies() {
        for (image, policy) in [
            ("a", "Always"),
            ("r:5000/a", "Always"),
            ("r:5000/a:1", "IfNotPresent"),
            ("a:latest", "Always"),
            ("a@sha256:00", "IfNotPresent"),
            ("a:latest@sha256:00", "Always"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
