//! Services.

mod cluster_ips;
mod status;

pub(crate) use status::validate_load_balancer_status;

use crate::addresses::validate_endpoint_ip;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::{self, NameRule};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, same, text, texts};
use cluster_ips::{
    is_headless, validate_cluster_ips, validate_cluster_ips_update, validate_ip_families_update,
};
use serde_json::Value;
use std::collections::HashSet;

pub const SERVICE: Rules = Rules {
    name: NameRule::Label,
    create: |object, errors| validate_service(object, None, errors),
    update: validate_service_update,
    sub: status::validate_service_status_update,
};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const POLICIES: [&str; 2] = ["Cluster", "Local"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
const DAY: i64 = 86_400;
const BALANCERS_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn validate_service(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let before = errors.len();
    // Upstream allocates addresses before it validates, so errors of the addresses come alone.
    validate_cluster_ips(spec, old, &path, errors);
    if errors.len() > before {
        return;
    }
    // Both annotations have the same effect, and controllers of different releases read either.
    validate_topology_annotations(object, errors);
    let kind = text(spec, "type");
    // A headless Service is a list of addresses in DNS, and an external name an alias. Neither
    // needs ports.
    if list(spec, "ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    validate_fields_by_type(spec, kind, &path, errors);
    validate_service_ports(spec, &path.child("ports"), errors);
    // An empty selector is valid: the endpoints of such a Service are written by another
    // controller.
    metadata::validate_labels(spec, "selector", &path, errors);
    validate_session_affinity(spec, &path, errors);
    validate_external_ips(spec, old, &path.child("externalIPs"), errors);
    rules::validate_required_one_of(spec, "type", &TYPES, &path, errors);
    validate_node_ports(spec, kind, &path.child("ports"), errors);
    validate_source_ranges(object, kind, old, errors);
    if has(spec, "allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        errors.forbidden(&path.child("allocateLoadBalancerNodePorts"), BALANCERS_ONLY);
    }
    if !has(spec, "allocateLoadBalancerNodePorts") && kind == "LoadBalancer" {
        // Upstream's path has no `spec`.
        errors.required(&Path::ROOT.child("allocateLoadBalancerNodePorts"), "");
    }
    validate_load_balancer_class(spec, &path, errors);
    validate_external_traffic_policy(spec, old.is_some(), &path, errors);
    validate_internal_traffic_policy(spec, kind, &path, errors);
    if let Some(way) = opt_text(spec, "trafficDistribution")
        && !DISTRIBUTIONS.contains(&way)
    {
        errors.not_supported(&path.child("trafficDistribution"), way, &DISTRIBUTIONS);
    }
}

fn validate_topology_annotations(object: &Value, errors: &mut Errors) {
    let annotations = get(get(object, "metadata"), "annotations");
    let (hints, mode) = (
        opt_text(annotations, TOPOLOGY_HINTS),
        opt_text(annotations, TOPOLOGY_MODE),
    );
    if let (Some(hints), Some(mode)) = (hints, mode)
        && hints != mode
    {
        let metadata = Path::ROOT.child("metadata");
        errors.invalid(
            &metadata.child("annotations").key(TOPOLOGY_MODE),
            mode,
            format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified"),
        );
    }
}

fn validate_fields_by_type(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    match kind {
        // A node port forwards to the endpoints of a cluster IP's rules, which a headless Service
        // does not have.
        "NodePort" | "LoadBalancer" if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(&path.child("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => validate_external_name(spec, path, errors),
        _ => {}
    }
}

fn validate_external_name(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const UNUSED: &str = "may not be set for ExternalName services";
    // An alias gets no address. Old values of a former type are dropped by the strategy before this
    // check.
    for field in ["clusterIPs", "ipFamilies"] {
        if !list(spec, field).is_empty() {
            errors.forbidden(&path.child(field), UNUSED);
        }
    }
    if has(spec, "ipFamilyPolicy") {
        errors.forbidden(&path.child("ipFamilyPolicy"), UNUSED);
    }
    // DNS answers with a CNAME record, whose target may be absolute.
    let name = text(spec, "externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    let at = path.child("externalName");
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        errors.invalid_each(&at, name, names::dns1123_subdomain(name));
    }
}

fn validate_service_ports(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(spec, "ports");
    let mut seen = HashSet::new();
    for (i, port) in all.iter().enumerate() {
        validate_service_port(port, all.len() > 1, &mut seen, &path.index(i), errors);
    }
}

fn validate_service_port<'a>(
    port: &'a Value,
    named: bool,
    seen: &mut HashSet<&'a str>,
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
        if !seen.insert(name) {
            errors.duplicate(&at, name);
        }
    }
    let number = int(port, "port").unwrap_or(0);
    if let Some(problem) = rules::port_number_problem(number) {
        errors.invalid(&path.child("port"), number, problem);
    }
    // Defaulting sets TCP, so only an explicit empty text reaches this error as missing.
    rules::validate_required_one_of(port, "protocol", &PROTOCOLS, path, errors);
    rules::validate_port_number_or_name(get(port, "targetPort"), &path.child("targetPort"), errors);
    if let Some(protocol) = opt_text(port, "appProtocol") {
        errors.invalid_each(
            &path.child("appProtocol"),
            protocol,
            names::qualified_name(protocol),
        );
    }
}

fn validate_node_ports(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let all = list(spec, "ports");
    let node_port = |port: &Value| int(port, "nodePort").unwrap_or(0);
    for (i, _) in all.iter().enumerate().filter(|(_, p)| node_port(p) != 0) {
        // Old clients send the node port of a former type. The strategy drops it on a change of
        // type; a new object with one is a mistake.
        if kind == "ClusterIP" {
            errors.forbidden(
                &path.index(i).child("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
    }
    // The same number serves two protocols, which the node's kernel tells apart.
    let mut seen = HashSet::new();
    for (i, port) in all.iter().enumerate().filter(|(_, p)| node_port(p) != 0) {
        let key = (node_port(port), text(port, "protocol"));
        if !seen.insert(key) {
            errors.duplicate(&path.index(i).child("nodePort"), key.0);
        }
    }
    // kube-proxy looks a connection up by address, protocol and port.
    let mut seen = HashSet::new();
    for (i, port) in all.iter().enumerate() {
        let key = (int(port, "port").unwrap_or(0), text(port, "protocol"));
        if !seen.insert(key) {
            let shown = serde_json::json!({"port": key.0, "protocol": key.1});
            errors.duplicate(&path.index(i), shown);
        }
    }
}

fn validate_session_affinity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    rules::validate_required_one_of(spec, "sessionAffinity", &["ClientIP", "None"], path, errors);
    let at = path.child("sessionAffinityConfig");
    let config = get(spec, "sessionAffinityConfig");
    match text(spec, "sessionAffinity") {
        "ClientIP" => validate_client_ip_affinity(config, &at, errors),
        "None" if !config.is_null() => {
            errors.forbidden(&at, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn validate_client_ip_affinity(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MISSING: &str = "when session affinity type is ClientIP";
    let at = path.child("clientIP");
    if config.is_null() {
        return errors.required(path, MISSING);
    }
    if !has(config, "clientIP") {
        return errors.required(&at, MISSING);
    }
    // Defaulting sets three hours, so absent means that a client cleared the field.
    match int(get(config, "clientIP"), "timeoutSeconds") {
        None => errors.required(&at.child("timeoutSeconds"), MISSING),
        // The limit exists because proxies keep the affinity of every client in memory.
        Some(n) if !(1..=DAY).contains(&n) => errors.invalid(
            &at.child("timeoutSeconds"),
            n,
            format!("must be greater than 0 and less than {DAY}"),
        ),
        Some(_) => {}
    }
}

fn validate_external_ips(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    // Addresses of the old object are exempt: older releases accepted leading zeros, and other
    // fields must remain changeable.
    let known: HashSet<&str> = old
        .map(|old| texts(get(old, "spec"), "externalIPs"))
        .into_iter()
        .flatten()
        .collect();
    for (i, ip) in list(spec, "externalIPs").iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        let problems = match known.contains(ip) {
            true => Vec::new(),
            false => rules::ip_problems(ip),
        };
        // Old addresses are exempt from the syntax only. A loopback address is rejected on each
        // update.
        if problems.is_empty() {
            validate_endpoint_ip(ip, &path.index(i), errors);
        }
        errors.invalid_each(&path.index(i), ip, problems);
    }
}

fn validate_source_ranges(object: &Value, kind: &str, old: Option<&Value>, errors: &mut Errors) {
    let ranges = texts(get(object, "spec"), "loadBalancerSourceRanges");
    // The field wins over the annotation of older releases, which is not even parsed beside it.
    if ranges.is_empty() {
        return validate_source_range_annotation(object, kind, old, errors);
    }
    // Upstream spells the path with a capital letter, unlike the field. Clients match it.
    let spec = Path::ROOT.child("spec");
    let at = spec.child("LoadBalancerSourceRanges");
    if kind != "LoadBalancer" {
        errors.forbidden(&at, BALANCERS_ONLY);
    }
    // Ranges of the old object are exempt from the canonical form, which older releases didn't
    // demand.
    let known: HashSet<&str> = old
        .map(|old| texts(get(old, "spec"), "loadBalancerSourceRanges"))
        .into_iter()
        .flatten()
        .map(str::trim)
        .collect();
    for (i, range) in ranges.iter().map(|range| range.trim()).enumerate() {
        if !known.contains(range) {
            errors.invalid_each(&at.index(i), range, rules::cidr_problems(range));
        }
    }
}

fn validate_source_range_annotation(
    object: &Value,
    kind: &str,
    old: Option<&Value>,
    errors: &mut Errors,
) {
    let find = |object| opt_text(get(get(object, "metadata"), "annotations"), SOURCE_RANGES);
    let Some(value) = find(object) else { return };
    let metadata = Path::ROOT.child("metadata");
    let at = metadata.child("annotations");
    let at = at.key(SOURCE_RANGES);
    if kind != "LoadBalancer" {
        errors.forbidden(&at, BALANCERS_ONLY);
    }
    // An empty annotation means no restriction, as in cloud controllers.
    if old.and_then(find) != Some(value) && !value.trim().is_empty() {
        for range in value.trim().split(',').map(str::trim) {
            errors.invalid_each(&at, range, rules::cidr_problems(range));
        }
    }
}

fn validate_load_balancer_class(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(class) = opt_text(spec, "loadBalancerClass") else {
        return;
    };
    // A class selects the controller that implements the load balancer, so it belongs to that type.
    let at = path.child("loadBalancerClass");
    if text(spec, "type") == "LoadBalancer" {
        errors.invalid_each(&at, class, names::qualified_name(class));
    } else {
        errors.forbidden(&at, BALANCERS_ONLY);
    }
}

fn needs_health_check(spec: &Value) -> bool {
    // The load balancer asks the port which nodes have local endpoints. With policy Cluster every
    // node has.
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn validate_external_traffic_policy(
    spec: &Value,
    is_allocated: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // External IPs make a Service with the type ClusterIP reachable from outside, so it has the
    // policy too.
    let kind = text(spec, "type");
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
        (true, set) if !POLICIES.contains(&set) => errors.not_supported(&at, set, &POLICIES),
        _ => {}
    }
    // Without the local policy no proxy listens on the port, and a reserved port would be wasted.
    let port = int(spec, "healthCheckNodePort").unwrap_or(0);
    let at = path.child("healthCheckNodePort");
    match (needs_health_check(spec), port) {
        (false, 0) => {}
        (false, port) => errors.invalid(
            &at,
            port,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ),
        // A new Service is validated before its ports are allocated.
        (true, 0) if is_allocated => errors.required(&at, ""),
        (true, 0) => {}
        (true, port) => {
            if let Some(problem) = rules::port_number_problem(port) {
                errors.invalid(&at, port, problem);
            }
        }
    }
}

fn validate_internal_traffic_policy(
    spec: &Value,
    kind: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("internalTrafficPolicy");
    match opt_text(spec, "internalTrafficPolicy") {
        None if matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer") => {
            errors.required(&at, "");
        }
        Some(policy) if !POLICIES.contains(&policy) => errors.not_supported(&at, policy, &POLICIES),
        _ => {}
    }
}

fn validate_service_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    // The comparisons come before the rules of the spec, as upstream: a changed address is reported
    // first.
    validate_cluster_ips_update(n, o, &path, errors);
    validate_ip_families_update(n, o, &path, errors);
    let balancers = text(n, "type") == "LoadBalancer" && text(o, "type") == "LoadBalancer";
    // The controller of the old class would keep its load balancer.
    if balancers && !same(n, o, "loadBalancerClass") {
        errors.invalid(
            &path.child("loadBalancerClass"),
            get(n, "loadBalancerClass").clone(),
            "may not change once set",
        );
    }
    // The load balancer was configured with the port and would take all nodes for unhealthy.
    let port = |spec| int(spec, "healthCheckNodePort").unwrap_or(0);
    if needs_health_check(n) && needs_health_check(o) && port(n) != port(o) {
        errors.forbidden(&path.child("healthCheckNodePort"), rules::IMMUTABLE);
    }
    validate_service(new, Some(old), errors);
}
