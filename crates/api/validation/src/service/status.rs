//! Status of load balancers, of Services and Ingresses.

use crate::field::{Errors, Path};
use crate::ip::parse_sloppy_ip;
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, list, text};
use serde_json::Value;
use std::collections::HashSet;

const MODES: [&str; 2] = ["Proxy", "VIP"];

pub(super) fn validate_service_status_update(
    subresource: &str,
    new: &Value,
    old: &Value,
    errors: &mut Errors,
) {
    if subresource != "status" {
        return;
    }
    let path = Path::ROOT.child("status");
    let path = path.child("loadBalancer");
    let balancer = |object| get(get(object, "status"), "loadBalancer");
    let ingress = list(balancer(new), "ingress");
    if text(get(new, "spec"), "type") != "LoadBalancer" && !ingress.is_empty() {
        errors.forbidden(
            &path.child("ingress"),
            "may only be used when `spec.type` is 'LoadBalancer'",
        );
        return;
    }
    validate_load_balancer_status(balancer(new), balancer(old), &path, errors);
    let path = path.child("ingress");
    for (i, point) in ingress.iter().enumerate() {
        let at = path.index(i);
        let at = at.child("ipMode");
        match (has(point, "ipMode"), !text(point, "ip").is_empty()) {
            (false, true) => errors.required(&at, "must be specified when `ip` is set"),
            (true, false) => errors.forbidden(&at, "may not be specified when `ip` is not set"),
            (true, true) if !MODES.contains(&text(point, "ipMode")) => {
                errors.not_supported(&at, text(point, "ipMode"), &MODES);
            }
            _ => {}
        }
    }
}

/// Validates the addresses of a load balancer. Addresses that are in the old status may stay.
pub(crate) fn validate_load_balancer_status(
    status: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let known: HashSet<&str> = list(old, "ingress").iter().map(|i| text(i, "ip")).collect();
    let path = path.child("ingress");
    for (i, point) in list(status, "ingress").iter().enumerate() {
        let at = path.index(i);
        let (ip, host) = (text(point, "ip"), text(point, "hostname"));
        if !ip.is_empty() && !known.contains(ip) {
            errors.invalid_each(&at.child("ip"), ip, rules::ip_problems(ip));
        }
        if !host.is_empty() {
            let at = at.child("hostname");
            errors.invalid_each(&at, host, names::dns1123_subdomain(host));
            if parse_sloppy_ip(host).is_some() {
                errors.invalid(&at, host, "must be a DNS name, not an IP address");
            }
        }
    }
}
