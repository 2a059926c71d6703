//! The core group, except workloads.

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
            }
        }
        _ => {}
    }
}

fn default_namespace(object: &mut Value) {
    let name = text(get(object, "metadata"), "name").to_owned();
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
    let plain: Vec<(String, String)> = entries(object, "stringData")
        .map(|(k, v)| {
            (
                k.clone(),
                base64::engine::general_purpose::STANDARD.encode(v.as_str().unwrap_or_default()),
            )
        })
        .collect();
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
    for item in each_mut(spec, "limits").filter(|i| text(i, "type") == "Container") {
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
}

fn default_persistent_volume(object: &mut Value) {
    if let Some(spec) = make(object, "spec") {
        fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
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
    let external = matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
    if external || !list(spec, "externalIPs").is_empty() && text(spec, "type") == "ClusterIP" {
        fill_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if external || text(spec, "type") == "ClusterIP" {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
    }
    if let Some(balancer) = at_mut(object, "status").and_then(|s| at_mut(s, "loadBalancer")) {
        for ingress in each_mut(balancer, "ingress").filter(|i| has(i, "ip")) {
            fill(ingress, "ipMode", "VIP");
        }
    }
}

fn default_service_port(port: &mut Value) {
    fill_text(port, "protocol", "TCP");
    let target = get(port, "targetPort");
    if target.is_null() || target == &json!(0) || target == &json!("") {
        let number = int(port, "port").unwrap_or_default();
        set(port, "targetPort", number);
    }
    fill_int(port, "nodePort", 0);
    if int(port, "nodePort") == Some(0) {
        remove(port, "nodePort");
    }
}
