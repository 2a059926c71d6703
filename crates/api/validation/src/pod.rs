//! Pods and pod templates, by the same rules.

mod affinity;
mod container;
mod environment;
mod field_ref;
mod gated;
mod probe;
mod relative_path;
mod resize;
mod resources;
mod scheduling;
mod security;
mod source;
mod spec;
mod status;
mod template;
mod update;
mod volume;

pub use affinity::validate_node_selector;
pub use resources::{
    STANDARD, is_extended_resource, validate_resource_list, validate_resource_quantity,
    validate_standard_name,
};
pub use scheduling::{validate_taints, validate_tolerations};
pub use source::{
    count_sources, validate_driver_name, validate_host_path, validate_required_fields,
};
pub use template::{validate_pod_template, validate_replica_template};

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use api_meta::tree::{get, has, list};
use serde_json::Value;

pub const POD: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_pod,
    update: update::validate_pod_update,
    sub: update::validate_subresource,
};
pub const POD_TEMPLATE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_standalone_template,
    update: |new, _, e| validate_standalone_template(new, e),
    sub: accept_subresource,
};

fn validate_pod(pod: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let spec = get(pod, "spec");
    spec::validate_pod_spec(spec, get(pod, "metadata"), &path, errors);
    // They are for debugging a pod that runs, and do not restart (KEP-277).
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(
            &path.child("ephemeralContainers"),
            "cannot be set on create",
        );
    }
    // Gates hold a pod back from the scheduler. A pod with a node does not pass it.
    if !list(spec, "schedulingGates").is_empty()
        && has(spec, "nodeName")
        && !get(spec, "nodeName").as_str().unwrap_or("").is_empty()
    {
        errors.forbidden(
            &path.child("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
}

fn validate_standalone_template(object: &Value, errors: &mut Errors) {
    validate_pod_template(
        get(object, "template"),
        &Path::ROOT.child("template"),
        errors,
    );
}
