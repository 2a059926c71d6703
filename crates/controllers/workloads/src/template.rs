//! Builds pods from templates, in the same way for every workload.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use controllers_runtime::{Meta, Object, controller_reference};

/// Builds a pod of `owner` from `template`; the server generates its name.
pub fn build_pod<O: Object>(owner: &O, template: &PodTemplateSpec) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(owner.name())),
            namespace: owner.meta().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Returns `name-`, the prefix of generated pod names.
fn name_prefix(name: &str) -> String {
    format!("{name}-")
}
