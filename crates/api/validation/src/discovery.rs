//! EndpointSlices.

use crate::addresses::validate_reachable_address;
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::{self, NameRule};
use crate::rules;
use api_meta::names;
use api_meta::tree::{has, int, list, text};
use serde_json::Value;

pub const ENDPOINT_SLICE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_slice,
    update: validate_slice_update,
    sub: accept_subresource,
};

const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const MOST: usize = 1000;
const MOST_PORTS: usize = 100;
const MOST_ADDRESSES: usize = 100;

fn validate_slice(object: &Value, errors: &mut Errors) {
    let root = Path::ROOT;
    let kind = text(object, "addressType");
    if kind.is_empty() {
        errors.required(&root.child("addressType"), "");
    } else if !TYPES.contains(&kind) {
        errors.not_supported(&root.child("addressType"), kind, &TYPES);
    }
    let endpoints = list(object, "endpoints");
    let path = root.child("endpoints");
    // The limit bounds the message that each kube-proxy receives when one endpoint changes.
    if endpoints.len() > MOST {
        errors.too_many(&path, endpoints.len(), MOST);
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let at = path.index(i);
        validate_endpoint_addresses(endpoint, kind, &at.child("addresses"), errors);
        let host = text(endpoint, "hostname");
        if has(endpoint, "hostname") {
            errors.invalid_each(&at.child("hostname"), host, names::dns1123_label(host));
        }
        let node = text(endpoint, "nodeName");
        if has(endpoint, "nodeName") {
            // A Node has such a name, and kube-proxy compares the field with its own.
            errors.invalid_each(&at.child("nodeName"), node, names::dns1123_subdomain(node));
        }
        let hints = at.child("hints");
        let hints = hints.child("forNodes");
        for (j, hint) in list(api_meta::tree::get(endpoint, "hints"), "forNodes")
            .iter()
            .enumerate()
        {
            let name = text(hint, "name");
            errors.invalid_each(
                &hints.index(j).child("name"),
                name,
                names::dns1123_subdomain(name),
            );
        }
        metadata::validate_labels(endpoint, "deprecatedTopology", &at, errors);
    }
    validate_ports(object, &root.child("ports"), errors);
}

// All endpoints of a slice have one family, so that kube-proxy reads the slice for one family only.
fn validate_endpoint_addresses(endpoint: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let all = list(endpoint, "addresses");
    if all.is_empty() {
        errors.required(path, "must contain at least 1 address");
    } else if all.len() > MOST_ADDRESSES {
        errors.too_many(path, all.len(), MOST_ADDRESSES);
    }
    for (i, address) in all.iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        let at = path.index(i);
        let ip = rules::parse_ip(address);
        match kind {
            "IPv4" | "IPv6" => {
                let family = ip.map(|ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" });
                if family == Some(kind) {
                    validate_reachable_address(address, &at, errors);
                } else if family.is_some() {
                    let what = if kind == "IPv4" {
                        "must be an IPv4 address"
                    } else {
                        "must be an IPv6 address"
                    };
                    errors.invalid(path, address, what);
                } else {
                    errors.invalid_each(&at, address, rules::ip_problems(address));
                }
            }
            "FQDN" => errors.invalid_each(&at, address, names::dns1123_subdomain(address)),
            _ => {}
        }
    }
}

fn validate_ports(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(object, "ports");
    if all.len() > MOST_PORTS {
        errors.too_many(path, all.len(), MOST_PORTS);
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, port) in all.iter().enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            errors.invalid_each(&at.child("name"), name, names::dns1123_label(name));
        }
        // kube-proxy pairs the ports of Services and slices by name, and the empty name is one,
        // too.
        if seen.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        }
        seen.push(name);
        rules::validate_required_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
        if let Some(n) = int(port, "port")
            && let Some(problem) = rules::port_number_problem(n)
        {
            errors.invalid(&at.child("port"), n, problem);
        }
        if has(port, "appProtocol") {
            let protocol = text(port, "appProtocol");
            errors.invalid_each(
                &at.child("appProtocol"),
                protocol,
                names::qualified_name(protocol),
            );
        }
    }
}

fn validate_slice_update(new: &Value, old: &Value, errors: &mut Errors) {
    rules::validate_immutable(new, old, "addressType", &Path::ROOT, errors);
    validate_slice(new, errors);
}
