//! The core group, except workloads, services and storage.

mod limits;
mod secret;

pub use limits::{LIMIT_RANGE, RESOURCE_QUOTA};
pub use secret::{CONFIG_MAP, SECRET};

use crate::addresses::validate_reachable_address;
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::pod;
use crate::rules;
use api_meta::names;
use api_meta::tree::{entries, get, has, list, same, text};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;

pub const NAMESPACE: Rules = Rules {
    name: NameRule::Label,
    create: validate_namespace,
    update: |_, _, _| {},
    sub: |_, new, _, e| validate_namespace(new, e),
};
pub const NODE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_node,
    update: validate_node_update,
    sub: accept_subresource,
};
pub const ENDPOINTS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_endpoints,
    update: |new, _, e| validate_endpoints(new, e),
    sub: accept_subresource,
};
/// Rules of events of the core group.
pub const EVENT: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_event,
    update: |new, _, e| validate_event(new, e),
    sub: accept_subresource,
};

fn validate_namespace(object: &Value, errors: &mut Errors) {
    let at = Path::ROOT.child("spec");
    let path = at.child("finalizers");
    for finalizer in list(get(object, "spec"), "finalizers") {
        let finalizer = finalizer.as_str().unwrap_or_default();
        errors.invalid_each(&path, finalizer, names::qualified_name(finalizer));
        // Names without a domain are reserved for Kubernetes, so that they cannot collide.
        if !finalizer.contains('/')
            && !["kubernetes", "orphan", "foregroundDeletion"].contains(&finalizer)
        {
            errors.invalid(
                &path,
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}

fn validate_node(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    // Upstream reports taints below metadata.
    pod::validate_taints(
        // Upstream reports taints below `metadata`, although they are in `spec`. Clients match it.
        list(spec, "taints"),
        &Path::ROOT.child("metadata").child("taints"),
        errors,
    );
    let blocks = list(spec, "podCIDRs");
    let at = path.child("podCIDRs");
    let mut families: Vec<bool> = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        let block = block.as_str().unwrap_or_default();
        errors.invalid_each(&at.index(i), block, rules::cidr_problems(block));
        families.push(block.contains(':'));
    }
    let mixed = families.contains(&true) && families.contains(&false);
    // A dual-stack node has one block of each family, from which its pods get their addresses.
    if blocks.len() > 2 || (blocks.len() == 2 && !mixed) {
        errors.invalid(
            &at,
            blocks.to_vec(),
            "may specify no more than one CIDR for each IP family",
        );
    }
    let features = Path::ROOT.child("status");
    let features = features.child("declaredFeatures");
    for (i, feature) in list(get(object, "status"), "declaredFeatures")
        .iter()
        .enumerate()
    {
        let feature = feature.as_str().unwrap_or_default();
        if !feature.starts_with(|c: char| c.is_ascii_uppercase()) {
            errors.invalid(&features.index(i), feature, "must be the name of a feature");
        }
    }
    for field in ["capacity", "allocatable"] {
        let status = Path::ROOT.child("status");
        let at = status.child(field);
        for (name, value) in entries(get(object, "status"), field) {
            if let Some(amount) = parse_quantity(value) {
                pod::validate_resource_quantity(name, amount, value, &at.key(name), errors);
            }
        }
    }
}

fn validate_node_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    pod::validate_taints(
        list(n, "taints"),
        &Path::ROOT.child("metadata").child("taints"),
        errors,
    );
    // Pods of the node have addresses of the block, and routes lead to it.
    if !list(o, "podCIDRs").is_empty() && !same(n, o, "podCIDRs") {
        errors.forbidden(
            &path.child("podCIDRs"),
            "node updates may not change podCIDR except from \"\" to valid",
        );
    }
    // Another identifier means another machine, which registers a node of its own.
    if !text(o, "providerID").is_empty() && !same(n, o, "providerID") {
        errors.forbidden(
            &path.child("providerID"),
            "node updates may not change providerID except from \"\" to valid",
        );
    }
}

fn validate_endpoints(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("subsets");
    for (i, subset) in list(object, "subsets").iter().enumerate() {
        let at = path.index(i);
        let (ready, waiting) = (list(subset, "addresses"), list(subset, "notReadyAddresses"));
        if ready.is_empty() && waiting.is_empty() {
            errors.required(&at, "must specify `addresses` or `notReadyAddresses`");
        }
        for (field, addresses) in [("addresses", ready), ("notReadyAddresses", waiting)] {
            let at = at.child(field);
            for (j, address) in addresses.iter().enumerate() {
                let at = at.index(j);
                let ip = text(address, "ip");
                // Endpoints are written by users. Without the check, a Service leads the API
                // server's proxy or a node to addresses that only they can reach.
                validate_reachable_address(ip, &at.child("ip"), errors);
                if rules::parse_ip(ip).is_none() {
                    errors.invalid(&at.child("ip"), ip, "must be a valid IP address");
                }
                let host = text(address, "hostname");
                if !host.is_empty() {
                    errors.invalid_each(&at.child("hostname"), host, names::dns1123_label(host));
                }
                let node = text(address, "nodeName");
                if !node.is_empty() {
                    errors.invalid_each(
                        &at.child("nodeName"),
                        node,
                        names::dns1123_subdomain(node),
                    );
                }
            }
        }
        validate_endpoint_ports(subset, &at.child("ports"), errors);
    }
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
        let app = text(port, "appProtocol");
        if has(port, "appProtocol") {
            errors.invalid_each(&at.child("appProtocol"), app, names::qualified_name(app));
        }
    }
}

