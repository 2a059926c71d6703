//! Changes by the subresource `resize`: only CPU and memory, of containers and of the pod.

use super::claims::MIRROR;
use super::context::is_sidecar;
use super::object::validate_pod_object;
use super::options::PodOptions;
use crate::field::{Errors, FieldError, Path};
use api_meta::tree::{entries, equal, get, has, list, remove, text};
use api_semantics::qos::compute_tree_qos;
use serde_json::{Value, json};

const LISTS: [&str; 2] = ["containers", "initContainers"];
const PARTS: [&str; 2] = ["requests", "limits"];
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Validates a write to `pods/resize`.
pub fn validate_resize(new: &Value, old: &Value, options: &PodOptions, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let whole = Path::ROOT.child("");
    // A mirror pod only shows the file on its node, from which the kubelet takes the resources.
    if has(get(get(old, "metadata"), "annotations"), MIRROR) {
        errors.0.clear();
        errors.forbidden(&whole, "static pods cannot be resized");
        return;
    }
    if text(get(get(old, "spec"), "os"), "name") == "windows" {
        errors.0.clear();
        errors.forbidden(&whole, "windows pods cannot be resized");
        return;
    }
    validate_pod_object(new, options, errors);
    validate_class(new, old, &path, errors);
    if !is_resize_supported(old) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    validate_pod_level_resources(new, old, &path, errors);
    let claims = "nodeAllocatableResourceClaimStatuses";
    // Devices were allocated together with these resources, so the scheduler would have to decide
    // again.
    if !list(get(old, "status"), claims).is_empty() {
        let detail = "pods with node allocatable resource claims cannot be resized";
        errors.forbidden(&path, detail);
    }
    let (after, before) = (get(new, "spec"), get(old, "spec"));
    // The containers are paired by position below.
    let count = errors.len();
    for field in LISTS {
        validate_container_order(after, before, field, &path, errors);
    }
    if errors.len() > count {
        return;
    }
    for field in ["initContainers", "containers"] {
        let at = path.child(field);
        for (i, (new, old)) in list(after, field)
            .iter()
            .zip(list(before, field))
            .enumerate()
        {
            validate_container_resize(new, old, &at.index(i).child("resources"), errors);
        }
    }
    // The comparison of the rest would only repeat the errors of the containers.
    let count = errors.len();
    for field in LISTS {
        validate_only_compute_changed(after, before, field, &path, errors);
    }
    // All other fields must be equal, so that a new field of the API cannot be changed here.
    if errors.len() == count && !equal(&without_compute(after), &without_compute(before)) {
        errors.forbidden(&path, "only cpu and memory resources are mutable");
    }
}

/// Checks the class, which decides the cgroup that the pod runs in: a running process is not moved
/// to another one (KEP-1287).
fn validate_class(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let class = match text(get(old, "status"), "qosClass") {
        "" => compute_tree_qos(old),
        known => known,
    };
    if class != compute_tree_qos(new) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(path, text(get(new, "status"), "qosClass"), detail);
    }
}

/// Returns whether the node reports the resources of running containers, as all that can resize do.
/// Without a running container nothing is known about the node.
fn is_resize_supported(pod: &Value) -> bool {
    let mut statuses = list(get(pod, "status"), "containerStatuses").iter();
    statuses
        .find(|status| has(get(status, "state"), "running"))
        .is_none_or(|status| has(status, "resources"))
}

/// Returns the error of a resize without the gate `InPlacePodLevelResourcesVerticalScaling`, if the
/// pod has resources of its own or is to get some: then its containers can't be resized either.
pub fn find_disabled_resize(new: &Value, old: &Value) -> Option<FieldError> {
    let of_pod = |pod| get(get(pod, "spec"), "resources");
    if !has_amounts(of_pod(new)) && !has_amounts(of_pod(old)) {
        return None;
    }
    let mut errors = Errors::default();
    // The name in the message is upstream's, and not that of the gate.
    let detail = "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
    errors.forbidden(&Path::ROOT.child(""), detail);
    errors.0.pop()
}

fn has_amounts(resources: &Value) -> bool {
    PARTS
        .iter()
        .any(|part| entries(resources, part).next().is_some())
}

