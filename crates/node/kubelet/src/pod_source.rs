//! The annotation that names the source of a pod.

use k8s_openapi::api::core::v1::Pod;

pub(crate) const SOURCE: &str = "kubernetes.io/config.source";

/// Returns whether a pod comes from a manifest of this node.
pub(crate) fn is_static(pod: &Pod) -> bool {
    read_annotation(pod, SOURCE).is_some_and(|source| source != "api")
}

pub(crate) fn read_annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata
        .annotations
        .as_ref()?
        .get(name)
        .map(String::as_str)
}
