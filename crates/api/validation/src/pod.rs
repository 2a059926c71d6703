//! Pods and pod templates, by the same rules.

mod affinity;
mod annotations;
mod claims;
mod container;
mod container_status;
mod context;
mod disks;
mod dns;
mod environment;
mod field_ref;
mod gated;
mod match_keys;
mod object;
mod options;
mod pod_resources;
mod probe;
mod profiles;
mod projected;
mod projected_files;
mod ratchet;
mod relative_path;
mod resize;
mod resources;
mod restart;
mod scheduling;
mod security;
mod source;
mod spec;
mod status;
mod system;
mod template;
mod transition;
mod trust;
mod update;
mod volume;
mod windows;

pub use affinity::validate_node_selector;
pub use annotations::validate_pod_annotations;
pub(crate) use context::visit_containers;
pub use options::PodOptions;
pub(crate) use profiles::{APPARMOR_CONTAINER, SECCOMP_CONTAINER, SECCOMP_POD};
pub use resize::find_disabled_resize;
pub use resources::{
    is_extended_resource, is_native_resource, validate_container_resource_name,
    validate_resource_list, validate_resource_quantity, validate_standard_name,
};
pub use scheduling::{validate_taints, validate_tolerations};
pub use source::validate_host_path;
pub use template::{read_template_options, validate_pod_template, validate_template_labels};

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use api_meta::tree::get;
use serde_json::Value;

pub const POD: Rules = Rules {
    name: NameRule::Subdomain,
    create: object::validate_new_pod,
    update: update::validate_pod_update,
    sub: update::validate_subresource,
};
pub const POD_TEMPLATE: Rules = Rules {
    name: NameRule::Subdomain,
    create: |new, e| validate_standalone_template(new, &PodOptions::default(), e),
    update: |new, old, e| {
        let options = read_template_options(get(old, "template"));
        validate_standalone_template(new, &options, e);
    },
    sub: accept_subresource,
};

fn validate_standalone_template(object: &Value, options: &PodOptions, errors: &mut Errors) {
    let path = Path::ROOT.child("template");
    validate_pod_template(get(object, "template"), options, &path, errors);
}
