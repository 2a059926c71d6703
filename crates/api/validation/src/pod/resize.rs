//! Changes by the subresource `resize`: only CPU and memory of containers, not of the pod.

use super::spec;
use crate::field::{Errors, Path};
use api_meta::tree::{entries, equal, get, list, text};
use api_semantics::qos::compute_tree_qos;
use serde_json::Value;

const LISTS: [&str; 2] = ["containers", "initContainers"];
const PARTS: [&str; 2] = ["requests", "limits"];
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Validates a write to `pods/resize`.
pub fn validate_resize(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    // A mirror pod only shows the file on its node, from which the kubelet takes the resources.
    if get(get(old, "metadata"), "annotations")
        .get("kubernetes.io/config.mirror")
        .is_some()
    {
        errors.forbidden(&Path::ROOT, "static pods cannot be resized");
        return;
    }
    if text(get(get(old, "spec"), "os"), "name") == "windows" {
        errors.forbidden(&Path::ROOT, "windows pods cannot be resized");
        return;
    }
    spec::validate_pod_spec(get(new, "spec"), get(new, "metadata"), &path, errors);
    let class = match text(get(old, "status"), "qosClass") {
        "" => compute_tree_qos(old),
        known => known,
    };
    if class != compute_tree_qos(new) {
        errors.invalid(
            &path,
            class,
            // The class decides the cgroup that the pod runs in, and a running process is not moved
            // to another one (KEP-1287).
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    let (after, before) = (
        get(get(new, "spec"), "resources"),
        get(get(old, "spec"), "resources"),
    );
    if !before.is_null() && after.is_null() {
        let detail = "pod-level resources cannot be removed";
        errors.forbidden(&path.child("resources"), detail);
        return;
    }
    if !equal(after, before) {
        // The kubelet can't change the cgroup of a pod, so the response is that of upstream with
        // the gate disabled.
        let detail = "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
        errors.forbidden(&Path::ROOT, detail);
        return;
    }
    for field in LISTS {
        let (after, before) = (list(get(new, "spec"), field), list(get(old, "spec"), field));
        let at = path.child(field);
        let names = |all: &[Value]| {
            all.iter()
                .map(|c| text(c, "name").to_owned())
                .collect::<Vec<_>>()
        };
        // The containers are paired by position below, which needs equal names.
        if names(after) != names(before) {
            errors.forbidden(
                &at,
                "containers may not be added, removed, renamed or reordered on resize",
            );
            continue;
        }
        for (i, (after, before)) in after.iter().zip(before).enumerate() {
            validate_container_resize(after, before, &at.index(i), errors);
        }
    }
    if !equal(
        // All other fields must be equal, so that a new field of the API cannot be changed here.
        &without_compute(get(new, "spec")),
        &without_compute(get(old, "spec")),
    ) {
        errors.forbidden(&path, "only cpu and memory resources are mutable");
    }
}

fn validate_container_resize(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("resources");
    for part in PARTS {
        let (after, before) = (
            get(get(new, "resources"), part),
            get(get(old, "resources"), part),
        );
        if entries(get(old, "resources"), part)
            // A resize may change an amount but not remove it (KEP-1287).
            .any(|(name, _)| after.get(name).is_none() && before.get(name).is_some())
        {
            errors.forbidden(
                &at.child(part),
                format!("resource {part} cannot be removed"),
            );
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
    use serde_json::json;

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
        validate_resize(&pod(resources), &old, &mut errors);
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
