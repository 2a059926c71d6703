//! Changes by the subresource `resize`: only CPU and memory of containers, not of the pod.

use super::claims::MIRROR;
use super::context::is_sidecar;
use super::object::validate_pod_object;
use super::options::PodOptions;
use crate::field::{Errors, Path};
use api_meta::tree::{entries, equal, get, has, list, text};
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
    if !validate_pod_level_resources(new, old, &path, errors) {
        return;
    }
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

/// Validates changes of the pod's own resources. Returns whether other changes are to be validated.
fn validate_pod_level_resources(
    new: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) -> bool {
    let (after, before) = (
        get(get(new, "spec"), "resources"),
        get(get(old, "spec"), "resources"),
    );
    if !before.is_null() && after.is_null() {
        let detail = "pod-level resources cannot be removed";
        errors.forbidden(&path.child("resources"), detail);
        return false;
    }
    if !equal(after, before) {
        // The kubelet can't change the cgroup of a pod, so the response is that of upstream with
        // the gate disabled.
        let detail = "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
        errors.forbidden(&Path::ROOT.child(""), detail);
        return false;
    }
    true
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
        let after = get(get(new, "resources"), part);
        let mut before = entries(get(old, "resources"), part);
        // Without an amount, the container would belong to another class, or be without a limit at
        // once.
        if before.any(|(name, _)| after.get(name).is_none()) {
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

    fn pod_level_problems(of_pod: [Value; 2], of_container: [&str; 2]) -> Vec<String> {
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
        let mut errors = Errors::default();
        validate_resize(
            &pod(&of_pod[1], of_container[1]),
            &pod(&of_pod[0], of_container[0]),
            &PodOptions::default(),
            &mut errors,
        );
        errors.0.into_iter().map(|error| error.detail).collect()
    }

    #[test]
    fn change_of_pod_level_resources_is_forbidden() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let disabled = "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
        for (of_pod, expect) in [
            ([cpu("2"), cpu("3")], disabled),
            ([Value::Null, cpu("3")], disabled),
            (
                [cpu("2"), Value::Null],
                "pod-level resources cannot be removed",
            ),
        ] {
            let case = format!("{of_pod:?}");
            assert_eq!(pod_level_problems(of_pod, ["1", "1"]), [expect], "{case}");
        }
    }

    #[test]
    fn containers_of_a_pod_with_pod_level_resources_may_be_resized() {
        let same = || json!({"requests": {"cpu": "2"}});
        let none = pod_level_problems([same(), same()], ["1", "1500m"]);
        assert!(none.is_empty(), "{none:?}");
    }
}
