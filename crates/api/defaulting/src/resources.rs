//! Resource lists: rounding, and the resources of a whole pod.

use api_meta::tree::{at_mut, entries, fill, get, has, make};
use api_semantics::quantities::round_up_quantities;
use api_semantics::resources::{Options, ResourceList, is_pod_level, pod_limits, pod_requests};
use serde_json::Value;

/// Rounds the named resource lists of `parent` up to thousandths.
pub(crate) fn round_up_lists(parent: &mut Value, fields: &[&str]) {
    for field in fields {
        if let Some(list) = at_mut(parent, field) {
            round_up_quantities(list);
        }
    }
}

/// Rounds requests and limits in `parent.resources` up to thousandths.
pub(crate) fn round_up_resources(parent: &mut Value) {
    if let Some(resources) = at_mut(parent, "resources") {
        round_up_lists(resources, &["limits", "requests"]);
    }
}

/// Sets requests, and limits of huge pages, of a pod that has resources at pod level (KEP-2837).
/// The requests of its containers must be defaulted.
pub(crate) fn default_pod_level_resources(pod: &mut Value) {
    let level = get(get(pod, "spec"), "resources");
    if is_empty_list(level, "limits") && is_empty_list(level, "requests") {
        return;
    }
    // The sums are those that the scheduler computes, from the same function.
    let typed = api_semantics::tree::pod(pod);
    let options = Options {
        exclude_overhead: true,
        skip_pod_level: true,
        ..Options::default()
    };
    let limits = list_amounts(&pod_limits(&typed, &options), is_huge_page);
    // Huge pages cannot be overcommitted, so their request follows from the limit below.
    let requests = list_amounts(&pod_requests(&typed, &options), |name| {
        is_pod_level(name) && !is_huge_page(name)
    });
    let Some(level) = at_mut(pod, "spec").and_then(|spec| at_mut(spec, "resources")) else {
        return;
    };
    for (name, amount) in limits {
        // A request of huge pages without a limit is left for validation to reject.
        if !has(get(level, "requests"), &name)
            && let Some(limits) = make(level, "limits")
        {
            fill(limits, &name, amount);
        }
    }
    if is_empty_list(level, "limits") {
        return;
    }
    let limits: Vec<(String, Value)> = entries(level, "limits")
        .filter(|(name, _)| is_pod_level(name))
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    // The sum of the containers comes first: only what no container requests equals the limit.
    for (name, amount) in requests.into_iter().chain(limits) {
        if let Some(requests) = make(level, "requests") {
            fill(requests, &name, amount);
        }
    }
}

fn is_empty_list(parent: &Value, field: &str) -> bool {
    entries(parent, field).next().is_none()
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn list_amounts(list: &ResourceList<'_>, chosen: impl Fn(&str) -> bool) -> Vec<(String, Value)> {
    list.iter()
        .filter(|(name, _)| chosen(name))
        .map(|(name, amount)| (name.to_owned(), amount.to_string().into()))
        .collect()
}
