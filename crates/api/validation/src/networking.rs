//! Ingresses, IngressClasses, NetworkPolicies, ServiceCIDRs and IPAddresses.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use crate::selector;
use api_meta::names;
use api_meta::tree::{equal, get, has, int, list, same, text, texts};
use serde_json::Value;

pub const INGRESS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_ingress,
    update: |new, _, e| validate_ingress(new, e),
    sub: accept_subresource,
};
pub const INGRESS_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_ingress_class,
    update: validate_ingress_class_update,
    sub: accept_subresource,
};
pub const NETWORK_POLICY: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_network_policy,
    update: |new, _, e| validate_network_policy(new, e),
    sub: accept_subresource,
};
pub const SERVICE_CIDR: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_service_cidr,
    update: validate_service_cidr_update,
    sub: accept_subresource,
};
pub const IP_ADDRESS: Rules = Rules {
    name: NameRule::Own,
    create: validate_ip_address,
    update: validate_ip_address_update,
    sub: accept_subresource,
};

fn validate_ingress(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let rules_ = list(spec, "rules");
    // Such an Ingress would accept traffic and lead it nowhere.
    if rules_.is_empty() && !has(spec, "defaultBackend") {
        errors.invalid(
            &path,
            rules_.to_vec(),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if has(spec, "defaultBackend") {
        validate_backend(
            get(spec, "defaultBackend"),
            &path.child("defaultBackend"),
            errors,
        );
    }
    let at = path.child("rules");
    for (i, rule) in rules_.iter().enumerate() {
        let at = at.index(i);
        validate_host(text(rule, "host"), &at.child("host"), errors);
        if has(rule, "http") {
            validate_http_paths(
                get(rule, "http"),
                &at.child("http").child("paths").to_string(),
                errors,
            );
        }
    }
    let at = path.child("tls");
    for (i, tls) in list(spec, "tls").iter().enumerate() {
        let at = at.index(i);
        let hosts = at.child("hosts");
        for (j, name) in list(tls, "hosts").iter().enumerate() {
            validate_host_name(name.as_str().unwrap_or_default(), &hosts.index(j), errors);
        }
        // The name is optional, since TLS may be routed by the SNI host name alone.
        let secret = text(tls, "secretName");
        if !secret.is_empty() {
            errors.invalid_each(
                &at.child("secretName"),
                secret,
                names::dns1123_subdomain(secret),
            );
        }
    }
    let class = text(spec, "ingressClassName");
    if has(spec, "ingressClassName") {
        errors.invalid_each(
            &path.child("ingressClassName"),
            class,
            names::dns1123_subdomain(class),
        );
    }
}

fn validate_host(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return;
    }
    if rules::parse_ip(name).is_some() {
        errors.invalid(path, name, "must be a DNS name, not an IP address");
        return;
    }
    validate_host_name(name, path, errors);
}

fn validate_host_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(rest) = name.strip_prefix("*.") {
        let problems = names::dns1123_subdomain(rest);
        if !problems.is_empty() {
            errors.invalid(path, name, "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')");
        }
        return;
    }
    errors.invalid_each(path, name, names::dns1123_subdomain(name));
}

fn validate_http_paths(http: &Value, path: &str, errors: &mut Errors) {
    let path = Path::ROOT.child(path);
    let all = list(http, "paths");
    if all.is_empty() {
        errors.required(&path, "");
    }
    for (i, one) in all.iter().enumerate() {
        let at = path.index(i);
        let value = text(one, "path");
        match text(one, "pathType") {
            "" => errors.required(&at.child("pathType"), "pathType must be specified"),
            // Proxies normalize `..` and `//` in requests, each in its own way. A path with them
            // would match in one controller and not in another.
            "Exact" | "Prefix" => {
                if !value.starts_with('/') {
                    errors.invalid(&at.child("path"), value, "must be an absolute path");
                }
                for bad in ["//", "/./", "/../", "%2f", "%2F"]
                    .into_iter()
                    .filter(|b| value.contains(b))
                {
                    errors.invalid(
                        &at.child("path"),
                        value,
                        format!("must not contain '{bad}'"),
                    );
                }
                for bad in ["/..", "/."].into_iter().filter(|b| value.ends_with(b)) {
                    errors.invalid(&at.child("path"), value, format!("cannot end with '{bad}'"));
                }
            }
            // The controller defines the syntax, for instance a regular expression.
            "ImplementationSpecific" => {
                if !value.is_empty() && !value.starts_with('/') {
                    errors.invalid(&at.child("path"), value, "must be an absolute path");
                }
            }
            other => errors.not_supported(
                &at.child("pathType"),
                other,
                &["Exact", "ImplementationSpecific", "Prefix"],
            ),
        }
        validate_backend(get(one, "backend"), &at.child("backend"), errors);
    }
}

