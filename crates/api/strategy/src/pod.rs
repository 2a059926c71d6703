//! Writes to the subresources `ephemeralcontainers` and `resize` of pods.

use crate::fields::keep_field;
use api_meta::tree::{each_mut, get, list, make, remove, set, text};
use serde_json::Value;

const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// Takes all but the ephemeral containers from the old pod.
pub(crate) fn change_only_ephemeral_containers(new: &mut Value, old: &Value) {
    let containers = get(get(new, "spec"), "ephemeralContainers").clone();
    // The request has a whole pod, of which the subresource owns one list.
    *new = old.clone();
    if let Some(spec) = make(new, "spec") {
        set(spec, "ephemeralContainers", containers);
    }
}

/// Takes all but resources, and resize policies of the containers, from the old pod.
pub(crate) fn change_only_resources(new: &mut Value, old: &Value) {
    let count = |pod: &Value, field: &str| list(get(pod, "spec"), field).len();
    // Validation reports added and removed containers.
    if CONTAINERS
        .iter()
        .any(|field| count(new, field) != count(old, field))
    {
        return;
    }
    let mut result = old.clone();
    for field in CONTAINERS {
        let requested = list(get(new, "spec"), field);
        let Some(spec) = make(&mut result, "spec") else {
            continue;
        };
        let is_same = list(spec, field)
            .iter()
            .zip(requested)
            .all(|(old, new)| text(old, "name") == text(new, "name"));
        // Renamed or reordered containers are reported, too.
        if !is_same {
            set(spec, field, requested.to_vec());
            continue;
        }
        for (container, requested) in each_mut(spec, field).zip(requested) {
            for field in ["resources", "resizePolicy"] {
                keep_field(container, requested, field);
            }
        }
    }
    // Kept without the gate `InPlacePodLevelResourcesVerticalScaling`, too: validation rejects it
    // then, where a reset would report success.
    let of_pod = get(get(new, "spec"), "resources").clone();
    if let Some(spec) = make(&mut result, "spec") {
        if of_pod.is_null() {
            remove(spec, "resources");
        } else {
            set(spec, "resources", of_pod);
        }
    }
    *new = result;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resize_keeps_resources_of_the_request_and_all_else_of_the_old_pod() {
        let pod = |cpu: &str, image: &str, node: &str| {
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": node,
                "resources": {"requests": {"cpu": cpu}},
                "containers": [{"name": "c", "image": image, "resources": {"limits": {"cpu": cpu}}}]}})
        };
        let mut new = pod("2", "new", "other");
        change_only_resources(&mut new, &pod("1", "old", "node"));
        assert_eq!(new, pod("2", "old", "node"));
    }

    #[test]
    fn resize_without_pod_level_resources_does_not_restore_them() {
        let old = json!({"spec": {"resources": {"requests": {"cpu": "1"}}, "containers": []}});
        let mut new = json!({"spec": {"containers": []}});
        let expect = new.clone();
        change_only_resources(&mut new, &old);
        assert_eq!(new, expect);
    }
}
