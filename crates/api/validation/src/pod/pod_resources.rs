//! Resources of a whole pod (KEP-2837) and their consistency with those of its containers.

use super::context::{PodContext, is_sidecar};
use super::resources::{HUGE, validate_requirements};
use crate::field::{Errors, Path};
use api_meta::Quantity;
use api_meta::tree::{entries, get, has, list};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;
use std::collections::BTreeMap;

type Amounts<'a> = BTreeMap<&'a str, Quantity>;

/// Validates `resources` of a pod.
pub fn validate_pod_resources(
    spec: &Value,
    context: &PodContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !has(spec, "resources") {
        return;
    }
    let (resources, at) = (get(spec, "resources"), path.child("resources"));
    if context.system == Some("windows") {
        errors.forbidden(&at, "may not be set for a windows pod");
        return;
    }
    // Claims are bound to containers; the sum over a pod has no meaning.
    if has(resources, "claims") {
        let detail = "claims may not be set for Resources at pod-level";
        errors.forbidden(&at.child("claims"), detail);
    }
    validate_requirements(
        resources,
        true,
        &context.claims,
        context.options,
        &at,
        errors,
    );
    validate_requests(spec, resources, &at, errors);
    validate_limits(spec, resources, &at, errors);
}

/// Checks that the pod requests at least what its containers request together.
fn validate_requests(spec: &Value, resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (own, at) = (get(resources, "requests"), path.child("requests"));
    for (name, sum) in sum_containers(spec, "requests") {
        let Some(amount) = own.get(name).and_then(parse_quantity) else {
            continue;
        };
        if sum > amount {
            let detail =
                format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid(&at.key(name), get(own, name).clone(), detail);
        }
    }
}

fn validate_limits(spec: &Value, resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (own, at) = (get(resources, "limits"), path.child("limits"));
    // Huge pages are not overcommitted, so limits add up. Other containers may share a limit.
    for (name, sum) in sum_containers(spec, "limits") {
        let Some(amount) = own.get(name).and_then(parse_quantity) else {
            continue;
        };
        if name.starts_with(HUGE) && sum > amount {
            let detail =
                format!("must be greater than or equal to aggregate container limits of {sum}");
            errors.invalid(&at.key(name), get(own, name).clone(), detail);
        }
    }
    let at = path.child("containers");
    for (i, container) in list(spec, "containers").iter().enumerate() {
        for (name, value) in entries(get(container, "resources"), "limits") {
            let pair = parse_quantity(value).zip(own.get(name).and_then(parse_quantity));
            if let Some((_, limit)) = pair.filter(|(amount, limit)| amount > limit) {
                let detail = format!("must be less than or equal to pod limits of {limit}");
                let at = at.index(i);
                let at = at.key(name);
                errors.invalid(&at.child("limits"), value.clone(), detail);
            }
        }
    }
}

/// Returns what a pod's containers need: the sum of the containers that run together, or that of an
/// init container with the sidecars before it, whichever is larger.
fn sum_containers<'a>(spec: &'a Value, part: &str) -> Amounts<'a> {
    let mut total = Amounts::new();
    for container in list(spec, "containers") {
        add_amounts(&mut total, container, part);
    }
    let mut sidecars = Amounts::new();
    let mut largest = Amounts::new();
    for container in list(spec, "initContainers") {
        let mut needed = sidecars.clone();
        add_amounts(&mut needed, container, part);
        if is_sidecar(container) {
            add_amounts(&mut total, container, part);
            sidecars.clone_from(&needed);
        }
        keep_maximum(&mut largest, needed);
    }
    keep_maximum(&mut total, largest);
    total
}

fn add_amounts<'a>(sum: &mut Amounts<'a>, container: &'a Value, part: &str) {
    for (name, value) in entries(get(container, "resources"), part) {
        if let Some(amount) = parse_quantity(value) {
            let before = sum.entry(name).or_insert(Quantity::ZERO);
            *before = before.plus(amount);
        }
    }
}

fn keep_maximum<'a>(largest: &mut Amounts<'a>, other: Amounts<'a>) {
    for (name, amount) in other {
        let before = largest.entry(name).or_insert(amount);
        *before = amount.max(*before);
    }
}