fn validate_backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (has(backend, "service"), has(backend, "resource")) {
        // Resource backends are objects of the controller, such as a bucket (KEP-1453).
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (false, false) => errors.required(path, "must specify either service or resource"),
        (false, true) => {
            for field in ["kind", "name"] {
                if text(get(backend, "resource"), field).is_empty() {
                    errors.required(&path.child("resource").child(field), "");
                }
            }
        }
        (true, false) => {
            let (service, at) = (get(backend, "service"), path.child("service"));
            let name = text(service, "name");
            if name.is_empty() {
                errors.required(&at.child("name"), "");
            } else {
                errors.invalid_each(&at.child("name"), name, names::dns1123_label(name));
            }
            let port = get(service, "port");
            let number = int(port, "number").unwrap_or(0);
            let at = at.child("port");
            match (text(port, "name"), number) {
                ("", 0) => errors.required(path, "port name or number is required"),
                ("", n) => {
                    if let Some(problem) = rules::port_number_problem(n) {
                        errors.invalid(&at.child("number"), n, problem);
                    }
                }
                (_, n) if n != 0 => {
                    errors.invalid(path, "", "cannot set both port name & port number")
                }
                (name, _) => {
                    errors.invalid_each(&at.child("name"), name, rules::port_name_problems(name))
                }
            }
        }
    }
}

fn validate_ingress_class(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let controller = text(spec, "controller");
    if controller.len() > 250 {
        errors.too_long(&path.child("controller"), 250);
    }
    rules::validate_domain_prefixed_path(controller, &path.child("controller"), errors);
    if !has(spec, "parameters") {
        return;
    }
    let (parameters, at) = (get(spec, "parameters"), path.child("parameters"));
    for field in ["kind", "name"] {
        if text(parameters, field).is_empty() {
            errors.required(&at.child(field), "");
        }
    }
    let group = text(parameters, "apiGroup");
    if !group.is_empty() {
        errors.invalid_each(
            &at.child("apiGroup"),
            group,
            names::dns1123_subdomain(group),
        );
    }
    let namespace = text(parameters, "namespace");
    match text(parameters, "scope") {
        "" => errors.required(&at.child("scope"), ""),
        "Namespace" if namespace.is_empty() => errors.required(
            &at.child("namespace"),
            "`parameters.scope` is set to 'Namespace'",
        ),
        "Cluster" if has(parameters, "namespace") => errors.forbidden(
            &at.child("namespace"),
            "`parameters.scope` is set to 'Cluster'",
        ),
        "Namespace" | "Cluster" => {}
        other => errors.not_supported(&at.child("scope"), other, &["Cluster", "Namespace"]),
    }
}

fn validate_ingress_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    rules::validate_immutable(
        get(new, "spec"),
        get(old, "spec"),
        "controller",
        &Path::ROOT.child("spec"),
        errors,
    );
    validate_ingress_class(new, errors);
}

fn validate_network_policy(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    selector::validate_label_selector(get(spec, "podSelector"), &path.child("podSelector"), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let at = path.child(direction);
        for (i, rule) in list(spec, direction).iter().enumerate() {
            let at = at.index(i);
            let ports = at.child("ports");
            for (j, port) in list(rule, "ports").iter().enumerate() {
                validate_policy_port(port, &ports.index(j), errors);
            }
            let from = at.child(peers);
            for (j, peer) in list(rule, peers).iter().enumerate() {
                validate_policy_peer(peer, &from.index(j), errors);
            }
        }
    }
    let at = path.child("policyTypes");
    let types = texts(spec, "policyTypes");
    if types.len() > 2 {
        errors.invalid(
            &at,
            types.clone(),
            "may not specify more than two policyTypes",
        );
        return;
    }
    for (i, kind) in types.iter().enumerate() {
        if !["Ingress", "Egress"].contains(kind) {
            errors.not_supported(&at.index(i), *kind, &["Egress", "Ingress"]);
        }
    }
}

fn validate_policy_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    rules::validate_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], path, errors);
    let number = get(port, "port");
    let end = int(port, "endPort");
    let at = path.child("endPort");
    if has(port, "port") {
        rules::validate_port_number_or_name(number, &path.child("port"), errors);
        if let Some(end) = end {
            match number.as_i64() {
                None => errors.invalid(&at, end, "may not be specified when `port` is non-numeric"),
                Some(start) => {
                    if end < start {
                        // Upstream shows the value of `port` at the path of `endPort`.
                        errors.invalid(&at, start, "must be greater than or equal to `port`");
                    }
                    if let Some(problem) = rules::port_number_problem(end) {
                        errors.invalid(&at, end, problem);
                    }
                }
            }
        }
    } else if let Some(end) = end {
        errors.invalid(
            &at,
            end,
            "may not be specified when `port` is not specified",
        );
    }
}

