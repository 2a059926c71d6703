//! LimitRanges: defaults for containers, and bounds for containers, pods and claims.

use crate::context::{Context, forbidden_error, is_for, list_at, string_at};
use crate::resources::{Amounts, parse_amounts, to_owned_amounts};
use api_meta::{ApiError, Meta, Quantity};
use api_semantics::resources::{Options, pod_limits, pod_requests};
use api_semantics::tree;
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::Value;
use std::sync::Arc;

// Users see from it that an amount came from the namespace and not from their manifest.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Applies and enforces LimitRanges.
pub struct LimitRanger(pub Context);

#[async_trait::async_trait]
impl Admission for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        // A pod's resources are immutable after creation, so that defaults in an update would fail
        // it.
        if !is_for(request, "", "pods") || request.operation != Operation::Create {
            return Ok(());
        }
        for range in self.list_ranges(request) {
            fill_pod(&mut request.object, &range);
        }
        Ok(())
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let claim = is_for(request, "", "persistentvolumeclaims")
            && matches!(request.operation, Operation::Create | Operation::Update);
        let pod = match request.operation {
            Operation::Create => is_for(request, "", "pods"),
            // Resize is the only update that can change a pod's resources.
            Operation::Update => {
                (request.group, request.resource, request.subresource) == ("", "pods", "resize")
            }
            _ => false,
        };
        if !claim && !pod {
            return Ok(());
        }
        // A finalizer must be removable from a claim that a later LimitRange no longer admits.
        if request.old.as_ref().is_some_and(Meta::is_being_deleted) {
            return Ok(());
        }
        // Defaults of several LimitRanges add up, but each of them can reject alone.
        for range in self.list_ranges(request) {
            let mut problems = Vec::new();
            for limit in list_at(&range, "/spec/limits") {
                if claim {
                    check_claim(&request.object, limit, &mut problems);
                } else {
                    check_pod(&request.object, limit, &mut problems);
                }
            }
            match problems.as_slice() {
                [] => {}
                // A single error stands alone and several in brackets, as Go prints an aggregate
                // error.
                [one] => return Err(forbidden_error(request, one)),
                many => return Err(forbidden_error(request, format!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

impl LimitRanger {
    fn list_ranges(&self, request: &AdmissionRequest<'_>) -> Vec<Arc<Value>> {
        self.0.list_objects("", "limitranges", request.namespace)
    }
}

/// Returns the container defaults of a range: (requests, limits).
fn default_amounts(range: &Value) -> (Amounts, Amounts) {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    // Of several entries with defaults, the last one wins.
    for limit in list_at(range, "/spec/limits")
        .iter()
        .filter(|l| string_at(l, "/type") == "Container")
    {
        requests.extend(parse_amounts(limit.get("defaultRequest")));
        limits.extend(parse_amounts(limit.get("default")));
    }
    (requests, limits)
}

fn fill_pod(pod: &mut Value, range: &Value) {
    let (requests, limits) = default_amounts(range);
    let mut messages = Vec::new();
    for (field, what) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        for container in pod["spec"]
            .get_mut(field)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let name = string_at(container, "/name").to_owned();
            for (part, defaults, word) in [
                ("requests", &requests, "request"),
                ("limits", &limits, "limit"),
            ] {
                // Only absent amounts: a default never overrides what the pod says.
                let set = fill_defaults(container, part, defaults);
                if !set.is_empty() {
                    messages.push(format!("{} {word} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !messages.is_empty() {
        pod["metadata"]["annotations"][ANNOTATION] =
            format!("LimitRanger plugin set: {}", messages.join("; ")).into();
    }
}

/// Sets absent amounts; returns the names of the resources set.
fn fill_defaults(container: &mut Value, part: &str, defaults: &Amounts) -> Vec<String> {
    let mut set = Vec::new();
    for (name, amount) in defaults {
        if container
            .pointer(&format!("/resources/{part}"))
            .is_none_or(|r| r.get(name).is_none())
        {
            container["resources"][part][name.as_str()] = amount.to_string().into();
            set.push(name.clone());
        }
    }
    set
}

fn check_claim(claim: &Value, limit: &Value, problems: &mut Vec<String>) {
    // A LimitRange mixes entries of all types; those of pods and containers say nothing about
    // claims.
    if string_at(limit, "/type") != "PersistentVolumeClaim" {
        return;
    }
    let requests = parse_amounts(claim.pointer("/spec/resources/requests"));
    for (name, bound) in parse_amounts(limit.get("min")) {
        problems.extend(check_minimum(
            "PersistentVolumeClaim",
            &name,
            bound,
            &requests,
            &Amounts::new(),
        ));
    }
    for (name, bound) in parse_amounts(limit.get("max")) {
        problems.extend(match requests.get(&name) {
            None => {
                Some(format!("maximum {name} usage per PersistentVolumeClaim is {bound}.  No request is specified"))
            }
            // Claims have no limits: their maximum applies to the request.
            Some(r) if *r > bound => {
                Some(format!("maximum {name} usage per PersistentVolumeClaim is {bound}, but request is {r}"))
            }
            Some(_) => None,
        });
    }
}

fn check_pod(pod: &Value, limit: &Value, problems: &mut Vec<String>) {
    match string_at(limit, "/type") {
        "Container" => {
            // Ephemeral containers have no resources.
            for container in ["/spec/containers", "/spec/initContainers"]
                .iter()
                .flat_map(|l| list_at(pod, l))
            {
                let requests = parse_amounts(container.pointer("/resources/requests"));
                let limits = parse_amounts(container.pointer("/resources/limits"));
                check_limit("Container", limit, &requests, &limits, problems);
            }
        }
        "Pod" => {
            let pod = tree::pod(pod);
            // Bounds apply to what the author of the pod wrote. The overhead comes from its
            // RuntimeClass.
            let options = Options {
                exclude_overhead: true,
                ..Options::default()
            };
            let requests = to_owned_amounts(&pod_requests(&pod, &options));
            let limits = to_owned_amounts(&pod_limits(&pod, &options));
            check_limit("Pod", limit, &requests, &limits, problems);
        }
        _ => {}
    }
}

fn check_limit(
    kind: &str,
    limit: &Value,
    requests: &Amounts,
    limits: &Amounts,
    problems: &mut Vec<String>,
) {
    for (name, bound) in parse_amounts(limit.get("min")) {
        problems.extend(check_minimum(kind, &name, bound, requests, limits));
    }
    for (name, bound) in parse_amounts(limit.get("max")) {
        problems.extend(check_maximum(kind, &name, bound, requests, limits));
    }
    for (name, bound) in parse_amounts(limit.get("maxLimitRequestRatio")) {
        problems.extend(check_ratio(kind, &name, bound, requests, limits));
    }
}

fn check_minimum(
    kind: &str,
    name: &str,
    bound: Quantity,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let start = format!("minimum {name} usage per {kind} is {bound}");
    match (requests.get(name), limits.get(name)) {
        // Two spaces after the period: the text is upstream's.
        (None, _) => Some(format!("{start}.  No request is specified")),
        (Some(r), _) if *r < bound => Some(format!("{start}, but request is {r}")),
        (_, Some(l)) if *l < bound => Some(format!("{start}, but limit is {l}")),
        _ => None,
    }
}

fn check_maximum(
    kind: &str,
    name: &str,
    bound: Quantity,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let start = format!("maximum {name} usage per {kind} is {bound}");
    match (limits.get(name), requests.get(name)) {
        // A container without a limit may use more than any maximum.
        (None, _) => Some(format!("{start}.  No limit is specified")),
        (Some(l), _) if *l > bound => Some(format!("{start}, but limit is {l}")),
        (_, Some(r)) if *r > bound => Some(format!("{start}, but request is {r}")),
        _ => None,
    }
}

fn check_ratio(
    kind: &str,
    name: &str,
    bound: Quantity,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let start = format!("{name} max limit to request ratio per {kind} is {bound}");
    // A zero counts as absent: the ratio would be undefined.
    let of = |a: &Amounts| a.get(name).copied().filter(|q| !q.is_zero());
    let Some(request) = of(requests) else {
        return Some(format!(
            "{start}, but no request is specified or request is 0"
        ));
    };
    let Some(limit) = of(limits) else {
        return Some(format!("{start}, but no limit is specified or limit is 0"));
    };
    // Six decimals, as Go's %f prints them.
    let provided = limit.milli_value() as f64 / request.milli_value() as f64;
    let allowed = bound.milli_value() as f64 / 1000.0;
    (provided > allowed).then(|| format!("{start}, but provided ratio is {provided:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_set_and_bounds_are_checked() {
        let range = json!({"spec": {"limits": [
            {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}, "min": {"cpu": "50m"},
             "maxLimitRequestRatio": {"cpu": "10"}},
            {"type": "Pod", "max": {"cpu": "1500m"}}]}});
        let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}});
        fill_pod(&mut pod, &range);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
        );
        let check = |resources: Value, text: &str| {
            let pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
            let mut problems = Vec::new();
            list_at(&range, "/spec/limits")
                .iter()
                .for_each(|l| check_pod(&pod, l, &mut problems));
            assert!(problems.iter().any(|p| p == text), "{problems:?}");
        };
        check(
            json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}),
            "maximum cpu usage per Container is 1, but limit is 2",
        );
        check(
            json!({"requests": {"cpu": "10m"}}),
            "minimum cpu usage per Container is 50m, but request is 10m",
        );
        check(
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "50m"}}),
            "cpu max limit to request ratio per Container is 10, but provided ratio is 20.000000",
        );
    }
}
