//! The core group, except workloads, services and storage.

mod endpoints;
mod events;
mod limits;
mod node;
mod quota;
mod secret;

pub use endpoints::ENDPOINTS;
pub use events::{EVENT, SERIES_EVENT};
pub use limits::LIMIT_RANGE;
pub use node::NODE;
pub use quota::RESOURCE_QUOTA;
pub use secret::{CONFIG_MAP, SECRET};

use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::{NameRule, validate_finalizer_domain};
use api_meta::names;
use api_meta::tree::{get, has, text, texts};
use serde_json::Value;

pub const NAMESPACE: Rules = Rules {
    name: NameRule::Label,
    create: validate_namespace,
    update: |new, _, errors| validate_namespace(new, errors),
    sub: validate_namespace_subresource,
};

fn validate_namespace(object: &Value, errors: &mut Errors) {
    let spec = Path::ROOT.child("spec");
    for finalizer in texts(get(object, "spec"), "finalizers") {
        validate_finalizer(finalizer, &spec.child("finalizers"), errors);
    }
}

fn validate_finalizer(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_each(path, name, names::qualified_name(name));
    validate_finalizer_domain(name, path, errors);
}

fn validate_namespace_subresource(
    subresource: &str,
    object: &Value,
    _: &Value,
    errors: &mut Errors,
) {
    if subresource == "status" {
        return validate_namespace_phase(object, errors);
    }
    let spec = Path::ROOT.child("spec");
    let path = spec.child("finalizers");
    for (i, finalizer) in texts(get(object, "spec"), "finalizers").iter().enumerate() {
        validate_finalizer(finalizer, &path.index(i), errors);
    }
}

fn validate_namespace_phase(object: &Value, errors: &mut Errors) {
    let phase = text(get(object, "status"), "phase");
    let (expected, when) = match has(get(object, "metadata"), "deletionTimestamp") {
        false => ("Active", "empty"),
        true => ("Terminating", "not empty"),
    };
    if phase != expected {
        // Upstream spells the path with a capital letter, unlike the field.
        let status = Path::ROOT.child("status");
        let detail = format!("may only be '{expected}' if `deletionTimestamp` is {when}");
        errors.invalid(&status.child("Phase"), phase, detail);
    }
}
