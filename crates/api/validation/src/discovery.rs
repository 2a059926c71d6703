//! EndpointSlices.

use crate::addresses::validate_endpoint_ip;
use crate::field::{Errors, Path};
use crate::ip::canonical_ip_problems;
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::{self, NameRule};
use crate::rules;
use api_meta::names;
use api_meta::tree::{entries, get, has, list, opt_text, same, text};
use serde_json::Value;

pub const ENDPOINT_SLICE: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| {
        validate_slice(object, errors);
        validate_endpoints(object, errors);
    },
    update: validate_slice_update,
    sub: accept_subresource,
};

const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const MOST_ENDPOINTS: usize = 1000;
// Ports of a slice are those of its Service, which has no limit of its own.
const MOST_PORTS: usize = 20_000;
// The addresses of one endpoint are interchangeable, and proxies use the first one only.
const MOST_ADDRESSES: usize = 100;
const MOST_TOPOLOGY_LABELS: usize = 16;
const MOST_HINTS: usize = 8;

fn validate_slice(object: &Value, errors: &mut Errors) {
    rules::validate_required_one_of(object, "addressType", &TYPES, &Path::ROOT, errors);
    validate_ports(object, &Path::ROOT.child("ports"), errors);
}

fn validate_endpoints(object: &Value, errors: &mut Errors) {
    let kind = text(object, "addressType");
    let endpoints = list(object, "endpoints");
    let path = Path::ROOT.child("endpoints");
    // The limit bounds the message that each kube-proxy receives when one endpoint changes.
    if endpoints.len() > MOST_ENDPOINTS {
        return errors.too_many(&path, endpoints.len(), MOST_ENDPOINTS);
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        validate_endpoint(endpoint, kind, &path.index(i), errors);
    }
}

fn validate_endpoint(endpoint: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_endpoint_addresses(endpoint, kind, &path.child("addresses"), errors);
    if let Some(node) = opt_text(endpoint, "nodeName") {
        // A Node has such a name, and kube-proxy compares the field with its own.
        errors.invalid_each(
            &path.child("nodeName"),
            node,
            names::dns1123_subdomain(node),
        );
    }
    // The field keeps what the beta version had as topology. It can't be written by new clients of
    // v1.
    let labels = entries(endpoint, "deprecatedTopology").count();
    if labels > MOST_TOPOLOGY_LABELS {
        errors.too_many(
            &path.child("deprecatedTopology"),
            labels,
            MOST_TOPOLOGY_LABELS,
        );
    }
    metadata::validate_labels(endpoint, "deprecatedTopology", path, errors);
    if let Some(host) = opt_text(endpoint, "hostname") {
        errors.invalid_each(&path.child("hostname"), host, names::dns1123_label(host));
    }
    validate_hints(get(endpoint, "hints"), &path.child("hints"), errors);
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
        match kind {
            "IPv4" => validate_family(
                address,
                rules::ip_problems(address),
                kind,
                path,
                &at,
                errors,
            ),
            // An IPv6 address has several textual forms. Proxies compare addresses as text, so only
            // the canonical one is accepted.
            "IPv6" => {
                let problems = canonical_ip_problems(address);
                validate_family(address, problems, kind, path, &at, errors);
            }
            "FQDN" => validate_domain(address, &at, errors),
            _ => {}
        }
    }
}

fn validate_family(
    address: &str,
    problems: Vec<String>,
    family: &str,
    path: &Path<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    if !problems.is_empty() {
        return errors.invalid_each(at, address, problems);
    }
    if address.contains(':') != (family == "IPv6") {
        // Upstream's path of this error has no index.
        errors.invalid(path, address, format!("must be an {family} address"));
    }
    validate_endpoint_ip(address, at, errors);
}

fn validate_domain(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    // An absolute name ends with a dot.
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        return errors.invalid(path, name, problems.join(","));
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return errors.invalid(path, name, detail);
    }
    // A subdomain may be longer than 63 bytes between its dots, but a label of DNS may not.
    for label in name.split('.') {
        errors.invalid_each(path, label, names::dns1123_label(label));
    }
}

fn validate_hints(hints: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kinds: [(&str, rules::NameCheck); 2] = [
        ("forZones", names::label_value),
        ("forNodes", names::dns1123_subdomain),
    ];
    for (field, problems) in kinds {
        let (all, at) = (list(hints, field), path.child(field));
        // kube-proxy reads every hint of every endpoint.
        if all.len() > MOST_HINTS {
            return errors.too_many(&at, all.len(), MOST_HINTS);
        }
        for (i, hint) in all.iter().enumerate() {
            let at = at.index(i);
            let name = text(hint, "name");
            if all.iter().take(i).any(|h| text(h, "name") == name) {
                errors.duplicate(&at.child("name"), name);
            }
            errors.invalid_each(&at.child("name"), name, problems(name));
        }
    }
}

fn validate_ports(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(object, "ports");
    if all.len() > MOST_PORTS {
        return errors.too_many(path, all.len(), MOST_PORTS);
    }
    let mut seen = std::collections::HashSet::new();
    for (i, port) in all.iter().enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            errors.invalid_each(&at.child("name"), name, names::dns1123_label(name));
        }
        // kube-proxy pairs the ports of Services and slices by name, and the empty name is one,
        // too.
        if !seen.insert(name) {
            errors.duplicate(&at.child("name"), name);
        }
        rules::validate_required_one_of(port, "protocol", &PROTOCOLS, &at, errors);
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
    validate_slice(new, errors);
    // Endpoints that an older release accepted may stay.
    if !same(new, old, "endpoints") {
        validate_endpoints(new, errors);
    }
    // Proxies keep one table for each family and would not remove the old addresses.
    rules::validate_immutable(new, old, "addressType", &Path::ROOT, errors);
}
