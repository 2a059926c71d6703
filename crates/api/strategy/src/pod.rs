//! Writes to the subresources `ephemeralcontainers` and `resize` of pods.

use api_meta::tree::{each_mut, get, list, make, remove, set, text};
use serde_json::Value;

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
    let mut result = old.clone();
    for field in ["containers", "initContainers"] {
        let requested: Vec<(String, Value, Value)> = list(get(new, "spec"), field)
            .iter()
            .map(|c| {
                (
                    text(c, "name").to_owned(),
                    get(c, "resources").clone(),
                    get(c, "resizePolicy").clone(),
                )
            })
            .collect();
        let Some(spec) = make(&mut result, "spec") else {
            continue;
        };
        for container in each_mut(spec, field) {
            let found = requested
                .iter()
                .find(|(name, _, _)| name == text(container, "name"));
            // By name, since clients may send the containers in another order. Validation rejects
            // other changes of the list.
            if let Some((_, resources, policy)) = found {
                set(container, "resources", resources.clone());
                if !policy.is_null() {
                    set(container, "resizePolicy", policy.clone());
                }
            }
        }
    }
    // Kept although the kubelet can't apply a change: validation rejects it, where a reset would
    // report success.
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
