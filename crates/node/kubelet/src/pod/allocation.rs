//! Resources that the node has allocated to a pod (KEP-1287, KEP-5419).
//!
//! Invariant: a pod runs with the resources of its allocation. Those of its spec are only desired
//! until the node has allocated them.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Resources of a pod and its containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Allocation {
    /// Resources of the pod itself.
    pod: Option<ResourceRequirements>,
    /// Resources of containers and init containers by name.
    containers: BTreeMap<String, ResourceRequirements>,
}

impl Allocation {
    /// Returns the resources in the pod's spec.
    pub(crate) fn of_pod(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let init = spec.init_containers.iter().flatten();
        let containers = spec.containers.iter().chain(init);
        Allocation {
            pod: spec.resources.clone(),
            containers: containers
                .map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default()))
                .collect(),
        }
    }

    /// Returns the pod with these resources in its spec.
    pub(crate) fn apply_to(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        if *self == Self::of_pod(pod) {
            return pod.clone();
        }
        let mut allocated = Pod::clone(pod);
        if let Some(spec) = &mut allocated.spec {
            spec.resources.clone_from(&self.pod);
            list_mut(spec).for_each(|container| self.apply_to_container(container));
        }
        Arc::new(allocated)
    }

    /// A container that the allocation does not name keeps what its spec says: the API allows no
    /// change of the list.
    fn apply_to_container(&self, container: &mut Container) {
        let own = container.resources.clone().unwrap_or_default();
        if let Some(allocated) = self.containers.get(&container.name)
            && *allocated != own
        {
            container.resources = Some(allocated.clone());
        }
    }
}

fn list_mut(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    let init = spec.init_containers.iter_mut().flatten();
    spec.containers.iter_mut().chain(init)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(of_pod: Value, of_container: Value, image: &str) -> Arc<Pod> {
        let spec = json!({"resources": of_pod, "nodeName": "n",
            "containers": [{"name": "c", "image": image, "resources": of_container}],
            "initContainers": [{"name": "i"}]});
        crate::testing::pod(spec)
    }

    #[test]
    fn allocation_replaces_resources_and_nothing_else() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        for (of_pod, of_container) in [
            (cpu("2"), cpu("1")),
            (cpu("3"), cpu("1")),
            (cpu("2"), cpu("2")),
            (Value::Null, cpu("2")),
            (cpu("3"), Value::Null),
        ] {
            let case = format!("{of_pod} {of_container}");
            let allocation = Allocation::of_pod(&pod(cpu("2"), cpu("1"), "old"));
            let text = serde_json::to_string(&allocation).unwrap();
            let read: Allocation = serde_json::from_str(&text).unwrap();
            let allocated = read.apply_to(&pod(of_pod, of_container, "new"));
            assert_eq!(allocated, pod(cpu("2"), cpu("1"), "new"), "{case}");
        }
    }

    #[test]
    fn pod_with_its_allocation_is_not_copied() {
        let pod = pod(Value::Null, Value::Null, "i");
        let allocated = Allocation::of_pod(&pod).apply_to(&pod);
        assert!(Arc::ptr_eq(&allocated, &pod));
    }
}
