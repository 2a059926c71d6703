//! Services.

use crate::addresses::validate_reachable_address;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::{self, NameRule};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, text};
use serde_json::Value;

pub const SERVICE: Rules = Rules {
    name: NameRule::Label,
    create: validate_service,
    update: validate_service_update,
    sub: |_, _, _, _| {},
};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameNode", "PreferSameZone"];
const DAY: i64 = 86_400;

fn validate_service(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let (one, all) = (text(spec, "clusterIP"), list(spec, "clusterIPs"));
    // Clients of releases before dual stack know `clusterIP` only. The registry derives the list
    // from it, so a difference is a client's mistake.
    if !one.is_empty() && all.first().is_some_and(|first| first != one) {
        errors.invalid(
            &path.child("clusterIPs"),
            all.to_vec(),
            "first value must match `clusterIP`",
        );
        return validate_ip_families(spec, text(spec, "type"), &path, errors);
    }
    let kind = text(spec, "type");
    rules::validate_required_one_of(spec, "type", &TYPES, &path, errors);
    // A headless Service is a list of addresses in DNS, and an external name an alias. Neither
    // needs ports.
    if list(spec, "ports").is_empty() && text(spec, "clusterIP") != "None" && kind != "ExternalName"
    {
        errors.required(&path.child("ports"), "");
    }
    validate_fields_by_type(spec, kind, &path, errors);
    validate_ports(spec, kind, &path.child("ports"), errors);
    metadata::validate_labels(spec, "selector", &path, errors);
    validate_session_affinity(spec, &path, errors);
    validate_external_ips(spec, &path.child("externalIPs"), errors);
    validate_source_ranges(spec, kind, &path, errors);
    validate_traffic_policies(spec, kind, &path, errors);
    validate_ip_families(spec, kind, &path, errors);
    if let Some(way) = opt_text(spec, "trafficDistribution")
        && !DISTRIBUTIONS.contains(&way)
    {
        errors.not_supported(&path.child("trafficDistribution"), way, &DISTRIBUTIONS);
    }
}

