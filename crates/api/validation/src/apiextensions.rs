//! Custom resource definitions, and the custom resources that they define.
//!
//! Rules of schemas are in `api-structural`. Upstream validates an older form of definitions, in
//! which schema, subresources, columns and selectable fields that are equal in all versions are
//! fields of `spec`. Field paths refer to that form.

mod approval;
mod conversion;
mod definition;
mod names;
pub(crate) mod problems;
mod version;

use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::rules;
use api_meta::tree::{flag, get, list, text};
use definition::SpecOptions;
use serde_json::Value;
use std::collections::HashSet;

pub use approval::{APPROVAL_ANNOTATION, Approval, is_protected_group, read_approval};
pub use conversion::has_valid_conversion_bundle;

pub const DEFINITION: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_new_definition,
    update: validate_definition_update,
    sub: validate_definition_status,
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
    definition::validate_spec(spec, &SpecOptions::for_create(), errors);
    validate_status(object, errors);
    validate_approval(object, None, errors);
    validate_preserve_unknown(spec, None, errors);
}

fn validate_definition_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    let established = is_established(old);
    definition::validate_spec(n, &SpecOptions::for_update(o, established), errors);
    let (new_names, old_names, names) = (get(n, "names"), get(o, "names"), path.child("names"));
    // Before that, names are only a wish: a conflict may still be solved by another name.
    if established {
        // Stored objects contain the kind, and their keys contain a namespace only with the
        // namespaced scope.
        rules::validate_immutable(n, o, "scope", &path, errors);
        rules::validate_immutable(new_names, old_names, "kind", &names, errors);
    }
    // Group and plural are parts of the keys of all stored objects, and of the definition's name.
    rules::validate_immutable(n, o, "group", &path, errors);
    rules::validate_immutable(new_names, old_names, "plural", &names, errors);
    validate_status(new, errors);
    validate_approval(new, Some(old), errors);
    validate_preserve_unknown(n, Some(o), errors);
}

fn validate_definition_status(_subresource: &str, new: &Value, _: &Value, errors: &mut Errors) {
    let accepted = get(get(new, "status"), "acceptedNames");
    let path = Path::ROOT.child("status");
    names::validate_names(accepted, &path.child("acceptedNames"), errors);
}

fn is_established(definition: &Value) -> bool {
    // A client could write the condition twice. The first one counts, as upstream.
    let conditions = list(get(definition, "status"), "conditions");
    let mut found = conditions
        .iter()
        .filter(|c| text(c, "type") == "Established");
    found.next().is_some_and(|c| text(c, "status") == "True")
}

fn validate_status(object: &Value, errors: &mut Errors) {
    validate_definition_status("status", object, object, errors);
    let path = Path::ROOT.child("status");
    let at = path.child("storedVersions");
    let stored = list(get(object, "status"), "storedVersions");
    // Without a stored version nothing says how to read the objects that exist.
    if stored.is_empty() {
        errors.invalid(
            &at,
            stored.to_vec(),
            "must have at least one stored version",
        );
        return;
    }
    let versions = list(get(object, "spec"), "versions");
    let names: HashSet<&str> = stored.iter().filter_map(Value::as_str).collect();
    for version in versions.iter().filter(|v| flag(v, "storage")) {
        let name = text(version, "name");
        if !names.contains(name) {
            let detail = format!("must have the storage version {name}");
            errors.invalid(&at, stored.to_vec(), detail);
        }
    }
    let served: HashSet<&str> = versions.iter().map(|v| text(v, "name")).collect();
    for (i, name) in stored.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        if !served.contains(name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(&at.index(i), name, detail);
        }
    }
}

fn validate_approval(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let group = text(get(new, "spec"), "group");
    let state = read_approval(new);
    // A controller that updates other fields is not responsible for the approval.
    if !is_protected_group(group) || old.is_some_and(|old| read_approval(old) == state) {
        return;
    }
    let (metadata, see) = (
        Path::ROOT.child("metadata"),
        "see https://github.com/kubernetes/enhancements/pull/1111",
    );
    let at = metadata.child("annotations");
    let at = at.key(APPROVAL_ANNOTATION);
    let required =
        format!("protected groups must have approval annotation \"{APPROVAL_ANNOTATION}\"");
    match state {
        Approval::Missing => errors.required(&at, format!("{required}, {see}")),
        Approval::Invalid => errors.invalid(
            &at,
            text(
                get(get(new, "metadata"), "annotations"),
                APPROVAL_ANNOTATION,
            ),
            format!("{required} with either a URL or a reason starting with \"unapproved\", {see}"),
        ),
        Approval::Approved | Approval::Bypassed => {}
    }
}

fn validate_preserve_unknown(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let before = old.is_some_and(|old| flag(old, "preserveUnknownFields"));
    // Definitions of the beta version may keep the flag. A new one would turn off pruning for whole
    // objects, and with it defaults.
    if flag(new, "preserveUnknownFields") && !before {
        let path = Path::ROOT.child("spec");
        errors.invalid(
            &path.child("preserveUnknownFields"),
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
}

#[cfg(test)]
mod tests;
