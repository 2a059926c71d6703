//! Resource requests and limits.

use super::claims;
use super::options::PodOptions;
use crate::field::{Errors, Path};
use crate::rules::{self, NEGATIVE};
use api_meta::tree::{entries, get, list as items, text};
use api_meta::{Quantity, names};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

const CONTAINER: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
pub(crate) const HUGE: &str = "hugepages-";
const COMPUTE: [&str; 2] = ["cpu", "memory"];
const RESIZE_POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
const CPU_PRECISION: &str = "must be an integer";
const PART_OF_QUOTA: &str = "requests.";

/// Returns whether a name is that of an extended resource (`example.com/gpu`).
pub fn is_extended_resource(name: &str) -> bool {
    // A quota puts its prefix before the name, and the result must be a name, too.
    !is_native_resource(name)
        && !name.starts_with(PART_OF_QUOTA)
        && names::qualified_name(&format!("{PART_OF_QUOTA}{name}")).is_empty()
}

/// Returns whether a resource belongs to Kubernetes itself.
/// Returns whether a resource is one of Kubernetes.
pub fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_overcommit_allowed(name: &str) -> bool {
    is_native_resource(name) && !name.starts_with(HUGE)
}

/// Validates a resource name of a container. An unknown name has two errors, by the rule of all
/// resources and by that of containers.
pub fn validate_container_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_standard_name(name, path, errors);
    let standard = CONTAINER.contains(&name) || name.starts_with(HUGE);
    if !name.contains('/') {
        if !standard {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native_resource(name) && !is_extended_resource(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// Object kinds that are counted as resources.
const OBJECTS: [&str; 9] = [
    "pods",
    "services",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "resourcequotas",
    "replicationcontrollers",
    "services.nodeports",
    "services.loadbalancers",
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
    // Sizes of huge pages depend on the architecture, so there is no list of them.
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
    // Zero is valid: a container may state that it needs none of a resource.
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
        validate_container_resource_name(name, &at, errors);
        if let Some(amount) = parse_quantity(value) {
            validate_resource_quantity(name, amount, value, &at, errors);
        }
    }
}

/// Validates requests and limits of a container, or of the whole pod.
pub fn validate_requirements(
    resources: &Value,
    whole_pod: bool,
    claims: &BTreeSet<&str>,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let limits = get(resources, "limits");
    let at = path.child("limits");
    // Limits are checked first: the rules of requests compare with them.
    for (name, value) in entries(resources, "limits") {
        validate_named_amount(name, value, whole_pod, options, &at.key(name), errors);
    }
    let at = path.child("requests");
    for (name, value) in entries(resources, "requests") {
        validate_named_amount(name, value, whole_pod, options, &at.key(name), errors);
        let Some(request) = parse_quantity(value) else {
            continue;
        };
        match rules::read_quantity(limits, name) {
            Some(limit) => validate_request_within_limit(name, request, limit, value, &at, errors),
            // A node cannot lend such resources to several containers, so a request without a limit
            // could not be enforced.
            None if !is_overcommit_allowed(name) => {
                let detail = "Limit must be set for non overcommitable resources";
                errors.required(&path.child("limits"), detail);
            }
            None => {}
        }
    }
    let has_any = |is: &dyn Fn(&str) -> bool| {
        let mut all = entries(resources, "limits").chain(entries(resources, "requests"));
        all.any(|(name, _)| is(name))
    };
    // Huge pages are taken out of the memory of a pod. A pod that requests nothing else would be
    // BestEffort, and evicted first, with pages that cannot be swapped.
    let has_huge = has_any(&|n| n.starts_with(HUGE));
    if has_huge && !has_any(&|n| COMPUTE.contains(&n)) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    claims::validate_claim_names(resources, claims, &path.child("claims"), errors);
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
    if request != limit && !is_overcommit_allowed(name) {
        let detail = format!("must be equal to {name} limit of {limit}");
        errors.invalid(at, shown.clone(), detail);
    } else if request > limit {
        let detail = format!("must be less than or equal to {name} limit of {limit}");
        errors.invalid(at, shown.clone(), detail);
    }
}

fn validate_named_amount(
    name: &str,
    value: &Value,
    whole_pod: bool,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if whole_pod {
        // A name that is malformed has its error already and is not also reported as unsupported.
        let before = errors.len();
        validate_standard_name(name, path, errors);
        // The pod's cgroup limits exactly these; the kubelet counts storage and devices container
        // by container.
        if errors.len() == before && !COMPUTE.contains(&name) && !name.starts_with(HUGE) {
            errors.not_supported(path, name, &["cpu", HUGE, "memory"]);
        }
    } else {
        validate_container_resource_name(name, path, errors);
    }
    let Some(amount) = parse_quantity(value) else {
        return;
    };
    validate_resource_quantity(name, amount, value, path, errors);
    // Old pods with broken pages are exempt: their resources are immutable, but their labels are
    // not.
    if name.starts_with(HUGE)
        && !options.indivisible_huge_pages
        && !is_multiple_of_page(name, amount)
    {
        let detail = format!("{amount} is not positive integer multiple of {name}");
        errors.invalid(path, value.clone(), detail);
    }
}

/// Returns whether an amount of huge pages is a number of whole pages.
fn is_multiple_of_page(name: &str, amount: Quantity) -> bool {
    let size = name.strip_prefix(HUGE).unwrap_or_default();
    let Ok(size) = size.parse::<Quantity>() else {
        return false;
    };
    // The division is checked, since the size comes from the name and may be zero.
    let is_whole = !size.is_negative() && size.milli_value() % 1000 == 0;
    is_whole && amount.value().checked_rem(size.value()) == Some(0)
}

/// Returns whether a container or an overhead has amounts of huge pages that are no whole pages.
pub fn has_indivisible_huge_pages(parent: &Value, field: &str) -> bool {
    entries(parent, field).any(|(name, value)| {
        name.starts_with(HUGE)
            && parse_quantity(value).is_some_and(|amount| !is_multiple_of_page(name, amount))
    })
}

/// Validates `overhead` of a pod.
pub fn validate_overhead(spec: &Value, options: &PodOptions, path: &Path<'_>, errors: &mut Errors) {
    // Upstream validates the overhead with the function for limits, so `limits` is a part of the
    // path.
    let limits = serde_json::json!({"limits": get(spec, "overhead")});
    validate_requirements(&limits, false, &BTreeSet::new(), options, path, errors);
}

/// Validates `resizePolicy` of a container.
pub fn validate_resize_policy(
    container: &Value,
    restart_policy: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, policy) in items(container, "resizePolicy").iter().enumerate() {
        let name = text(policy, "resourceName");
        // Two policies for one resource would contradict each other about a restart.
        if seen.contains(&name) {
            errors.duplicate(&path.index(i), name);
        }
        seen.insert(name);
        let action = text(policy, "restartPolicy");
        for (value, known) in [(name, &COMPUTE), (action, &RESIZE_POLICIES)] {
            match value {
                "" => errors.required(path, ""),
                other if !known.contains(&other) => errors.not_supported(path, other, known),
                _ => {}
            }
        }
        // Nothing restarts in such a pod, so the new amounts would never be set.
        if restart_policy == "Never" && action != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, action, detail);
        }
    }
}
