//! The remaining, smaller groups.

use crate::resources::round_up_lists;
use crate::volumes::default_volume_source;
use api_meta::tree::{
    at_mut, each_mut, fill, fill_int, fill_text, flag, get, list, make, remove, set, text,
};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Sets the defaults of a kind of one of the smaller groups.
pub fn default_other_kind(group: &str, version: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => default_role_binding(object),
        ("autoscaling", "HorizontalPodAutoscaler") => default_autoscaler(version, object),
        ("networking.k8s.io", "NetworkPolicy") => default_network_policy(object),
        ("networking.k8s.io", "IngressClass") => {
            if let Some(parameters) = at_mut(object, "spec").and_then(|s| at_mut(s, "parameters")) {
                fill(parameters, "scope", "Cluster");
            }
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in each_mut(object, "ports") {
                fill(port, "name", "");
                fill(port, "protocol", "TCP");
            }
        }
        ("storage.k8s.io", "StorageClass") => {
            fill(object, "reclaimPolicy", "Delete");
            fill(object, "volumeBindingMode", "Immediate");
        }
        ("storage.k8s.io", "CSIDriver") => default_csi_driver(object),
        ("certificates.k8s.io", "PodCertificateRequest") => {
            if let Some(spec) = make(object, "spec") {
                fill(spec, "maxExpirationSeconds", 24 * 3600);
            }
        }
        ("storage.k8s.io", "VolumeAttachment") => {
            // The inline volume is the spec of a PersistentVolume, with the defaults of that kind.
            let source = at_mut(object, "spec").and_then(|s| at_mut(s, "source"));
            if let Some(volume) = source.and_then(|s| at_mut(s, "inlineVolumeSpec")) {
                round_up_lists(volume, &["capacity"]);
                default_volume_source(volume);
            }
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            fill(object, "preemptionPolicy", "PreemptLowerPriority")
        }
        ("scheduling.k8s.io", "PodGroup") => {
            if let Some(spec) = make(object, "spec") {
                fill(spec, "disruptionMode", "Pod");
            }
        }
        ("flowcontrol.apiserver.k8s.io", _) => default_flow_control(kind, object),
        ("resource.k8s.io", _) => default_device_kind(version, kind, object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => default_definition(object),
        ("apiregistration.k8s.io", "APIService") => {
            if let Some(service) = at_mut(object, "spec").and_then(|s| at_mut(s, "service")) {
                fill(service, "port", 443);
            }
        }
        _ => {}
    }
}

/// Sets the defaults of a kind of dynamic resource allocation.
fn default_device_kind(version: &str, kind: &str, object: &mut Value) {
    match kind {
        "ResourceClaim" => default_device_requests(version, object),
        "ResourcePoolStatusRequest" => {
            if let Some(spec) = make(object, "spec") {
                fill(spec, "limit", 100);
            }
        }
        "DeviceTaintRule" => {
            if let Some(taint) = at_mut(object, "spec").and_then(|spec| at_mut(spec, "taint")) {
                default_taint(taint);
            }
        }
        "ResourceSlice" => {
            if let Some(spec) = at_mut(object, "spec") {
                each_mut(spec, "devices").for_each(default_device);
            }
        }
        "ResourceClaimTemplate" => {
            if let Some(spec) = make(object, "spec") {
                make(spec, "metadata");
                default_device_requests(version, spec);
            }
        }
        _ => {}
    }
}

/// Sets the defaults of a device. One of v1beta1 has its fields in `basic`.
fn default_device(device: &mut Value) {
    each_mut(device, "taints").for_each(default_taint);
    if let Some(basic) = at_mut(device, "basic") {
        each_mut(basic, "taints").for_each(default_taint);
    }
}

/// Sets when a taint was added, from which the toleration of a claim counts.
fn default_taint(taint: &mut Value) {
    if text(taint, "timeAdded").is_empty() {
        set(taint, "timeAdded", api_meta::time::now());
    }
}

fn default_role_binding(object: &mut Value) {
    if let Some(role) = at_mut(object, "roleRef") {
        fill_text(role, "apiGroup", RBAC);
    }
    // Service accounts are objects of the core group, users and groups are names of RBAC.
    for subject in each_mut(object, "subjects").filter(|s| text(s, "kind") != "ServiceAccount") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill_text(subject, "apiGroup", RBAC);
        }
    }
}

