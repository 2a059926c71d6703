//! Users and allocated devices in the statuses of containers, and statuses of resource claims.

use super::security::validate_user_or_group_id;
use crate::field::{Errors, Path};
use api_meta::names;
use api_meta::tree::{entries, get, has, list, opt_text, text};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;
use std::collections::BTreeSet;

const LISTS: [(&str, &str); 2] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
];
const EPHEMERAL: &str = "ephemeralContainerStatuses";
const HEALTH: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
const LONGEST_MESSAGE: usize = 1024;

/// Validates the statuses of all containers.
pub fn validate_container_statuses(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (status, spec) = (get(pod, "status"), get(pod, "spec"));
    let system = opt_text(get(spec, "os"), "name").unwrap_or("linux");
    for field in ["containerStatuses", "initContainerStatuses", EPHEMERAL] {
        let at = path.child(field);
        for (i, one) in list(status, field).iter().enumerate() {
            let at = at.index(i);
            validate_container_user(get(one, "user"), system, &at.child("user"), errors);
        }
    }
    for (field, containers) in LISTS {
        let at = path.child(field);
        for (i, one) in list(status, field).iter().enumerate() {
            let mut all = list(spec, containers).iter();
            let container = all.find(|c| text(c, "name") == text(one, "name"));
            let at = at.index(i);
            let at = at.child("allocatedResourcesStatus");
            for (j, resource) in list(one, "allocatedResourcesStatus").iter().enumerate() {
                validate_allocated_resource(resource, container, &at.index(j), errors);
            }
        }
    }
    let at = path.child(EPHEMERAL);
    for (i, one) in list(status, EPHEMERAL).iter().enumerate() {
        if !list(one, "allocatedResourcesStatus").is_empty() {
            let at = at.index(i);
            let detail = "must not be specified in container status";
            errors.forbidden(&at.child("allocatedResourcesStatus"), detail);
        }
    }
}

fn validate_container_user(user: &Value, system: &str, path: &Path<'_>, errors: &mut Errors) {
    if !has(user, "linux") {
        return;
    }
    let (linux, at) = (get(user, "linux"), path.child("linux"));
    match system {
        "windows" => errors.forbidden(&at, "cannot be set for a windows pod"),
        "linux" => {
            for field in ["uid", "gid"] {
                validate_user_or_group_id(get(linux, field), &at.child(field), errors);
            }
            let groups = at.child("supplementalGroups");
            for (i, group) in list(linux, "supplementalGroups").iter().enumerate() {
                validate_user_or_group_id(group, &groups.index(i), errors);
            }
        }
        _ => {}
    }
}

fn validate_allocated_resource(
    resource: &Value,
    container: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = text(resource, "name");
    // The status of a container that the spec does not have is tolerated.
    if let Some(container) = container {
        validate_resource_owner(
            name,
            get(container, "resources"),
            &path.child("name"),
            errors,
        );
    }
    let mut seen = BTreeSet::new();
    let at = path.child("resources");
    for (i, device) in list(resource, "resources").iter().enumerate() {
        let at = at.index(i);
        let health = text(device, "health");
        if !HEALTH.contains(&health) {
            errors.not_supported(&at.child("health"), health, &HEALTH);
        }
        if let Some(message) = opt_text(device, "message") {
            let at = at.child("message");
            if message.is_empty() {
                errors.required(&at, "must be non-empty if specified");
            } else if message.len() > LONGEST_MESSAGE {
                errors.too_long(&at, LONGEST_MESSAGE);
            }
        }
        let id = text(device, "resourceID");
        if !seen.insert(id) {
            errors.duplicate(&at.child("resourceID"), id);
        }
    }
}

fn validate_resource_owner(name: &str, resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (found, detail) = match name.strip_prefix("claim:") {
        Some(claim) => {
            let is_claim = |c: &Value| {
                let (name, request) = (text(c, "name"), text(c, "request"));
                match claim.split_once('/') {
                    Some((n, r)) => n == name && r == request && !r.is_empty(),
                    None => claim == name && request.is_empty(),
                }
            };
            (
                list(resources, "claims").iter().any(is_claim),
                "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
            )
        }
        None => (
            entries(resources, "requests").any(|(requested, _)| requested == name),
            "must match one of the container's resource requests",
        ),
    };
    if !found {
        errors.invalid(path, name, detail);
    }
}

