//! The core group, except workloads.

use crate::resources::round_up_lists;
use crate::volumes::{default_claim_spec, default_volume_source};
use api_meta::tree::{
    at_mut, each_mut, entries, fill, fill_int, fill_text, get, has, int, list, make, remove, set,
    text,
};
use base64::Engine;
use serde_json::{Value, json};

/// Sets the defaults of a kind of the core group.
pub fn default_core_kind(kind: &str, object: &mut Value) {
    match kind {
        "Service" => default_service(object),
        "Secret" => default_secret(object),
        "Namespace" => default_namespace(object),
        "Endpoints" => {
            for subset in each_mut(object, "subsets") {
                each_mut(subset, "ports").for_each(|port| fill_text(port, "protocol", "TCP"));
            }
        }
        "LimitRange" => default_limit_range(object),
        "PersistentVolume" => default_persistent_volume(object),
        "PersistentVolumeClaim" => {
            default_claim_spec(object);
            if let Some(status) = make(object, "status") {
                fill_text(status, "phase", "Pending");
                round_up_lists(status, &["capacity", "allocatedResources"]);
            }
        }
        "Node" => {
            if let Some(status) = at_mut(object, "status") {
                default_node_status(status);
            }
        }
        "ResourceQuota" => {
            for (part, fields) in [("spec", &["hard"][..]), ("status", &["hard", "used"])] {
                if let Some(part) = at_mut(object, part) {
                    round_up_lists(part, fields);
                }
            }
        }
        _ => {}
    }
}

fn default_node_status(status: &mut Value) {
    // A node that reserves nothing for the system may report its capacity only.
    if has(status, "capacity") {
        let capacity = get(status, "capacity").clone();
        fill(status, "allocatable", capacity);
    }
    round_up_lists(status, &["capacity", "allocatable"]);
}

fn default_namespace(object: &mut Value) {
    let name = text(get(object, "metadata"), "name").to_owned();
    // Policies select namespaces by this label, so it always equals the name. With `generateName`
    // there is no name yet, and the strategy adds the label.
    if !name.is_empty()
        && let Some(labels) = make(object, "metadata").and_then(|m| make(m, "labels"))
    {
        set(labels, "kubernetes.io/metadata.name", name);
    }
    if let Some(status) = make(object, "status") {
        fill_text(status, "phase", "Active");
    }
}

fn default_secret(object: &mut Value) {
    fill_text(object, "type", "Opaque");
    // Values of `stringData` override those of `data`, as its documentation specifies.
    let plain: Vec<(String, String)> = entries(object, "stringData")
        .map(|(k, v)| {
            (
                k.clone(),
                base64::engine::general_purpose::STANDARD.encode(v.as_str().unwrap_or_default()),
            )
        })
        .collect();
    // The field is for writing only and is never stored.
    remove(object, "stringData");
    if plain.is_empty() {
        return;
    }
    if let Some(data) = make(object, "data") {
        plain
            .into_iter()
            .for_each(|(key, value)| set(data, &key, value));
    }
}

fn default_limit_range(object: &mut Value) {
    let Some(spec) = at_mut(object, "spec") else {
        return;
    };
    // Only containers have defaults: the other types limit sums or claims.
    let container = |item: &&mut Value| text(item, "type") == "Container";
    for item in each_mut(spec, "limits").filter(container) {
        // The order counts: `max` fills the limit, the limit fills the request, and `min` is the
        // last resort.
        for (to, from) in [
            ("default", "max"),
            ("defaultRequest", "default"),
            ("defaultRequest", "min"),
        ] {
            let amounts: Vec<(String, Value)> = entries(item, from)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            if amounts.is_empty() {
                continue;
            }
            if let Some(target) = make(item, to) {
                amounts
                    .into_iter()
                    .for_each(|(name, amount)| fill(target, &name, amount));
            }
        }
    }
    for item in each_mut(spec, "limits") {
        round_up_lists(
            item,
            &[
                "max",
                "min",
                "default",
                "defaultRequest",
                "maxLimitRequestRatio",
            ],
        );
    }
}

fn default_persistent_volume(object: &mut Value) {
    if let Some(spec) = make(object, "spec") {
        fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
        round_up_lists(spec, &["capacity"]);
        default_volume_source(spec);
    }
    if let Some(status) = make(object, "status") {
        fill_text(status, "phase", "Pending");
    }
}

fn default_service(object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    fill_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            // The configuration of a former affinity would be rejected by validation.
            remove(spec, "sessionAffinityConfig");
        }
        "ClientIP" => {
            if let Some(client) =
                make(spec, "sessionAffinityConfig").and_then(|c| make(c, "clientIP"))
            {
                fill(client, "timeoutSeconds", 10_800);
            }
        }
        _ => {}
    }
    fill_text(spec, "type", "ClusterIP");
    each_mut(spec, "ports").for_each(default_service_port);
    // A ClusterIP Service with external IPs receives traffic from outside as well.
    let external = matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
    if external || !list(spec, "externalIPs").is_empty() && text(spec, "type") == "ClusterIP" {
        fill_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if external || text(spec, "type") == "ClusterIP" {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") != "LoadBalancer" {
        return;
    }
    fill(spec, "allocateLoadBalancerNodePorts", true);
    if let Some(balancer) = at_mut(object, "status").and_then(|s| at_mut(s, "loadBalancer")) {
        for ingress in each_mut(balancer, "ingress").filter(|i| has(i, "ip")) {
            // Load balancers that are older than the field have addresses that kube-proxy may
            // handle itself.
            fill(ingress, "ipMode", "VIP");
        }
    }
}

fn default_service_port(port: &mut Value) {
    fill_text(port, "protocol", "TCP");
    let target = get(port, "targetPort");
    // Zero and empty are what Go clients send for an absent target.
    if target.is_null() || target == &json!(0) || target == &json!("") {
        let number = int(port, "port").unwrap_or_default();
        set(port, "targetPort", number);
    }
    fill_int(port, "nodePort", 0);
    if int(port, "nodePort") == Some(0) {
        remove(port, "nodePort");
    }
}
