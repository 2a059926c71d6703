//! Pods and pod templates, by the same rules.

mod affinity;
mod container;
mod environment;
mod gated;
mod probe;
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

pub use affinity::node_selector;
pub use resources::{
    STANDARD, is_extended, list as resource_list, quantity as resource_quantity, standard_name,
};
pub use scheduling::{taints, tolerations};
pub use source::{count_sources, driver_name, host_path, needed as needed_by_source};
pub use template::{for_replicas, pod_template};

use crate::dispatch::{Rules, no_sub};
use crate::field::{Errors, Path};
use crate::metadata::NameRule;
use crate::tree::{get, has, list};
use serde_json::Value;

pub const POD: Rules = Rules {
    name: NameRule::Subdomain,
    create,
    update: update::pod,
    sub: update::subresource,
};
pub const POD_TEMPLATE: Rules = Rules {
    name: NameRule::Subdomain,
    create: standalone_template,
    update: |new, _, e| standalone_template(new, e),
    sub: no_sub,
};

fn create(pod: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let spec = get(pod, "spec");
    spec::validate(spec, get(pod, "metadata"), &path, errors);
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(
            &path.child("ephemeralContainers"),
            "cannot be set on create",
        );
    }
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

fn standalone_template(object: &Value, errors: &mut Errors) {
    pod_template(
        get(object, "template"),
        &Path::ROOT.child("template"),
        errors,
    );
}