fn validate_event(object: &Value, errors: &mut Errors) {
    // Old recorders omit the time and get the old, lenient rules.
    if has(object, "eventTime") {
        return validate_series_event(object, errors);
    }
    let involved = text(get(object, "involvedObject"), "namespace");
    let own = text(get(object, "metadata"), "namespace");
    let at = Path::ROOT
        .child("involvedObject")
        .child("namespace")
        .to_string();
    let path = Path::ROOT.child(&at);
    if involved.is_empty() {
        // Events about objects without a namespace are in one of these two.
        if own != "default" && own != "kube-system" {
            errors.invalid(&path, involved, "does not match event.namespace");
        }
    } else if involved != own {
        errors.invalid(&path, involved, "does not match event.namespace");
    }
}

/// Validates events of the newer form, which require reporter, action and reason.
fn validate_series_event(object: &Value, errors: &mut Errors) {
    let controller = if has(object, "reportingComponent") {
        "reportingComponent"
    } else {
        "reportingController"
    };
    for field in [controller, "reportingInstance", "action", "reason"] {
        if text(object, field).is_empty() {
            errors.required(&Path::ROOT.child(field), "");
        }
    }
    let name = text(object, controller);
    if !name.is_empty() {
        errors.invalid_each(
            &Path::ROOT.child(controller),
            name,
            names::qualified_name(name),
        );
    }
}

/// Rules of events of the group `events.k8s.io`.
pub const SERIES_EVENT: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_new_series_event,
    update: |_, _, _| {},
    sub: accept_subresource,
};

fn validate_new_series_event(object: &Value, errors: &mut Errors) {
    if !has(object, "eventTime") {
        errors.required(&Path::ROOT.child("eventTime"), "");
    }
    validate_series_event(object, errors);
    let kind = text(object, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.invalid(&Path::ROOT.child("type"), kind, "has invalid value: ");
    }
    for (field, path) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ] {
        if has(object, field) && get(object, field) != 0 {
            errors.invalid(&Path::ROOT.child(path), "", "needs to be unset");
        }
    }
    let source = get(object, "deprecatedSource");
    if !text(source, "component").is_empty() || !text(source, "host").is_empty() {
        errors.invalid(&Path::ROOT.child("source"), "", "needs to be unset");
    }
    if has(object, "series") && get(get(object, "series"), "count").as_i64().unwrap_or(0) < 2 {
        errors.invalid(
            &Path::ROOT.child("series").child("count"),
            get(get(object, "series"), "count").clone(),
            "should be at least 2",
        );
    }
}
