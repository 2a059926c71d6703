//! CustomResourceDefinitions: their fields, and the structural form of their schemas.

mod structural;

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::names;
use api_meta::tree::{flag, get, has, list, text};
use serde_json::Value;

pub const DEFINITION: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_new_definition,
    update: validate_definition_update,
    sub: accept_subresource,
};

fn validate_new_definition(object: &Value, errors: &mut Errors) {
    let spec = get(object, "spec");
    let (group, plural) = (text(spec, "group"), text(get(spec, "names"), "plural"));
    let name = text(get(object, "metadata"), "name");
    // The name is the lock on group and plural: two definitions cannot serve the same path.
    if name != format!("{plural}.{group}") {
        errors.invalid(
            &Path::ROOT.child("metadata").child("name"),
            name,
            "must be spec.names.plural+\".\"+spec.group",
        );
    }
    validate_definition(object, errors);
}

fn validate_definition(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let group = text(spec, "group");
    if group.is_empty() {
        errors.required(&path.child("group"), "");
    } else {
        errors.invalid_each(
            &path.child("group"),
            group,
            rules::qualified_domain_problems(group, 2),
        );
    }
    rules::validate_required_one_of(spec, "scope", &["Cluster", "Namespaced"], &path, errors);
    validate_versions(spec, &path.child("versions"), errors);
    validate_version_schemas(spec, &path, errors);
    validate_names(get(spec, "names"), &path.child("names"), errors);
    validate_conversion(get(spec, "conversion"), &path.child("conversion"), errors);
    let stored = list(get(object, "status"), "storedVersions");
    // Without a stored version nothing says how to read the objects that exist.
    if stored.is_empty() {
        let at = Path::ROOT.child("status");
        errors.invalid(
            &at.child("storedVersions"),
            stored.to_vec(),
            "must have at least one stored version",
        );
    }
}

fn validate_versions(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(spec, "versions");
    // New objects are written in one version.
    if all.iter().filter(|v| flag(v, "storage")).count() != 1 {
        errors.invalid(
            path,
            all.to_vec(),
            "must have exactly one version marked as storage version",
        );
    }
    for (i, version) in all.iter().enumerate() {
        let at = path.index(i);
        let name = text(version, "name");
        errors.invalid_each(&at.child("name"), name, names::dns1035_label(name));
        if !has(get(version, "schema"), "openAPIV3Schema") {
            errors.required(
                &at.child("schema").child("openAPIV3Schema"),
                "schemas are required",
            );
        }
    }
}

/// Validates the schemas. If all versions have the same schema, upstream reports errors at the path
/// of an older API version.
fn validate_version_schemas(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(spec, "versions");
    let schema = |version: &Value| get(get(version, "schema"), "openAPIV3Schema").clone();
    let Some(first) = all.first().map(schema) else {
        return;
    };
    if all.iter().all(|version| schema(version) == first) {
        return structural::validate_structural_schema(
            &first,
            &path.child("validation").child("openAPIV3Schema"),
            errors,
        );
    }
    let at = path.child("versions");
    for (i, version) in all.iter().enumerate() {
        structural::validate_structural_schema(
            &schema(version),
            &at.index(i).child("schema").child("openAPIV3Schema"),
            errors,
        );
    }
}

fn validate_names(all: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["plural", "singular", "kind", "listKind"] {
        let name = text(all, field);
        if name.is_empty() {
            errors.required(&path.child(field), "");
        } else {
            errors.invalid_each(
                &path.child(field),
                name,
                names::dns1035_label(&name.to_ascii_lowercase()),
            );
        }
    }
    // Decoders find the type by the kind, so a list and its items need different ones.
    if !text(all, "kind").is_empty() && text(all, "kind") == text(all, "listKind") {
        errors.invalid(
            &path.child("listKind"),
            text(all, "listKind"),
            "kind and listKind may not be the same",
        );
    }
}

fn validate_conversion(conversion: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(conversion, "strategy") {
        "None" | "" => {}
        "Webhook" => {
            let hook = get(conversion, "webhook");
            if !has(hook, "clientConfig") {
                errors.required(
                    &path.child("webhookClientConfig"),
                    "required when strategy is set to Webhook",
                );
            }
            if list(hook, "conversionReviewVersions").is_empty() {
                errors.required(&path.child("conversionReviewVersions"), "");
            }
        }
        other => errors.not_supported(&path.child("strategy"), other, &["None", "Webhook"]),
    }
}

fn validate_definition_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_definition(new, errors);
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    let established = list(get(old, "status"), "conditions")
        .iter()
        .any(|c| text(c, "type") == "Established" && text(c, "status") == "True");
    // Before that, names are only a wish: a conflict may still be solved by another name.
    if established {
        rules::validate_immutable(n, o, "scope", &path, errors);
        rules::validate_immutable(
            get(n, "names"),
            get(o, "names"),
            "kind",
            &path.child("names"),
            errors,
        );
    }
    rules::validate_immutable(n, o, "group", &path, errors);
    rules::validate_immutable(
        get(n, "names"),
        get(o, "names"),
        "plural",
        &path.child("names"),
        errors,
    );
}
