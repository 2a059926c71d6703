//! Addresses and ports of Services.

use api_meta::tree::{each_mut, fill, get, has, int, list, make, set, text};
use serde_json::Value;

/// Keeps a service's allocated addresses if an update omits them.
pub(crate) fn keep_allocated_addresses(new: &mut Value, old: &Value) {
    let before = get(old, "spec").clone();
    let Some(spec) = make(new, "spec") else {
        return;
    };
    let type_ = text(spec, "type").to_owned();
    // The change of type releases or allocates the address.
    if type_ == "ExternalName" || text(&before, "type") == "ExternalName" {
        return;
    }
    // `kubectl replace` of a manifest has no address. Old clients send `clusterIP` without
    // `clusterIPs`.
    if text(spec, "clusterIP").is_empty() {
        for field in ["clusterIP", "clusterIPs"] {
            if has(&before, field) {
                fill(spec, field, get(&before, field).clone());
                if text(spec, field).is_empty() && !has(spec, "clusterIPs") {
                    set(spec, field, get(&before, field).clone());
                }
            }
        }
        if text(spec, "clusterIP").is_empty() && has(&before, "clusterIP") {
            set(spec, "clusterIP", get(&before, "clusterIP").clone());
        }
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if has(&before, field) {
            fill(spec, field, get(&before, field).clone());
        }
    }
    keep_node_ports(spec, &before, &type_);
    if type_ == "LoadBalancer"
        && int(spec, "healthCheckNodePort").unwrap_or(0) == 0
        && has(&before, "healthCheckNodePort")
    {
        set(
            spec,
            "healthCheckNodePort",
            get(&before, "healthCheckNodePort").clone(),
        );
    }
}

fn keep_node_ports(spec: &mut Value, before: &Value, type_: &str) {
    let both = matches!(type_, "NodePort" | "LoadBalancer")
        && matches!(text(before, "type"), "NodePort" | "LoadBalancer");
    // From or to another type the node ports are allocated or released.
    if !both {
        return;
    }
    // By number and protocol, not by position or name: manifests reorder and rename ports.
    for port in each_mut(spec, "ports").filter(|p| int(p, "nodePort").unwrap_or(0) == 0) {
        let (number, protocol) = (int(port, "port"), text(port, "protocol").to_owned());
        let old = list(before, "ports")
            .iter()
            .find(|p| int(p, "port") == number && text(p, "protocol") == protocol);
        if let Some(node_port) = old.and_then(|p| int(p, "nodePort")).filter(|n| *n != 0) {
            set(port, "nodePort", node_port);
        }
    }
}
