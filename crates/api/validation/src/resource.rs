//! ResourceClaims, DeviceClasses and ResourceSlices.

mod slice;

pub use slice::SLICE;

use crate::cel;
use crate::field::{Errors, FieldError, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::Kind;
use api_meta::names;
use api_meta::tree::{get, has, list, text};
use serde_json::Value;

pub const CLAIM: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_resource_claim,
    update: validate_resource_claim_update,
    sub: accept_subresource,
};
pub const TEMPLATE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_claim_template,
    update: validate_resource_claim_update,
    sub: accept_subresource,
};

fn validate_resource_claim(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    validate_device_requests(get(object, "spec"), &path, errors);
}

fn validate_claim_template(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let spec = get(object, "spec");
    validate_template_metadata(get(spec, "metadata"), &path.child("metadata"), errors);
    validate_device_requests(get(spec, "spec"), &path.child("spec"), errors);
}

fn validate_device_requests(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (devices, path) = (get(spec, "devices"), path.child("devices"));
    let at = path.child("requests");
    let mut seen: Vec<&str> = Vec::new();
    for (i, request) in list(devices, "requests").iter().enumerate() {
        let at = at.index(i);
        let name = text(request, "name");
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else {
            errors.invalid_each(&at.child("name"), name, names::dns1123_label(name));
        }
        // Constraints, configurations and containers refer to requests by name.
        if seen.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        }
        seen.push(name);
        // A request names one device class, or alternatives of which the scheduler takes the first
        // that fits (KEP-4816).
        let choices = usize::from(has(request, "exactly"))
            + usize::from(!list(request, "firstAvailable").is_empty());
        if choices == 0 {
            errors.required(
                &at,
                "exactly one of `exactly` or `firstAvailable` is required",
            );
        } else if choices > 1 {
            errors.invalid(
                &at,
                request.clone(),
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            );
        }
        let exactly = get(request, "exactly");
        if choices == 1 {
            validate_device_selectors(exactly, &at.child("exactly"), errors);
        }
        let class = text(exactly, "deviceClassName");
        if has(request, "exactly") && class.is_empty() {
            errors.required(&at.child("exactly").child("deviceClassName"), "");
        }
    }
    validate_constraints(devices, &seen, &path.child("constraints"), errors);
    let at = path.child("config");
    for (i, config) in list(devices, "config").iter().enumerate() {
        let at = at.index(i);
        let at = at.child("requests");
        for (j, name) in list(config, "requests").iter().enumerate() {
            validate_request_name(
                name.as_str().unwrap_or_default(),
                &seen,
                &at.index(j),
                errors,
            );
        }
    }
}

/// Validates device selectors: expressions over `device`.
fn validate_device_selectors(parent: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("selectors");
    for (i, selector) in list(parent, "selectors").iter().enumerate() {
        let expression = text(get(selector, "cel"), "expression");
        if let Some(problem) = cel::find_problem(expression, &["device"]) {
            let at = at.index(i);
            errors.invalid(&at.child("cel").child("expression"), expression, problem);
        }
    }
}

pub const DEVICE_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_device_class,
    update: |new, _, e| validate_device_class(new, e),
    sub: accept_subresource,
};

fn validate_device_class(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_device_selectors(spec, &path, errors);
    let name = text(spec, "extendedResourceName");
    if has(spec, "extendedResourceName") && !crate::pod::is_extended_resource(name) {
        errors.invalid(
            &path.child("extendedResourceName"),
            name,
            "must be a valid extended resource name",
        );
    }
}

fn validate_request_name(name: &str, requests: &[&str], path: &Path<'_>, errors: &mut Errors) {
    // `request/subrequest` names one alternative of a request.
    for part in name.split('/') {
        errors.invalid_each(path, name, names::dns1123_label(part));
    }
    let main = name.split('/').next().unwrap_or_default();
    if !requests.contains(&name) && !requests.contains(&main) {
        errors.invalid(
            path,
            name,
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
        );
    }
}

/// Label of namespaces whose claims may request access to devices in use.
pub const ADMIN_ACCESS_LABEL: &str = "resource.kubernetes.io/admin-access";

/// Checks that a ResourceClaim or a template of one in a namespace without [`ADMIN_ACCESS_LABEL`]
/// does not request administrative access. Other kinds pass.
pub fn validate_admin_access(kind: Kind<'_>, object: &Value) -> Vec<FieldError> {
    let spec = match (kind.group, kind.kind) {
        ("resource.k8s.io", "ResourceClaim") => get(object, "spec"),
        ("resource.k8s.io", "ResourceClaimTemplate") => get(get(object, "spec"), "spec"),
        _ => return Vec::new(),
    };
    let path = Path::ROOT.child("spec");
    let at = path.child("devices");
    let at = at.child("requests");
    let mut errors = Errors::default();
    for (i, request) in list(get(spec, "devices"), "requests").iter().enumerate() {
        // Administrative access reaches devices that other pods have allocated (KEP-5018).
        if get(get(request, "exactly"), "adminAccess") == &Value::Bool(true) {
            let detail = format!(
                "admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
            );
            errors.forbidden(&at.index(i).child("adminAccess"), detail);
        }
    }
    errors.0
}

/// Rejects metadata of a template that only the server sets.
fn validate_template_metadata(meta: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, value) in meta
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, v)| !v.is_null())
    {
        // Upstream's path has the name of the Go field.
        let spelled = match field.as_str() {
            "labels" | "annotations" => continue,
            "uid" => "uID",
            other => other,
        };
        let empty = value.as_array().is_some_and(Vec::is_empty) || value == "";
        if !empty {
            errors.forbidden(&path.child(spelled), "may not be set");
        }
    }
}

fn validate_constraints(devices: &Value, requests: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for (i, constraint) in list(devices, "constraints").iter().enumerate() {
        let at = path.index(i);
        let names_at = at.child("requests");
        for (j, name) in list(constraint, "requests").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            validate_request_name(name, requests, &names_at.index(j), errors);
        }
        let attribute = text(constraint, "matchAttribute");
        if !attribute.is_empty() && !attribute.contains('/') {
            errors.invalid(
                &at.child("matchAttribute"),
                attribute,
                "must include a domain",
            );
        }
    }
}

fn validate_resource_claim_update(new: &Value, old: &Value, errors: &mut Errors) {
    rules::validate_immutable(new, old, "spec", &Path::ROOT, errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_for_administrative_access_are_found() {
        let kind = |kind| Kind {
            group: "resource.k8s.io",
            version: "v1",
            kind,
            namespaced: true,
        };
        let request = |admin: bool| json!({"name": "r", "exactly": {"adminAccess": admin}});
        let spec = json!({"devices": {"requests": [request(false), request(true)]}});
        for (name, object, expect) in [
            (
                "ResourceClaim",
                json!({"spec": spec}),
                &["spec.devices.requests[1].adminAccess"][..],
            ),
            (
                "ResourceClaimTemplate",
                json!({"spec": {"spec": spec}}),
                &["spec.devices.requests[1].adminAccess"],
            ),
            ("ResourceClaim", json!({"spec": {}}), &[]),
            ("DeviceClass", json!({"spec": spec}), &[]),
        ] {
            let found = validate_admin_access(kind(name), &object);
            assert_eq!(
                found
                    .iter()
                    .map(|error| error.field.as_str())
                    .collect::<Vec<_>>(),
                expect,
                "{name}"
            );
        }
    }
}
