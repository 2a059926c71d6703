//! The core group, except workloads.

use super::pod::volume_source;
use crate::tree::{
    at_mut, each_mut, entries, fill, fill_int, fill_text, get, has, int, make, set, text,
};
use base64::Engine;
use serde_json::{Value, json};

/// Sets the defaults of a kind of the core group.
pub fn defaults(kind: &str, object: &mut Value) {
    match kind {
        "Service" => service(object),
        "Secret" => secret(object),
        "Namespace" => namespace(object),
        "Endpoints" => {
            for subset in each_mut(object, "subsets") {
                each_mut(subset, "ports").for_each(|port| fill_text(port, "protocol", "TCP"));
            }
        }
        "LimitRange" => limit_range(object),
        "PersistentVolume" => volume(object),
        "PersistentVolumeClaim" => {
            claim_spec(object);
            if let Some(status) = make(object, "status") {
                fill_text(status, "phase", "Pending");
            }
        }
        _ => {}
    }
}

/// Sets the defaults in `spec` of a PersistentVolumeClaim or of a template of one.
pub fn claim_spec(claim: &mut Value) {
    if let Some(spec) = make(claim, "spec") {
        fill(spec, "volumeMode", "Filesystem");
    }
}

fn namespace(object: &mut Value) {
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

fn secret(object: &mut Value) {
    fill_text(object, "type", "Opaque");
    let plain: Vec<(String, String)> = entries(object, "stringData")
        .map(|(k, v)| {
            (
                k.clone(),
                base64::engine::general_purpose::STANDARD.encode(v.as_str().unwrap_or_default()),
            )
        })
        .collect();
    crate::tree::remove(object, "stringData");
    if plain.is_empty() {
        return;
    }
    if let Some(data) = make(object, "data") {
        plain
            .into_iter()
            .for_each(|(key, value)| set(data, &key, value));
    }
}

fn limit_range(object: &mut Value) {
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

fn volume(object: &mut Value) {
    if let Some(spec) = make(object, "spec") {
        fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
        volume_source(spec);
    }
    if let Some(status) = make(object, "status") {
        fill_text(status, "phase", "Pending");
    }
}

fn service(object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    fill_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            crate::tree::remove(spec, "sessionAffinityConfig");
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
    each_mut(spec, "ports").for_each(service_port);
    let external = matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
    if external
        || !crate::tree::list(spec, "externalIPs").is_empty() && text(spec, "type") == "ClusterIP"
    {
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

fn service_port(port: &mut Value) {
    fill_text(port, "protocol", "TCP");
    let target = get(port, "targetPort");
    if target.is_null() || target == &json!(0) || target == &json!("") {
        let number = int(port, "port").unwrap_or_default();
        set(port, "targetPort", number);
    }
    fill_int(port, "nodePort", 0);
    if int(port, "nodePort") == Some(0) {
        crate::tree::remove(port, "nodePort");
    }
}