/// Validates `resourceClaimStatuses`, the names of claims that were made from templates.
pub fn validate_claim_statuses(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let claims = list(get(pod, "spec"), "resourceClaims");
    let at = path.child("resourceClaimStatuses");
    let mut seen = BTreeSet::new();
    for (i, status) in list(get(pod, "status"), "resourceClaimStatuses")
        .iter()
        .enumerate()
    {
        let at = at.index(i);
        let name = text(status, "name");
        if !claims.iter().any(|claim| text(claim, "name") == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&at.child("name"), name, detail);
        }
        if !seen.insert(name) {
            errors.duplicate(&at.child("name"), name);
        }
        if let Some(claim) = opt_text(status, "resourceClaimName") {
            let at = at.child("resourceClaimName");
            errors.invalid_each(&at, claim, names::dns1123_subdomain(claim));
        }
    }
}

/// Validates `extendedResourceClaimStatus`: the requests of a claim that was made for extended
/// resources of the containers.
pub fn validate_extended_claim(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let status = get(get(pod, "status"), "extendedResourceClaimStatus");
    if status.is_null() {
        return;
    }
    let path = path.child("extendedResourceClaimStatus");
    let mappings = list(status, "requestMappings");
    let at = path.child("requestMappings");
    if mappings.is_empty() {
        errors.required(&at, "at least one request mapping is required");
    }
    let mut seen = BTreeSet::new();
    for (i, mapping) in mappings.iter().enumerate() {
        let at = at.index(i);
        validate_request_mapping(mapping, get(pod, "spec"), &at, errors);
        let request = text(mapping, "requestName");
        // Upstream names the status in this path, not the mapping.
        let name_at = path.child("requestName");
        errors.invalid_each(&name_at, request, names::dns1123_label(request));
        let fields = ["containerName", "resourceName", "requestName"];
        if !seen.insert(fields.map(|field| text(mapping, field))) {
            for field in fields {
                errors.duplicate(&at.child(field), text(mapping, field));
            }
        }
    }
    let (name, at) = (
        text(status, "resourceClaimName"),
        path.child("resourceClaimName"),
    );
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        errors.invalid_each(&at, name, names::dns1123_subdomain(name));
    }
}

fn validate_request_mapping(mapping: &Value, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, resource) = (
        text(mapping, "containerName"),
        text(mapping, "resourceName"),
    );
    let container = ["containers", "initContainers"]
        .iter()
        .flat_map(|field| list(spec, field))
        .find(|container| text(container, "name") == name);
    match container {
        None => {
            let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
            errors.invalid(&path.child("containerName"), name, detail);
        }
        Some(container) => {
            let requests = get(get(container, "resources"), "requests");
            if requests.get(resource).is_none() {
                let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                errors.invalid(&path.child("resourceName"), resource, detail);
            }
        }
    }
}

/// Validates `nodeAllocatableResourceClaimStatuses`: amounts of the node that claims stand for.
pub fn validate_node_claims(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (spec, status) = (get(pod, "spec"), get(pod, "status"));
    let at = path.child("nodeAllocatableResourceClaimStatuses");
    let all = list(status, "nodeAllocatableResourceClaimStatuses");
    for (i, one) in all.iter().enumerate() {
        let at = at.index(i);
        let (name, name_at) = (
            text(one, "resourceClaimName"),
            at.child("resourceClaimName"),
        );
        if name.is_empty() {
            errors.required(&name_at, "must not be empty");
        }
        // The name of a claim from a template is generated, so that only the status has it.
        let mut references = list(spec, "resourceClaims")
            .iter()
            .chain(list(status, "resourceClaimStatuses"));
        if !references.any(|r| opt_text(r, "resourceClaimName") == Some(name)) {
            errors.invalid(&name_at, name, "no mapping found in pod reference");
        }
        for field in ["containers", "resources"] {
            let is_empty = match get(one, field) {
                Value::Array(items) => items.is_empty(),
                Value::Object(map) => map.is_empty(),
                _ => true,
            };
            if is_empty {
                errors.required(&at.child(field), "must not be empty");
            }
        }
        let at = at.child("resources");
        for (resource, value) in entries(one, "resources") {
            let key = at.key(resource);
            if resource.contains('/') && !resource.contains("kubernetes.io/") {
                let detail = "must be a node allocatable resource name";
                errors.invalid(&key, resource.as_str(), detail);
            }
            if parse_quantity(value).is_some_and(|q| q.is_negative()) {
                errors.invalid(&key, value.clone(), "must be non-negative");
            }
        }
    }
}
