//! Ingresses and IngressClasses.

use crate::field::{Errors, Path};
use crate::ip::parse_sloppy_ip;
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use crate::service::validate_load_balancer_status;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, text, texts};
use serde_json::Value;

pub const INGRESS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_new_ingress,
    update: |new, old, errors| validate_ingress(new, &Options::after(old), errors),
    sub: validate_ingress_status_update,
};
pub const INGRESS_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_ingress_class,
    update: validate_ingress_class_update,
    sub: accept_subresource,
};

const CLASS: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const SCOPES: [&str; 2] = ["Cluster", "Namespace"];
const LONGEST_CONTROLLER: usize = 250;
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Rules that the old object lifts: older releases did not have them.
#[derive(Default)]
struct Options {
    allows_secret_names: bool,
    allows_wildcard_rules: bool,
}

impl Options {
    fn after(old: &Value) -> Self {
        let spec = get(old, "spec");
        // One old name exempts all of them, because the entries have no identity across updates.
        let secrets = list(spec, "tls").iter().map(|tls| text(tls, "secretName"));
        let has_invalid_rule = |rule: &Value| {
            let mut errors = Errors::default();
            validate_http(rule, &Path::ROOT, &mut errors);
            !errors.is_empty()
        };
        Self {
            allows_secret_names: secrets
                .filter(|name| !name.is_empty())
                .any(|name| !names::dns1123_subdomain(name).is_empty()),
            allows_wildcard_rules: list(spec, "rules")
                .iter()
                .any(|rule| text(rule, "host").contains('*') && has_invalid_rule(rule)),
        }
    }
}

fn validate_new_ingress(object: &Value, errors: &mut Errors) {
    validate_ingress(object, &Options::default(), errors);
    // Updates are not checked, so that an old object can move from the annotation to the field in
    // steps.
    let annotation = opt_text(get(get(object, "metadata"), "annotations"), CLASS);
    let class = opt_text(get(object, "spec"), "ingressClassName");
    // Controllers of different classes would both serve it.
    if let (Some(annotation), Some(class)) = (annotation, class)
        && annotation != class
    {
        errors.invalid(
            &Path::ROOT.child("annotations").child(CLASS),
            annotation,
            "must match `ingressClassName` when both are specified",
        );
    }
}

fn validate_ingress(object: &Value, options: &Options, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let ingress_rules = list(spec, "rules");
    // Such an Ingress would accept traffic and lead it nowhere.
    if ingress_rules.is_empty() && !has(spec, "defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(&path, ingress_rules.to_vec(), detail);
    }
    if has(spec, "defaultBackend") {
        let backend = get(spec, "defaultBackend");
        validate_backend(backend, &path.child("defaultBackend"), errors);
    }
    let at = path.child("rules");
    for (i, rule) in ingress_rules.iter().enumerate() {
        let at = at.index(i);
        let host = text(rule, "host");
        // The host is compared with the `Host` header of requests, in which clients send a name.
        if parse_sloppy_ip(host).is_some() {
            let detail = "must be a DNS name, not an IP address";
            errors.invalid(&at.child("host"), host, detail);
        }
        if !host.is_empty() {
            validate_host(host, &at.child("host"), errors);
        }
        if !host.contains('*') || !options.allows_wildcard_rules {
            validate_http(rule, &at, errors);
        }
    }
    validate_tls(spec, options, &path.child("tls"), errors);
    if let Some(class) = opt_text(spec, "ingressClassName") {
        let at = path.child("ingressClassName");
        errors.invalid_each(&at, class, names::dns1123_subdomain(class));
    }
}

fn validate_tls(spec: &Value, options: &Options, path: &Path<'_>, errors: &mut Errors) {
    for (i, tls) in list(spec, "tls").iter().enumerate() {
        let at = path.index(i);
        let hosts = at.child("hosts");
        for (j, host) in texts(tls, "hosts").iter().enumerate() {
            validate_host(host, &hosts.index(j), errors);
        }
        // The name is optional, since TLS may be routed by the SNI host name alone.
        let secret = text(tls, "secretName");
        if !secret.is_empty() && !options.allows_secret_names {
            let at = at.child("secretName");
            errors.invalid_each(&at, secret, names::dns1123_subdomain(secret));
        }
    }
}

fn validate_host(host: &str, path: &Path<'_>, errors: &mut Errors) {
    if !host.contains('*') {
        return errors.invalid_each(path, host, names::dns1123_subdomain(host));
    }
    // The length includes the wildcard, since both are one name in a certificate.
    if host.len() > 253 {
        errors.invalid(path, host, "must be no more than 253 characters");
    }
    // The star stands for the first label only, as in certificates.
    let rest = host.strip_prefix("*.");
    if !rest.is_some_and(|rest| names::dns1123_subdomain(rest).is_empty()) {
        errors.invalid(path, host, WILDCARD);
    }
}

fn validate_http(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(rule, "http") {
        return;
    }
    let http = path.child("http");
    let path = http.child("paths");
    let all = list(get(rule, "http"), "paths");
    if all.is_empty() {
        errors.required(&path, "");
    }
    for (i, one) in all.iter().enumerate() {
        validate_http_path(one, &path.index(i), errors);
    }
}