fn validate_policy_peer(peer: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut found = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if has(peer, field) {
            found += 1;
            selector::validate_label_selector(get(peer, field), &path.child(field), errors);
        }
    }
    if has(peer, "ipBlock") {
        found += 1;
        validate_ip_block(get(peer, "ipBlock"), &path.child("ipBlock"), errors);
    }
    // An absent list of peers allows everyone, an empty peer would be read as nothing or as
    // everything.
    if found == 0 {
        errors.required(path, "must specify a peer");
    // Two selectors intersect. A block names addresses outside of the cluster, where no selector
    // applies.
    } else if found > 1 && has(peer, "ipBlock") {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn validate_ip_block(block: &Value, path: &Path<'_>, errors: &mut Errors) {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        errors.required(&path.child("cidr"), "");
        return;
    }
    let problems = rules::cidr_problems(cidr);
    if !problems.is_empty() {
        errors.invalid_each(&path.child("cidr"), cidr, problems);
        return;
    }
    let Ok(outer) = cidr.parse::<ipnet::IpNet>() else {
        return;
    };
    let at = path.child("except");
    for (i, except) in list(block, "except").iter().enumerate() {
        let except = except.as_str().unwrap_or_default();
        let at = at.index(i);
        match except.parse::<ipnet::IpNet>() {
            Err(_) => errors.invalid_each(&at, except, rules::cidr_problems(except)),
            Ok(inner) => {
                // An exception outside of the block excepts nothing, and one of equal size leaves
                // nothing.
                if !outer.contains(&inner.addr()) || inner.prefix_len() <= outer.prefix_len() {
                    errors.invalid(&at, except, "must be a strict subset of `cidr`");
                }
            }
        }
    }
}

fn validate_service_cidr(object: &Value, errors: &mut Errors) {
    let at = Path::ROOT.child("spec");
    let path = at.child("cidrs");
    let all = texts(get(object, "spec"), "cidrs");
    if all.is_empty() {
        errors.required(&path, "at least one CIDR required");
        return;
    }
    // One range for each family. Further ranges are further ServiceCIDR objects (KEP-1880).
    if all.len() > 2 || (all.len() == 2 && all.iter().filter(|c| c.contains(':')).count() != 1) {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(&path, all.clone(), detail);
    }
    for (i, cidr) in all.iter().enumerate() {
        match cidr.parse::<ipnet::IpNet>() {
            Err(_) => errors.invalid_each(&path.index(i), cidr, rules::cidr_problems(cidr)),
            // Two spellings of one range would be two objects that overlap.
            Ok(net) if net.addr() != net.network() => {
                errors.invalid(
                    &path.index(i),
                    *cidr,
                    "must not have bits set beyond the prefix length",
                );
            }
            Ok(_) => {}
        }
    }
}

fn validate_service_cidr_update(new: &Value, old: &Value, errors: &mut Errors) {
    let at = Path::ROOT.child("spec");
    let path = at.child("cidrs");
    let (after, before) = (
        list(get(new, "spec"), "cidrs"),
        list(get(old, "spec"), "cidrs"),
    );
    for (i, cidr) in before.iter().enumerate() {
        if after.get(i) != Some(cidr) {
            errors.invalid(
                &path.index(i),
                after.get(i).cloned().unwrap_or_default(),
                rules::IMMUTABLE,
            );
        }
    }
    if after.len() > before.len() {
        validate_service_cidr(new, errors);
    }
}

fn validate_ip_address(object: &Value, errors: &mut Errors) {
    let name = text(get(object, "metadata"), "name");
    let canonical = rules::parse_ip(name).map(|ip| ip.to_string());
    // The object's name is the lock on the address: with two spellings it could be allocated twice.
    if canonical.as_deref() != Some(name) {
        let detail = "must be a valid IP address in canonical form";
        errors.invalid(&Path::ROOT.child("metadata").child("name"), name, detail);
    }
    let spec = Path::ROOT.child("spec");
    let path = spec.child("parentRef");
    let parent = get(get(object, "spec"), "parentRef");
    if parent.is_null() {
        errors.required(&path, "");
        return;
    }
    let group = text(parent, "group");
    if !group.is_empty() {
        errors.invalid_each(&path.child("group"), group, names::dns1123_subdomain(group));
    }
    for field in ["resource", "name"] {
        if text(parent, field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
}

fn validate_ip_address_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_ip_address(new, errors);
    if !equal(get(new, "spec"), get(old, "spec"))
        && !same(get(new, "spec"), get(old, "spec"), "parentRef")
    {
        rules::validate_immutable(
            get(new, "spec"),
            get(old, "spec"),
            "parentRef",
            &Path::ROOT.child("spec"),
            errors,
        );
    }
}
