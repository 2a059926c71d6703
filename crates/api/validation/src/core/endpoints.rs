//! Endpoints.

use crate::addresses::validate_endpoint_ip;
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, list, same, text};
use serde_json::Value;

pub const ENDPOINTS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_endpoints,
    update: |new, old, errors| {
        // Subsets that an older release accepted may stay.
        if !same(new, old, "subsets") {
            validate_endpoints(new, errors);
        }
    },
    sub: accept_subresource,
};

fn validate_endpoints(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("subsets");
    for (i, subset) in list(object, "subsets").iter().enumerate() {
        let at = path.index(i);
        let fields = ["addresses", "notReadyAddresses"];
        // A subset without addresses adds only ports, which no client could reach.
        if fields.iter().all(|f| list(subset, f).is_empty()) {
            errors.required(&at, "must specify `addresses` or `notReadyAddresses`");
        }
        for field in fields {
            let at = at.child(field);
            for (j, address) in list(subset, field).iter().enumerate() {
                validate_endpoint_address(address, &at.index(j), errors);
            }
        }
        validate_endpoint_ports(subset, &at.child("ports"), errors);
    }
}

fn validate_endpoint_address(address: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (ip, host) = (text(address, "ip"), text(address, "hostname"));
    errors.invalid_each(&path.child("ip"), ip, rules::ip_problems(ip));
    if !host.is_empty() {
        errors.invalid_each(&path.child("hostname"), host, names::dns1123_label(host));
    }
    if has(address, "nodeName") {
        let node = text(address, "nodeName");
        errors.invalid_each(
            &path.child("nodeName"),
            node,
            names::dns1123_subdomain(node),
        );
    }
    // Endpoints are written by users. Without the check, a Service leads the API server's proxy or
    // a node to addresses that only they can reach.
    validate_endpoint_ip(ip, &path.child("ip"), errors);
}

fn validate_endpoint_ports(subset: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ports = list(subset, "ports");
    for (i, port) in ports.iter().enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        // A Service finds its port by name, so only a single port may be without one.
        if ports.len() > 1 && name.is_empty() {
            errors.required(&at.child("name"), "");
        } else if !name.is_empty() {
            errors.invalid_each(&at.child("name"), name, names::dns1123_label(name));
        }
        let number = get(port, "port").as_i64().unwrap_or(0);
        if let Some(problem) = rules::port_number_problem(number) {
            errors.invalid(&at.child("port"), number, problem);
        }
        rules::validate_required_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
        if has(port, "appProtocol") {
            let app = text(port, "appProtocol");
            errors.invalid_each(&at.child("appProtocol"), app, names::qualified_name(app));
        }
    }
}