fn default_autoscaler(version: &str, object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    fill(spec, "minReplicas", 1);
    // v1 has the target in a field, unless metrics of v2 are in the annotation.
    if version == "v1" {
        let metrics = get(get(object, "metadata"), "annotations")
            .get("autoscaling.alpha.kubernetes.io/metrics")
            .is_some();
        if !metrics && let Some(spec) = make(object, "spec") {
            fill(spec, "targetCPUUtilizationPercentage", 80);
        }
        return;
    }
    if list(spec, "metrics").is_empty() {
        set(
            spec,
            "metrics",
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
        );
    }
    let Some(behavior) = at_mut(spec, "behavior") else {
        return;
    };
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    if let Some(up) = make(behavior, "scaleUp") {
        fill(up, "stabilizationWindowSeconds", 0);
        fill(up, "selectPolicy", "Max");
        fill(up, "policies", json!([pods, percent]));
    }
    // The window of scaling down remains absent, so that the flag of the controller applies to it.
    if let Some(down) = make(behavior, "scaleDown") {
        fill(down, "selectPolicy", "Max");
        fill(down, "policies", json!([percent]));
    }
}

fn default_network_policy(object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    if list(spec, "policyTypes").is_empty() {
        // Policies that are older than egress rules must not cut off egress.
        let types = if list(spec, "egress").is_empty() {
            json!(["Ingress"])
        } else {
            json!(["Ingress", "Egress"])
        };
        set(spec, "policyTypes", types);
    }
    for direction in ["ingress", "egress"] {
        for rule in each_mut(spec, direction) {
            each_mut(rule, "ports").for_each(|port| fill(port, "protocol", "TCP"));
        }
    }
}

fn default_csi_driver(object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    fill(spec, "attachRequired", true);
    for field in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
    ] {
        fill(spec, field, false);
    }
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if list(spec, "volumeLifecycleModes").is_empty() {
        set(spec, "volumeLifecycleModes", json!(["Persistent"]));
    }
}

fn default_flow_control(kind: &str, object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    if kind == "FlowSchema" {
        return fill_int(spec, "matchingPrecedence", 1000);
    }
    if let Some(exempt) = at_mut(spec, "exempt") {
        fill(exempt, "nominalConcurrencyShares", 0);
        fill(exempt, "lendablePercent", 0);
    }
    let Some(limited) = at_mut(spec, "limited") else {
        return;
    };
    fill(limited, "nominalConcurrencyShares", 30);
    fill(limited, "lendablePercent", 0);
    if let Some(queuing) = at_mut(limited, "limitResponse").and_then(|r| at_mut(r, "queuing")) {
        for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
            fill_int(queuing, field, value);
        }
    }
}

/// Sets the defaults of a claim's requests: one device each.
fn default_device_requests(version: &str, object: &mut Value) {
    let Some(devices) = at_mut(object, "spec").and_then(|s| at_mut(s, "devices")) else {
        return;
    };
    for request in each_mut(devices, "requests") {
        if version == "v1beta1" {
            default_old_request(request);
        } else if let Some(exactly) = at_mut(request, "exactly") {
            default_device_request(exactly);
        }
        each_mut(request, "firstAvailable").for_each(default_device_request);
    }
}

/// Sets the defaults of a request of v1beta1, which has the fields of `exactly`. One without a
/// class has alternatives, beside which these fields must not be set.
fn default_old_request(request: &mut Value) {
    if text(request, "deviceClassName").is_empty() {
        default_tolerations(request);
    } else {
        default_device_request(request);
    }
}

fn default_device_request(request: &mut Value) {
    fill_text(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        fill_int(request, "count", 1);
    }
    default_tolerations(request);
}

fn default_tolerations(request: &mut Value) {
    each_mut(request, "tolerations").for_each(|t| fill_text(t, "operator", "Equal"));
}

fn default_definition(object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    let kind = get(get(spec, "names"), "kind")
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if let Some(names) = make(spec, "names")
        && !kind.is_empty()
    {
        fill_text(names, "singular", &kind.to_ascii_lowercase());
        fill_text(names, "listKind", &format!("{kind}List"));
    }
    if let Some(conversion) = make(spec, "conversion") {
        fill_text(conversion, "strategy", "None");
        if let Some(service) = at_mut(conversion, "webhook")
            .and_then(|w| at_mut(w, "clientConfig"))
            .and_then(|c| at_mut(c, "service"))
        {
            fill(service, "port", 443);
        }
    }
    // v1 only admits false, which Go omits.
    if !flag(spec, "preserveUnknownFields") {
        remove(spec, "preserveUnknownFields");
    }
    // A version must not be removed while etcd may have objects in it, so the list begins with the
    // first storage version.
    let storage: Vec<Value> = list(spec, "versions")
        .iter()
        .filter(|v| flag(v, "storage"))
        .filter_map(|v| v.get("name").cloned())
        .collect();
    if let Some(status) = make(object, "status")
        && list(status, "storedVersions").is_empty()
    {
        set(status, "storedVersions", storage);
    }
}