fn validate_http_path(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (value, at) = (text(item, "path"), path.child("path"));
    match text(item, "pathType") {
        "" => return errors.required(&path.child("pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => validate_matched_path(value, &at, errors),
        // The controller defines the syntax, for instance a regular expression.
        "ImplementationSpecific" => {
            if !value.is_empty() && !value.starts_with('/') {
                errors.invalid(&at, value, "must be an absolute path");
            }
        }
        other => errors.not_supported(&path.child("pathType"), other, &PATH_TYPES),
    }
    validate_backend(get(item, "backend"), &path.child("backend"), errors);
}

/// Proxies normalize `..` and `//` in requests, each in its own way. A path with them would match
/// in one controller and not in another.
fn validate_matched_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if !value.starts_with('/') {
        errors.invalid(path, value, "must be an absolute path");
    }
    // An encoded slash is one of them: some proxies decode it before they match, and others after.
    for bad in ["//", "/./", "/../", "%2f", "%2F"] {
        if value.contains(bad) {
            errors.invalid(path, value, format!("must not contain '{bad}'"));
        }
    }
    for bad in ["/..", "/."] {
        if value.ends_with(bad) {
            errors.invalid(path, value, format!("cannot end with '{bad}'"));
        }
    }
}

fn validate_backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (has(backend, "service"), has(backend, "resource")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
        // Resource backends are objects of the controller, such as a bucket (KEP-1453).
        (false, true) => {
            validate_object_reference(get(backend, "resource"), &path.child("resource"), errors);
        }
        (true, false) => validate_service_backend(get(backend, "service"), path, errors),
    }
}

fn validate_service_backend(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("service");
    match text(service, "name") {
        "" => errors.required(&at.child("name"), ""),
        name => errors.invalid_each(&at.child("name"), name, names::dns1123_label(name)),
    }
    let port = get(service, "port");
    let at = at.child("port");
    match (text(port, "name"), int(port, "number").unwrap_or(0)) {
        // Upstream reports the port at the path of the backend.
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => {
            if let Some(problem) = rules::port_number_problem(number) {
                errors.invalid(&at.child("number"), number, problem);
            }
        }
        (name, 0) => errors.invalid_each(&at.child("name"), name, rules::port_name_problems(name)),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

fn validate_object_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = opt_text(reference, "apiGroup") {
        let at = path.child("apiGroup");
        errors.invalid_each(&at, group, names::dns1123_subdomain(group));
    }
    for field in ["kind", "name"] {
        match text(reference, field) {
            "" => errors.required(&path.child(field), ""),
            value => errors.invalid_each(&path.child(field), value, names::path_segment(value)),
        }
    }
}

fn validate_ingress_status_update(
    subresource: &str,
    new: &Value,
    old: &Value,
    errors: &mut Errors,
) {
    if subresource == "status" {
        let status = Path::ROOT.child("status");
        // Addresses of the old status are exempt, so that a controller can write the rest of the
        // status.
        let balancer = |object| get(get(object, "status"), "loadBalancer");
        let path = status.child("loadBalancer");
        validate_load_balancer_status(balancer(new), balancer(old), &path, errors);
    }
}

fn validate_ingress_class(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let controller = text(spec, "controller");
    if controller.len() > LONGEST_CONTROLLER {
        errors.too_long(&path.child("controller"), LONGEST_CONTROLLER);
    }
    // The name selects the controller that serves the class, and a domain keeps vendors apart.
    rules::validate_domain_prefixed_path(controller, &path.child("controller"), errors);
    let (parameters, at) = (get(spec, "parameters"), path.child("parameters"));
    if parameters.is_null() {
        return;
    }
    validate_object_reference(parameters, &at, errors);
    // An empty namespace differs from none: only the latter fits to a cluster-scoped parameter.
    let namespace = opt_text(parameters, "namespace");
    let place = at.child("namespace");
    match (opt_text(parameters, "scope"), namespace) {
        (None, _) => errors.required(&at.child("scope"), ""),
        (Some("Namespace"), None) => {
            errors.required(&place, "`parameters.scope` is set to 'Namespace'");
        }
        (Some("Namespace"), Some(namespace)) => {
            errors.invalid_each(&place, namespace, names::dns1123_label(namespace));
        }
        (Some("Cluster"), Some(_)) => {
            errors.forbidden(&place, "`parameters.scope` is set to 'Cluster'");
        }
        (Some("Cluster"), None) => {}
        (Some(other), _) => errors.not_supported(&at.child("scope"), other, &SCOPES),
    }
}

fn validate_ingress_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    // The old controller would leave its load balancers behind, because it ignores classes of
    // others.
    rules::validate_immutable(
        get(new, "spec"),
        get(old, "spec"),
        "controller",
        &Path::ROOT.child("spec"),
        errors,
    );
    // The comparison comes first, as upstream.
    validate_ingress_class(new, errors);
}
