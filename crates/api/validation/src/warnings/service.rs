//! Services and load balancers.

use crate::field::Path;
use crate::ip::{cidr_warnings, ip_warning};
use api_meta::tree::{get, has, list, text, texts};
use serde_json::Value;

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";

pub(super) fn service_warnings(object: &Value) -> Vec<String> {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let mut warnings = Vec::new();
    if has(get(get(object, "metadata"), "annotations"), HINTS) {
        warnings.push(format!("annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"));
    }
    let (kind, one) = (text(spec, "type"), text(spec, "clusterIP"));
    if !one.is_empty() && one != "None" {
        warnings.extend(list_ip_warnings(spec, "clusterIPs", &path));
    }
    if kind == "ClusterIP" && one == "None" {
        warnings.extend(headless_warnings(spec));
    }
    warnings.extend(list_ip_warnings(spec, "externalIPs", &path));
    let has_external_ips = !list(spec, "externalIPs").is_empty();
    let is_external_name = kind == "ExternalName";
    if has_external_ips && !is_external_name && (kind != "ClusterIP" || one != "None") {
        let text =
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(text.into());
    }
    let balancer = text(spec, "loadBalancerIP");
    if !balancer.is_empty() {
        warnings.extend(ip_warning(&path.child("loadBalancerIP"), balancer));
    }
    let at = path.child("loadBalancerSourceRanges");
    for (i, range) in texts(spec, "loadBalancerSourceRanges").iter().enumerate() {
        warnings.extend(cidr_warnings(&at.index(i), range));
    }
    if is_external_name && has_external_ips {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if !is_external_name && !text(spec, "externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        let text =
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(text.into());
    }
    warnings
}

fn headless_warnings(spec: &Value) -> Vec<String> {
    let ignored = [
        ("loadBalancerIP", !text(spec, "loadBalancerIP").is_empty()),
        ("externalIPs", !list(spec, "externalIPs").is_empty()),
        // Upstream spells the field with a capital letter.
        ("SessionAffinity", text(spec, "sessionAffinity") != "None"),
    ];
    let set = ignored.iter().filter(|(_, is_set)| *is_set);
    set.map(|(field, _)| format!("spec.{field} is ignored for headless services"))
        .collect()
}

fn list_ip_warnings(spec: &Value, field: &str, path: &Path<'_>) -> Vec<String> {
    let at = path.child(field);
    let all = texts(spec, field);
    let warnings = all.iter().enumerate();
    warnings
        .filter_map(|(i, ip)| ip_warning(&at.index(i), ip))
        .collect()
}

pub(super) fn load_balancer_warnings(object: &Value) -> Vec<String> {
    let balancer = get(get(object, "status"), "loadBalancer");
    let path = Path::ROOT.child("status");
    let path = path.child("loadBalancer");
    let path = path.child("ingress");
    let points = list(balancer, "ingress").iter().enumerate();
    points
        .filter_map(|(i, point)| ip_warning(&path.index(i), text(point, "ip")))
        .collect()
}