/// Validates changes of the pod's own resources.
fn validate_pod_level_resources(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let of_pod = |pod| get(get(pod, "spec"), "resources");
    let (after, before, at) = (of_pod(new), of_pod(old), path.child("resources"));
    if !has_amounts(after) && !has_amounts(before) {
        return;
    }
    if !before.is_null() && after.is_null() {
        errors.forbidden(&at, "pod-level resources cannot be removed");
        return;
    }
    for part in PARTS {
        if is_amount_removed(after, before, part) {
            let detail = format!("pod-level resource {part} cannot be removed");
            errors.forbidden(&at.child(part), detail);
        }
    }
    if !equal(&select_other_amounts(after), &select_other_amounts(before)) {
        let detail = "only cpu and memory resources are mutable at pod-level";
        errors.forbidden(path, detail);
    }
}

/// Returns resources without CPU and memory, and without parts that are empty then.
fn select_other_amounts(resources: &Value) -> Value {
    let mut rest = match resources {
        Value::Null => json!({}),
        other => other.clone(),
    };
    for part in PARTS {
        if let Some(amounts) = rest.get_mut(part).and_then(Value::as_object_mut) {
            amounts.retain(|name, _| !COMPUTE.contains(&name.as_str()));
            if amounts.is_empty() {
                remove(&mut rest, part);
            }
        }
    }
    rest
}

/// Returns whether the old resources have a request or a limit that the new ones lack.
fn is_amount_removed(after: &Value, before: &Value, part: &str) -> bool {
    let after = get(after, part);
    entries(before, part).any(|(name, _)| after.get(name).is_none())
}

fn validate_container_order(
    new: &Value,
    old: &Value,
    field: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (after, before, at) = (list(new, field), list(old, field), path.child(field));
    if after.len() != before.len() {
        errors.forbidden(
            &at,
            format!("{field} may not be added or removed on resize"),
        );
        return;
    }
    for (i, (after, before)) in after.iter().zip(before).enumerate() {
        if text(after, "name") != text(before, "name") {
            let detail = format!("{field} may not be renamed or reordered on resize");
            errors.forbidden(&at.index(i).child("name"), detail);
        }
    }
}

/// Checks that an amount was changed but not removed (KEP-1287).
fn validate_container_resize(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    for part in PARTS {
        // Without an amount, the container would belong to another class, or be without a limit at
        // once.
        if is_amount_removed(get(new, "resources"), get(old, "resources"), part) {
            let detail = format!("resource {part} cannot be removed");
            errors.forbidden(&path.child(part), detail);
        }
    }
}

/// Checks that nothing but CPU and memory of containers has changed.
fn validate_only_compute_changed(
    new: &Value,
    old: &Value,
    field: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child(field);
    for (i, (after, before)) in list(new, field).iter().zip(list(old, field)).enumerate() {
        if equal(after, before) {
            continue;
        }
        let is_equal = equal(
            &without_compute(&json!({"containers": [after]})),
            &without_compute(&json!({"containers": [before]})),
        );
        // Upstream has different paths for both kinds: that of the spec here, and that of the
        // container below.
        if field == "containers" {
            if !is_equal {
                errors.forbidden(path, "only cpu and memory resources are mutable");
            }
            continue;
        }
        let at = at.index(i);
        if !is_equal {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.forbidden(&at, detail);
        }
        let mut policies = list(after, "resizePolicy").iter();
        // An init container that has completed can't be restarted for a new amount.
        if !is_sidecar(after) && policies.any(|p| text(p, "restartPolicy") == "RestartContainer") {
            let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            errors.forbidden(&at, detail);
        }
    }
}

