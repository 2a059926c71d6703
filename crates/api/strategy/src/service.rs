//! Addresses and ports of Services.

use api_meta::tree::{each_mut, fill, get, has, int, list, make, remove, same, set, text};
use serde_json::Value;

/// Sets `clusterIPs` of a new Service from `clusterIP`, which is all that clients of releases
/// before dual stack know.
pub(crate) fn fill_cluster_ips(object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    let one = text(spec, "clusterIP").to_owned();
    if !one.is_empty() && list(spec, "clusterIPs").is_empty() {
        set(spec, "clusterIPs", vec![one]);
    }
}

/// Prepares a changed Service: keeps allocated values that the update omits, and drops those that
/// its new type does not use, unless the update also changes them.
pub(crate) fn prepare_service_update(new: &mut Value, old: &Value) {
    let before = get(old, "spec").clone();
    let Some(spec) = make(new, "spec") else {
        return;
    };
    keep_allocated_addresses(spec, &before);
    normalize_cluster_ips(spec, &before);
    drop_unused_fields(spec, &before);
    let keeps_status = is_balancer(spec);
    if let (false, Some(status)) = (keeps_status, make(new, "status")) {
        set(status, "loadBalancer", Value::Object(Default::default()));
    }
}

fn keep_allocated_addresses(spec: &mut Value, before: &Value) {
    let type_ = text(spec, "type").to_owned();
    // The change of type releases or allocates the address.
    if type_ == "ExternalName" || text(before, "type") == "ExternalName" {
        return;
    }
    // `kubectl replace` of a manifest has no address.
    if text(spec, "clusterIP").is_empty() && !text(before, "clusterIP").is_empty() {
        set(spec, "clusterIP", get(before, "clusterIP").clone());
    }
    if list(spec, "clusterIPs").is_empty() && !list(before, "clusterIPs").is_empty() {
        set(spec, "clusterIPs", get(before, "clusterIPs").clone());
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if has(before, field) {
            fill(spec, field, get(before, field).clone());
        }
    }
    keep_node_ports(spec, before, &type_);
    if needs_health_check(spec)
        && needs_health_check(before)
        && int(spec, "healthCheckNodePort").unwrap_or(0) == 0
        && has(before, "healthCheckNodePort")
    {
        set(
            spec,
            "healthCheckNodePort",
            get(before, "healthCheckNodePort").clone(),
        );
    }
}

/// Brings `clusterIPs` in line with `clusterIP` for clients that know only the latter.
fn normalize_cluster_ips(spec: &mut Value, before: &Value) {
    let unchanged = same(spec, before, "clusterIPs");
    let one = text(spec, "clusterIP").to_owned();
    if one == text(before, "clusterIP") {
        if list(spec, "clusterIPs").is_empty() && !list(before, "clusterIPs").is_empty() {
            set(spec, "clusterIPs", get(before, "clusterIPs").clone());
        }
    } else if unchanged && one.is_empty() {
        remove(spec, "clusterIPs");
    } else if unchanged {
        set(spec, "clusterIPs", vec![one]);
    }
}

fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn needs_node_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn is_reached_from_outside(spec: &Value) -> bool {
    needs_node_ports(spec)
        || (text(spec, "type") == "ClusterIP" && !list(spec, "externalIPs").is_empty())
}

/// Drops fields that the new type does not use. A field that the update changes stays, so that
/// validation reports it.
fn drop_unused_fields(spec: &mut Value, before: &Value) {
    let external = |spec: &Value| text(spec, "type") == "ExternalName";
    let unchanged = |spec: &Value, field: &str| same(spec, before, field);
    if !external(before) && external(spec) {
        if unchanged(spec, "clusterIP") && unchanged(spec, "clusterIPs") {
            remove(spec, "clusterIP");
            remove(spec, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if unchanged(spec, field) {
                remove(spec, field);
            }
        }
    }
    if needs_node_ports(before) && !needs_node_ports(spec) {
        drop_known_node_ports(spec, before);
    }
    let rules: [(&str, Usage); 4] = [
        ("healthCheckNodePort", needs_health_check),
        ("allocateLoadBalancerNodePorts", is_balancer),
        ("loadBalancerClass", is_balancer),
        ("externalTrafficPolicy", is_reached_from_outside),
    ];
    for (field, uses) in rules {
        if uses(before) && !uses(spec) && unchanged(spec, field) {
            remove(spec, field);
        }
    }
}

/// Returns whether a spec uses a field.
type Usage = fn(&Value) -> bool;

fn is_balancer(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer"
}

fn drop_known_node_ports(spec: &mut Value, before: &Value) {
    let node_ports = |spec: &Value| -> Vec<i64> {
        let all = list(spec, "ports").iter();
        all.filter_map(|p| int(p, "nodePort").filter(|n| *n != 0))
            .collect()
    };
    let known = node_ports(before);
    if node_ports(spec).iter().all(|port| known.contains(port)) {
        for port in each_mut(spec, "ports") {
            remove(port, "nodePort");
        }
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
