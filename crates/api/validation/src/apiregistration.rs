//! APIServices.

use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::rules;
use api_meta::names;
use api_meta::tree::{flag, get, has, int, list, text};
use serde_json::Value;

pub const API_SERVICE: Rules = Rules {
    name: NameRule::PathSegment,
    create: validate_api_service,
    update: |new, _, errors| validate_api_service(new, errors),
    sub: |_, new, _, errors| validate_api_service_status(new, errors),
};

const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

fn validate_api_service(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    validate_api_service_name(object, &format!("{version}.{group}"), errors);
    // The core group has no name. It is served by this server alone.
    if group.is_empty() && version != "v1" {
        errors.required(
            &path.child("group"),
            "only v1 may have an empty group and it better be legacy kube",
        );
    }
    if !group.is_empty() {
        errors.invalid_each(&path.child("group"), group, names::dns1123_subdomain(group));
    }
    errors.invalid_each(
        &path.child("version"),
        version,
        names::dns1035_label(version),
    );
    // Upstream's message says "less than", but the limit itself is accepted.
    for (field, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = int(spec, field).unwrap_or(0);
        if !(1..=max).contains(&priority) {
            let detail = format!("must be positive and less than {max}");
            errors.invalid(&path.child(field), priority, detail);
        }
    }
    let insecure = flag(spec, "insecureSkipTLSVerify");
    if has(spec, "service") {
        validate_service_reference(get(spec, "service"), &path.child("service"), errors);
        // An author who supplies a bundle expects it to be verified, so the contradiction is an
        // error.
        if insecure && !text(spec, "caBundle").is_empty() {
            let detail = "may not be true if caBundle is present";
            errors.invalid(&path.child("insecureSkipTLSVerify"), true, detail);
        }
    } else {
        validate_local_service(spec, insecure, &path, errors);
    }
}

/// The name is how clients and the aggregator find the object of a version.
fn validate_api_service_name(object: &Value, required: &str, errors: &mut Errors) {
    let name = text(get(object, "metadata"), "name");
    // The metadata rules have reported an empty or malformed name.
    if !name.is_empty() && names::path_segment(name).is_empty() && name != required {
        let metadata = Path::ROOT.child("metadata");
        let detail = format!("must be `spec.version+\".\"+spec.group`: \"{required}\"");
        errors.invalid(&metadata.child("name"), name, detail);
    }
}

fn validate_local_service(spec: &Value, insecure: bool, path: &Path<'_>, errors: &mut Errors) {
    let bundle = text(spec, "caBundle");
    // This server answers local versions itself, so there is no TLS connection that these fields
    // could affect.
    if !bundle.is_empty() {
        // Only the decoded size is shown, because a whole bundle would hide the message.
        let padding = bundle.bytes().rev().take_while(|b| *b == b'=').count();
        let size = (bundle.len() / 4 * 3).saturating_sub(padding);
        errors.invalid(
            &path.child("caBundle"),
            format!("{size} bytes"),
            "local APIServices may not have a caBundle",
        );
    }
    if insecure {
        errors.invalid(
            &path.child("insecureSkipTLSVerify"),
            true,
            "local APIServices may not have insecureSkipTLSVerify",
        );
    }
}

fn validate_service_reference(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["namespace", "name"] {
        if text(service, field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    // Defaulting sets the port of HTTPS.
    let port = int(service, "port").unwrap_or(443);
    if let Some(problem) = rules::port_number_problem(port) {
        let detail = format!("port is not valid: {problem}");
        errors.invalid(&path.child("port"), port, detail);
    }
}

fn validate_api_service_status(object: &Value, errors: &mut Errors) {
    let status = Path::ROOT.child("status");
    let path = status.child("conditions");
    let conditions = list(get(object, "status"), "conditions");
    for (i, condition) in conditions.iter().enumerate() {
        let value = text(condition, "status");
        if !STATUSES.contains(&value) {
            errors.not_supported(&path.index(i).child("status"), value, &STATUSES);
        }
    }
}
