//! Writes to the subresources `ephemeralcontainers` and `resize` of pods.

use api_meta::tree::{each_mut, get, list, make, set, text};
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

/// Takes all but resources and resize policies of the containers from the old pod.
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
    *new = result;
}