fn validate_fields_by_type(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let headless = text(spec, "clusterIP") == "None";
    match kind {
        // A node port forwards to the endpoints of a cluster IP's rules, which a headless Service
        // does not have.
        "NodePort" | "LoadBalancer" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(&path.child("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => {
            for field in ["clusterIP", "clusterIPs"] {
                let set = has(spec, field) && !text(spec, "clusterIP").is_empty();
                if set && field == "clusterIPs" {
                    errors.forbidden(
                        &path.child(field),
                        "may not be set when `type` is 'ExternalName'",
                    );
                }
            }
            let name = text(spec, "externalName");
            if name.is_empty() {
                errors.required(&path.child("externalName"), "");
            } else {
                // DNS answers with a CNAME record, whose target may be absolute.
                let name = name.strip_suffix('.').unwrap_or(name);
                errors.invalid_each(
                    &path.child("externalName"),
                    name,
                    names::dns1123_subdomain(name),
                );
            }
        }
        _ => {}
    }
}

fn validate_ports(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let all = list(spec, "ports");
    let headless = text(spec, "clusterIP") == "None";
    let mut seen_names: Vec<&str> = Vec::new();
    let mut seen: Vec<(i64, &str)> = Vec::new();
    let mut node_ports: Vec<(i64, &str)> = Vec::new();
    for (i, port) in all.iter().enumerate() {
        let at = path.index(i);
        validate_port(port, all.len() > 1, headless, &mut seen_names, &at, errors);
        let node_port = int(port, "nodePort").unwrap_or(0);
        // Old clients send the node port of a former type. The strategy drops it on a change of
        // type; a new object with one is a mistake.
        if kind == "ClusterIP" && node_port != 0 {
            errors.forbidden(
                &at.child("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
        let protocol = text(port, "protocol");
        if node_port != 0 && matches!(kind, "NodePort" | "LoadBalancer") {
            if node_ports.contains(&(node_port, protocol)) {
                errors.duplicate(&at.child("nodePort"), node_port);
            }
            node_ports.push((node_port, protocol));
        }
        // kube-proxy looks a connection up by address, protocol and port.
        let key = (int(port, "port").unwrap_or(0), protocol);
        if seen.contains(&key) {
            errors.duplicate(&at, serde_json::json!({"port": key.0, "protocol": key.1}));
        }
        seen.push(key);
    }
}

fn validate_port<'a>(
    port: &'a Value,
    named: bool,
    headless: bool,
    seen: &mut Vec<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = text(port, "name");
    let at = path.child("name");
    // EndpointSlices match ports by name, so one nameless port is allowed and several are not.
    if named && name.is_empty() {
        errors.required(&at, "");
    } else if !name.is_empty() {
        errors.invalid_each(&at, name, names::dns1123_label(name));
        if seen.contains(&name) {
            errors.duplicate(&at, name);
        }
        seen.push(name);
    }
    let number = int(port, "port").unwrap_or(0);
    if let Some(problem) = rules::port_number_problem(number) {
        errors.invalid(&path.child("port"), number, problem);
    }
    rules::validate_required_one_of(port, "protocol", &PROTOCOLS, path, errors);
    // Nothing translates the port of a headless Service; its clients connect to the pods.
    if !headless || has(port, "targetPort") {
        rules::validate_port_number_or_name(
            get(port, "targetPort"),
            &path.child("targetPort"),
            errors,
        );
    }
    if let Some(protocol) = opt_text(port, "appProtocol") {
        errors.invalid_each(
            &path.child("appProtocol"),
            protocol,
            names::qualified_name(protocol),
        );
    }
}

fn validate_session_affinity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    rules::validate_required_one_of(spec, "sessionAffinity", &["ClientIP", "None"], path, errors);
    let at = path.child("sessionAffinityConfig");
    let config = get(spec, "sessionAffinityConfig");
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            let at = at.child("clientIP");
            let seconds = int(get(config, "clientIP"), "timeoutSeconds");
            // The limit exists because proxies keep the affinity of every client in memory.
            if let Some(n) = seconds.filter(|n| !(1..=DAY).contains(n)) {
                errors.invalid(
                    &at.child("timeoutSeconds"),
                    n,
                    format!("must be greater than 0 and less than {DAY}"),
                );
            }
        }
        "None" if !config.is_null() => {
            errors.forbidden(&at, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn validate_external_ips(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, ip) in list(spec, "externalIPs").iter().enumerate() {
        validate_reachable_address(ip.as_str().unwrap_or_default(), &path.index(i), errors);
    }
}

fn validate_source_ranges(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let ranges = list(spec, "loadBalancerSourceRanges");
    // Upstream capitalises this path.
    let at = path.child("LoadBalancerSourceRanges");
    // Upstream spells the path with a capital letter, unlike the field. Clients match it.
    if !ranges.is_empty() && kind != "LoadBalancer" {
        errors.forbidden(&at, "may only be used when `type` is 'LoadBalancer'");
        return;
    }
    for (i, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default().trim();
        errors.invalid_each(&at.index(i), range, rules::cidr_problems(range));
    }
}

fn validate_traffic_policies(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let external = matches!(kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !list(spec, "externalIPs").is_empty());
    let policy = text(spec, "externalTrafficPolicy");
    let at = path.child("externalTrafficPolicy");
    match (external, policy) {
        (false, "") => {}
        (false, set) => {
            errors.invalid(
                &at,
                set,
                "may only be set for externally-accessible services",
            );
        }
        (true, "") => errors.required(&at, ""),
        (true, set) if !["Cluster", "Local"].contains(&set) => {
            errors.not_supported(&at, set, &["Cluster", "Local"])
        }
        _ => {}
    }
    let check = int(spec, "healthCheckNodePort").unwrap_or(0);
    // The load balancer asks the port which nodes have local endpoints. With policy Cluster every
    // node has.
    let needs = kind == "LoadBalancer" && policy == "Local";
    if check != 0 && !needs {
        let detail =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&path.child("healthCheckNodePort"), check, detail);
    }
    let internal = text(spec, "internalTrafficPolicy");
    let at = path.child("internalTrafficPolicy");
    if !internal.is_empty() && !["Cluster", "Local"].contains(&internal) {
        errors.not_supported(&at, internal, &["Cluster", "Local"]);
    }
    let class = text(spec, "loadBalancerClass");
    // A class selects the controller that implements the load balancer, so it belongs to that type
    // and does not change.
    if kind != "LoadBalancer" {
        if has(spec, "loadBalancerClass") {
            errors.forbidden(
                &path.child("loadBalancerClass"),
                "may only be used when `type` is 'LoadBalancer'",
            );
        }
        if has(spec, "allocateLoadBalancerNodePorts") {
            errors.forbidden(
                &path.child("allocateLoadBalancerNodePorts"),
                "may only be used when `type` is 'LoadBalancer'",
            );
        }
    } else if has(spec, "loadBalancerClass") {
        errors.invalid_each(
            &path.child("loadBalancerClass"),
            class,
            names::qualified_name(class),
        );
    }
}

fn validate_ip_families(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    // The other end of the name decides about its addresses.
    if kind == "ExternalName" {
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if has(spec, field) {
                errors.forbidden(
                    &path.child(field),
                    "may not be set when `type` is 'ExternalName'",
                );
            }
        }
        return;
    }
    let policy_known = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    rules::validate_one_of(spec, "ipFamilyPolicy", &policy_known, path, errors);
    let at = path.child("ipFamilies");
    let mut seen: Vec<&str> = Vec::new();
    for (i, family) in list(spec, "ipFamilies").iter().enumerate() {
        let family = family.as_str().unwrap_or_default();
        if !["IPv4", "IPv6"].contains(&family) {
            errors.not_supported(&at.index(i), family, &["IPv4", "IPv6"]);
        }
        if seen.contains(&family) {
            errors.duplicate(&at.index(i), family);
        }
        seen.push(family);
    }
    let at = path.child("clusterIPs");
    let addresses = list(spec, "clusterIPs");
    for (i, ip) in addresses.iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        // Headless, and no second value beside it.
        if ip == "None" {
            if i > 0 || addresses.len() > 1 {
                errors.invalid(
                    &at.index(i),
                    ip,
                    "must be empty, a valid IP address, or 'None'",
                );
            }
        } else if !ip.is_empty() {
            errors.invalid_each(&at.index(i), ip, rules::ip_problems(ip));
        }
    }
    let one = text(spec, "clusterIP");
    if addresses.is_empty() && !one.is_empty() && one != "None" {
        errors.invalid_each(&at.index(0), one, rules::ip_problems(one));
    }
}

fn validate_service_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    // A service that keeps a cluster IP must not change it.
    let kept =
        |spec: &Value| text(spec, "type") != "ExternalName" && !text(spec, "clusterIP").is_empty();
    // Pods have the address in their environment and DNS clients in their caches. A change of type
    // to and from ExternalName may change it.
    if kept(n) && kept(o) && text(n, "clusterIP") != text(o, "clusterIP") {
        let at = path.child("clusterIPs");
        errors.invalid(
            &at.index(0),
            list(n, "clusterIPs").to_vec(),
            "may not change once set",
        );
    }
    let class = |spec: &Value| {
        (text(spec, "type") == "LoadBalancer").then(|| get(spec, "loadBalancerClass").clone())
    };
    if let (Some(a), Some(b)) = (class(n), class(o))
        && a != b
    {
        errors.invalid(
            &path.child("loadBalancerClass"),
            a,
            "may not change once set",
        );
    }
    validate_service(new, errors);
}