/// Returns a pod's spec without the amounts that a resize may change.
fn without_compute(spec: &Value) -> Value {
    let mut bare = spec.clone();
    // Resources of the pod have errors of their own.
    if has_amounts(get(&bare, "resources")) {
        remove(&mut bare, "resources");
    }
    let containers = LISTS
        .iter()
        .filter_map(|field| bare.get(field)?.as_array().map(|all| (*field, all.len())));
    let places: Vec<String> = containers
        .flat_map(|(field, count)| (0..count).map(move |i| format!("/{field}/{i}/resources")))
        .collect();
    for place in places {
        for part in PARTS {
            if let Some(amounts) = bare
                .pointer_mut(&format!("{place}/{part}"))
                .and_then(Value::as_object_mut)
            {
                amounts.retain(|name, _| !COMPUTE.contains(&name.as_str()));
            }
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(resources: Value) -> Vec<String> {
        let pod = |resources: Value| {
            json!({"metadata": {"name": "p"}, "status": {"qosClass": "Burstable"}, "spec": {
                "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
                "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always",
                    "terminationMessagePolicy": "File", "resources": resources}]}})
        };
        let old = pod(
            json!({"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}, "limits": {"ephemeral-storage": "2Gi"}}),
        );
        let mut errors = Errors::default();
        validate_resize(&pod(resources), &old, &PodOptions::default(), &mut errors);
        errors.0.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn only_cpu_and_memory_may_be_resized() {
        let limits = json!({"ephemeral-storage": "2Gi"});
        for (resources, expect) in [
            (
                json!({"requests": {"cpu": "2", "ephemeral-storage": "1Gi"}, "limits": limits}),
                &[][..],
            ),
            (
                json!({"requests": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"}, "limits": limits}),
                &[],
            ),
            (
                json!({"requests": {"cpu": "1", "ephemeral-storage": "1536Mi"}, "limits": limits}),
                &["spec"],
            ),
            (
                json!({"requests": {"memory": "1Gi", "ephemeral-storage": "1Gi"}, "limits": limits}),
                &["spec.containers[0].resources.requests"],
            ),
            (
                json!({"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
                    "limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}}),
                &["spec"],
            ),
        ] {
            assert_eq!(problems(resources.clone()), expect, "{resources}");
        }
    }

    fn pod_level_pods(of_pod: &[Value; 2], of_container: [&str; 2]) -> [Value; 2] {
        let pod = |of_pod: &Value, cpu: &str| {
            let mut pod = json!({"metadata": {"name": "p"}, "status": {"qosClass": "Burstable"}, "spec": {
                "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
                "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always",
                    "terminationMessagePolicy": "File", "resources": {"requests": {"cpu": cpu}}}]}});
            if !of_pod.is_null() {
                pod["spec"]["resources"] = of_pod.clone();
            }
            pod
        };
        [0, 1].map(|n| pod(&of_pod[n], of_container[n]))
    }

    fn pod_level_problems(of_pod: &[Value; 2], of_container: [&str; 2]) -> Vec<String> {
        let [old, new] = pod_level_pods(of_pod, of_container);
        let mut errors = Errors::default();
        validate_resize(&new, &old, &PodOptions::default(), &mut errors);
        let shown = |e: FieldError| format!("{}: {}", e.field, e.detail);
        errors.0.into_iter().map(shown).collect()
    }

    #[test]
    fn cpu_and_memory_of_the_pod_may_be_changed_and_added_but_not_removed() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let both = || json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3"}});
        let huge = |amount: &str| {
            let amounts = json!({"cpu": "2", "hugepages-2Mi": amount});
            json!({"requests": amounts, "limits": amounts})
        };
        let other = "spec: only cpu and memory resources are mutable at pod-level";
        for (of_pod, expect) in [
            ([cpu("2"), cpu("3")], &[][..]),
            ([Value::Null, cpu("3")], &[]),
            ([cpu("2"), both()], &[]),
            (
                [cpu("2"), Value::Null],
                &["spec.resources: pod-level resources cannot be removed"],
            ),
            (
                [
                    both(),
                    json!({"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}),
                ],
                &["spec.resources.requests: pod-level resource requests cannot be removed"],
            ),
            (
                [both(), json!({"requests": {"cpu": "2", "memory": "1Gi"}})],
                &["spec.resources.limits: pod-level resource limits cannot be removed"],
            ),
            ([huge("2Mi"), huge("4Mi")], &[other]),
            ([cpu("2"), huge("2Mi")], &[other]),
            ([Value::Null, huge("2Mi")], &[other]),
            (
                [cpu("2"), cpu("500m")],
                &[
                    "spec.resources.requests[cpu]: must be greater than or equal to aggregate container requests of 1",
                ],
            ),
        ] {
            let got = pod_level_problems(&of_pod, ["1", "1"]);
            assert_eq!(got, expect, "{of_pod:?}");
        }
    }

    #[test]
    fn containers_of_a_pod_with_pod_level_resources_may_be_resized() {
        let same = || json!({"requests": {"cpu": "2"}});
        let none = pod_level_problems(&[same(), same()], ["1", "1500m"]);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn disabled_gate_forbids_each_resize_of_a_pod_with_pod_level_resources() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        for (of_pod, is_forbidden) in [
            ([cpu("2"), cpu("3")], true),
            ([cpu("2"), cpu("2")], true),
            ([Value::Null, cpu("3")], true),
            ([cpu("2"), Value::Null], true),
            ([Value::Null, Value::Null], false),
            ([json!({}), json!({"limits": {}})], false),
        ] {
            let [old, new] = pod_level_pods(&of_pod, ["1", "1"]);
            let error = find_disabled_resize(&new, &old);
            assert_eq!(error.is_some(), is_forbidden, "{of_pod:?}");
            if let Some(error) = error {
                assert!(
                    error.detail.ends_with("feature gate is disabled"),
                    "{}",
                    error.detail
                );
            }
        }
    }
}
