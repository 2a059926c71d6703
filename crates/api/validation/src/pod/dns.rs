//! Host names and name resolution of pods.

use crate::field::{Errors, Path};
use crate::rules;
use api_meta::names;
use api_meta::tree::{flag, get, has, list, text, texts};
use serde_json::Value;

const NAME_SERVERS: usize = 3;
// glibc up to 2.25 reads 6 domains and 256 characters. Kubernetes allows more since 1.28
// (KEP-2595), because later versions have no limit.
const SEARCH_PATHS: usize = 32;
const SEARCH_CHARACTERS: usize = 2048;
/// Longest host name of Linux (`HOST_NAME_MAX`).
const HOST_NAME: usize = 64;
const UNDERSCORE_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '";

/// Validates `hostnameOverride`.
pub fn validate_host_name(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "hostnameOverride") {
        return;
    }
    let at = path.child("hostnameOverride");
    // Both decide the host name, too.
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if flag(spec, field) {
            errors.forbidden(&at, format!("may not be specified when {field} is true"));
        }
    }
    let name = text(spec, "hostnameOverride");
    // A longer name would be accepted here and fail when the kubelet starts the pod.
    if name.len() > HOST_NAME {
        errors.too_long(&at, HOST_NAME);
    }
    errors.invalid_each(&at, name, names::dns1123_subdomain(name));
}

/// Validates `hostAliases`.
pub fn validate_host_aliases(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, alias) in list(spec, "hostAliases").iter().enumerate() {
        let at = path.index(i);
        // The kubelet writes the entries into `/etc/hosts` unchanged, so a line break in one could
        // add others.
        let ip = text(alias, "ip");
        errors.invalid_each(&at.child("ip"), ip, rules::ip_problems(ip));
        let hosts = at.child("hostnames");
        for (j, name) in list(alias, "hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.invalid_each(&hosts.index(j), name, names::dns1123_subdomain(name));
        }
    }
}

/// Validates `dnsConfig`.
pub fn validate_dns_config(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let config = get(spec, "dnsConfig");
    let servers = list(config, "nameservers");
    let at = path.child("nameservers");
    // Without the cluster's configuration, a container would have no way to resolve any name.
    if text(spec, "dnsPolicy") == "None" {
        if config.is_null() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&at, detail);
            return;
        }
    }
    // The C library of the containers reads three `nameserver` lines of resolv.conf and ignores the
    // rest.
    if servers.len() > NAME_SERVERS {
        let detail = format!("must not have more than {NAME_SERVERS} nameservers");
        errors.invalid(&at, servers.to_vec(), detail);
    }
    for (i, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        errors.invalid_each(&at.index(i), server, rules::ip_problems(server));
    }
    validate_search_paths(&texts(config, "searches"), &path.child("searches"), errors);
    let at = path.child("options");
    // Values of options are free: libraries of containers know options that Kubernetes doesn't.
    for (i, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&at.index(i), "must not be empty");
        }
    }
}

fn validate_search_paths(searches: &[&str], at: &Path<'_>, errors: &mut Errors) {
    if searches.len() > SEARCH_PATHS {
        let detail = format!("must not have more than {SEARCH_PATHS} search paths");
        errors.invalid(at, searches.to_vec(), detail);
    }
    // The spaces count, since resolvers limit the line as a whole.
    if searches.join(" ").len() > SEARCH_CHARACTERS {
        let detail = format!(
            "must not have more than {SEARCH_CHARACTERS} characters (including spaces) in the search list"
        );
        errors.invalid(at, searches.to_vec(), detail);
    }
    for (i, search) in searches.iter().enumerate() {
        // A single dot means no search list, and a trailing dot is the form of an absolute name.
        if *search != "." {
            let name = search.strip_suffix('.').unwrap_or(search);
            errors.invalid_each(&at.index(i), name, subdomain_problems(name));
        }
    }
}

/// Returns the problems of a subdomain whose labels may have `_`, as names of services (RFC 2782).
fn subdomain_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    let is_edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |label: &str| {
        // One underscore may precede the label, as in `_tcp`.
        let bytes = label.strip_prefix('_').unwrap_or(label).as_bytes();
        bytes.iter().all(|b| is_edge(b) || matches!(b, b'-' | b'_'))
            && bytes.first().is_some_and(is_edge)
            && bytes.last().is_some_and(is_edge)
    };
    if !name.split('.').all(is_label) {
        problems.push(format!(
            "{UNDERSCORE_SUBDOMAIN}_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
        ));
    }
    problems
}
