//! Resource requests and limits.

use crate::field::{Errors, Path};
use crate::rules::{self, NEGATIVE};
use api_meta::tree::{entries, get, has, list as items, text};
use api_meta::{Quantity, names};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;

const CONTAINER: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE: &str = "hugepages-";
const CPU_PRECISION: &str = "must be an integer";

/// Returns whether a name is that of an extended resource (`example.com/gpu`).
pub fn is_extended_resource(name: &str) -> bool {
    // Names of kubernetes.io are native resources, and `requests.` is the prefix that quotas put
    // before an extended resource.
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

fn validate_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_each(path, name, names::qualified_name(name));
    // Upstream reports an unqualified unknown name twice, by the rule of all resources and by that
    // of containers.
    let standard = CONTAINER.contains(&name) || name.starts_with(HUGE);
    if !name.contains('/') && !standard {
        errors.invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        );
        errors.invalid(path, name, "must be a standard resource for containers");
    }
}

/// Validates a resource name of a container, with one error for an invalid name.
fn validate_container_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_standard_name(name, path, errors);
    let standard = CONTAINER.contains(&name) || name.starts_with(HUGE);
    if !name.contains('/') && !standard {
        errors.invalid(path, name, "must be a standard resource for containers");
    }
}

/// Object kinds that are counted as resources.
const OBJECTS: [&str; 7] = [
    "pods",
    "services",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "resourcequotas",
    "replicationcontrollers",
];
/// Resource names without a domain.
pub const STANDARD: [&str; 21] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
    "count",
];

/// Validates a resource name, standard or with a domain, with one error for an invalid name.
pub fn validate_standard_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let problems = names::qualified_name(name);
    let good = problems.is_empty();
    errors.invalid_each(path, name, problems);
    let huge = [HUGE, "requests.hugepages-", "limits.hugepages-"]
        .iter()
        .any(|p| name.starts_with(p));
    if good && !name.contains('/') && !huge && !STANDARD.contains(&name) {
        errors.invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        );
    }
}

/// Validates an amount: not negative, and whole if the resource is counted.
pub fn validate_resource_quantity(
    name: &str,
    amount: Quantity,
    shown: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if amount.is_negative() {
        errors.invalid(path, shown.clone(), NEGATIVE);
    }
    let counted = is_extended_resource(name) || OBJECTS.contains(&name);
    // Device plugins hand out whole devices, and objects are counted. CPU and memory may have
    // fractions.
    if counted && amount.milli_value() % 1000 != 0 {
        errors.invalid(path, shown.clone(), CPU_PRECISION);
    }
}

/// Validates a resource list of a node or runtime class.
pub fn validate_resource_list(parent: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child(field);
    for (name, value) in entries(parent, field) {
        let at = at.key(name);
        validate_resource_name(name, &at, errors);
        if let Some(amount) = parse_quantity(value) {
            validate_resource_quantity(name, amount, value, &at, errors);
        }
    }
}

/// Validates `resources` of a container.
pub fn validate_container_resources(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    if has(container, "resources") {
        validate_requirements(
            get(container, "resources"),
            false,
            &path.child("resources"),
            errors,
        );
    }
}

/// Validates requests and limits.
pub fn validate_requirements(
    resources: &Value,
    whole_pod: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (limits, requests) = (get(resources, "limits"), get(resources, "requests"));
    let at = path.child("limits");
    let mut huge = false;
    // Limits are checked first: the rules of requests compare with them.
    for (name, value) in entries(resources, "limits") {
        let at = at.key(name);
        validate_named_amount(name, value, whole_pod, &at, errors);
        huge |= name.starts_with(HUGE);
    }
    let at = path.child("requests");
    for (name, value) in entries(resources, "requests") {
        let key = at.key(name);
        validate_named_amount(name, value, whole_pod, &key, errors);
        let Some(request) = parse_quantity(value) else {
            continue;
        };
        huge |= name.starts_with(HUGE);
        match rules::read_quantity(limits, name) {
            Some(limit) => validate_request_within_limit(name, request, limit, value, &at, errors),
            // A node cannot lend such resources to several containers, so a request without a limit
            // could not be enforced.
            None if is_extended_resource(name) || name.starts_with(HUGE) => {
                errors.required(
                    &path.child("limits"),
                    "Limit must be set for non overcommitable resources",
                );
            }
            None => {}
        }
    }
    validate_claims(resources, whole_pod, &path.child("claims"), errors);
    let base = |n: &str| limits.get(n).is_some() || requests.get(n).is_some();
    // Huge pages are taken out of the memory of a pod. A pod that requests nothing else would be
    // BestEffort, and evicted first, with pages that cannot be swapped.
    if huge && !base("cpu") && !base("memory") {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

fn validate_claims(resources: &Value, whole_pod: bool, path: &Path<'_>, errors: &mut Errors) {
    let all = items(resources, "claims");
    // Claims are bound to containers; the sum over a pod has no meaning (KEP-2837).
    if whole_pod && !all.is_empty() {
        errors.forbidden(path, "claims may not be set for Resources at pod-level");
    }
    for (i, claim) in all.iter().enumerate() {
        let request = text(claim, "request");
        if !request.is_empty() {
            errors.invalid_each(
                &path.index(i).child("request"),
                request,
                names::dns1123_label(request),
            );
        }
    }
}

fn validate_request_within_limit(
    name: &str,
    request: Quantity,
    limit: Quantity,
    shown: &Value,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    // No overcommitment: what is requested is what is used.
    let exact = is_extended_resource(name) || name.starts_with(HUGE);
    if exact && request != limit {
        errors.invalid(
            at,
            shown.clone(),
            format!("must be equal to {name} limit of {limit}"),
        );
    } else if !exact && request > limit {
        errors.invalid(
            at,
            shown.clone(),
            format!("must be less than or equal to {name} limit of {limit}"),
        );
    }
}

fn validate_named_amount(
    name: &str,
    value: &Value,
    whole_pod: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if whole_pod {
        let before = errors.len();
        validate_standard_name(name, path, errors);
        // The pod's cgroup limits exactly these three; the kubelet counts storage and devices
        // container by container.
        if errors.len() == before && !matches!(name, "cpu" | "memory") && !name.starts_with(HUGE) {
            errors.not_supported(path, name, &["cpu", "memory"]);
        }
        return;
    }
    validate_container_resource_name(name, path, errors);
    if let Some(amount) = parse_quantity(value) {
        validate_resource_quantity(name, amount, value, path, errors);
    }
}

/// Validates `overhead` of a pod.
pub fn validate_overhead(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (name, value) in entries(spec, "overhead") {
        // Upstream validates the overhead with the function for limits, so `limits` is a part of
        // the path.
        validate_named_amount(name, value, false, &path.child("limits").key(name), errors);
    }
}

/// Validates `resizePolicy` of a container.
pub fn validate_resize_policy(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for policy in items(container, "resizePolicy") {
        let name = text(policy, "resourceName");
        match name {
            "" => errors.required(path, ""),
            "cpu" | "memory" if seen.contains(&name) => errors.duplicate(path, name),
            "cpu" | "memory" => seen.push(name),
            other => errors.not_supported(path, other, &["cpu", "memory"]),
        }
        match text(policy, "restartPolicy") {
            "" => errors.required(path, ""),
            "NotRequired" | "RestartContainer" => {}
            other => errors.not_supported(path, other, &["NotRequired", "RestartContainer"]),
        }
    }
}
