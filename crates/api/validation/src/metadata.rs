//! Rules of `metadata`, equal for all kinds except for the form of names.

mod managed_fields;

use crate::field::{Errors, Path};
use crate::rules;
use api_meta::Kind;
use api_meta::names;
use api_meta::tree::{entries, flag, get, has, int, list, text, texts};
use serde_json::Value;
use std::collections::HashSet;

/// Upstream's limit for all keys and values together. `kubectl apply` stores the whole manifest in
/// one annotation, so large objects reach it first.
pub(crate) const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// Owner references up to which each further controller is an error of its own, as upstream. Each
/// error shows the whole list: of a long one, the response would grow with the square of the
/// request.
const OWNERS_SHOWN: usize = 64;
const IMMUTABLE: &str = "field is immutable";
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Form of a kind's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS subdomain, at most 253 bytes.
    Subdomain,
    /// DNS label, at most 63 bytes.
    Label,
    /// Valid as a path segment.
    PathSegment,
    /// Valid as a path segment, without control characters.
    PrintablePathSegment,
    /// Validated by the kind's own rules.
    Own,
}

impl NameRule {
    /// Returns the problems of `name`. A prefix (`generateName`) may end with a dash.
    pub fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        let masked = match name.strip_suffix('-') {
            // The server appends five characters to a prefix, so its last dash is not the end of
            // the name.
            Some(rest) if prefix && !rest.is_empty() => {
                let mut chars = rest.chars();
                chars.next_back();
                format!("{}a", chars.as_str())
            }
            _ => name.to_owned(),
        };
        match self {
            NameRule::Subdomain => names::dns1123_subdomain(&masked),
            NameRule::Label => names::dns1123_label(&masked),
            // A prefix of dots becomes a valid name with its suffix, so only forbidden characters
            // are errors here.
            NameRule::PathSegment if prefix => names::path_segment(name)
                .into_iter()
                .filter(|p| p.contains("may not contain"))
                .collect(),
            NameRule::PathSegment => names::path_segment(name),
            NameRule::PrintablePathSegment => {
                let mut problems = NameRule::PathSegment.problems(name, prefix);
                problems.extend(
                    name.contains(char::is_control)
                        .then(|| "may not contain control characters".to_owned()),
                );
                problems
            }
            NameRule::Own => Vec::new(),
        }
    }
}

/// Validates a new object's metadata.
pub fn validate_metadata(
    object: &Value,
    kind: Kind<'_>,
    rule: NameRule,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let meta = get(object, "metadata");
    let generate = text(meta, "generateName");
    // Prefix and name may both have errors: the name was made from the prefix, so a client sees the
    // cause first.
    if !generate.is_empty() {
        errors.invalid_each(
            &path.child("generateName"),
            generate,
            rule.problems(generate, true),
        );
    }
    validate_name(text(meta, "name"), rule, path, errors);
    validate_namespace(text(meta, "namespace"), kind.namespaced, path, errors);
    // Controllers compare the generation with the one that they have observed.
    if int(meta, "generation").is_some_and(|g| g < 0) {
        errors.invalid(
            &path.child("generation"),
            get(meta, "generation").clone(),
            rules::NEGATIVE,
        );
    }
    validate_common_fields(meta, path, errors);
}

/// Validates the prefix and the name of a kind with [`NameRule::Own`]. `find_problems` receives the
/// name, and whether it is a prefix.
pub fn validate_own_names(
    object: &Value,
    errors: &mut Errors,
    find_problems: impl Fn(&str, bool) -> Vec<String>,
) {
    let path = Path::ROOT.child("metadata");
    for (field, is_prefix) in [("generateName", true), ("name", false)] {
        let name = text(get(object, "metadata"), field);
        // `validate_metadata` reports that neither was set.
        if !name.is_empty() {
            errors.invalid_each(&path.child(field), name, find_problems(name, is_prefix));
        }
    }
}

fn validate_name(name: &str, rule: NameRule, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("name");
    // `generateName` has been resolved before. Still no name means that neither was set.
    if name.is_empty() {
        errors.required(&at, "name or generateName is required");
    } else {
        errors.invalid_each(&at, name, rule.problems(name, false));
    }
}

fn validate_namespace(namespace: &str, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.required(&at, ""),
        (true, false) => errors.invalid_each(&at, namespace, names::dns1123_label(namespace)),
        (false, false) => errors.forbidden(&at, "not allowed on this type"),
        (false, true) => {}
    }
}

fn validate_common_fields(meta: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_labels(meta, "labels", path, errors);
    validate_annotations(meta, path, errors);
    validate_owner_references(
        list(meta, "ownerReferences"),
        &path.child("ownerReferences"),
        errors,
    );
    validate_finalizers(meta, &path.child("finalizers"), errors);
    managed_fields::validate_managed_fields(meta, &path.child("managedFields"), errors);
}

/// Validates the labels in `parent[field]`.
pub fn validate_labels(parent: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child(field);
    for (key, value) in entries(parent, field) {
        errors.invalid_each(&at, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        // Upstream's path has no key here: a client sees the value, and the key only in errors of
        // the key.
        errors.invalid_each(&at, value, names::label_value(value));
    }
}

/// Validates `parent.annotations`.
pub fn validate_annotations(parent: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("annotations");
    let mut size = 0;
    for (key, value) in entries(parent, "annotations") {
        // Keys of annotations may have upper-case letters in their prefix. Keys of labels may not.
        errors.invalid_each(&at, key, names::qualified_name(&key.to_ascii_lowercase()));
        // The sum can't overflow: the request has bounded the size of the object before.
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(&at, ANNOTATIONS_LIMIT);
    }
}

fn validate_owner_references(owners: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    let mut is_reported = false;
    for owner in owners {
        let version = text(owner, "apiVersion");
        // The group may be empty, for owners such as pods and nodes.
        if version.rsplit('/').next().unwrap_or_default().is_empty() {
            errors.invalid(
                &path.child("apiVersion"),
                version,
                "version must not be empty",
            );
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                errors.invalid(&path.child(field), "", "must not be empty");
            }
        }
        // Events expire, and their end would delete the object.
        if (version, text(owner, "kind")) == ("v1", "Event") {
            errors.invalid(
                path,
                owner.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            );
        }
        // Two controllers would both count the object as their replica and correct its number.
        if flag(owner, "controller") {
            let this = || format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                Some(first) if !is_reported || owners.len() <= OWNERS_SHOWN => {
                    is_reported = true;
                    let this = this();
                    errors.invalid(
                        path,
                        owners.to_vec(),
                        format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"),
                    );
                }
                Some(_) => {}
                None => controller = Some(this()),
            }
        }
    }
}

fn validate_finalizers(meta: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = texts(meta, "finalizers");
    for finalizer in &all {
        errors.invalid_each(path, finalizer, names::qualified_name(finalizer));
    }
    // The garbage collector would have to keep the dependents and to wait for their deletion.
    if all.contains(&"orphan") && all.contains(&"foregroundDeletion") {
        errors.invalid(
            path,
            all,
            "finalizer orphan and foregroundDeletion cannot be both set",
        );
    }
}

/// Checks that finalizers are standard ones or have a domain, as those of most built-in kinds.
pub fn validate_finalizer_domains(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("finalizers");
    for (i, name) in texts(get(object, "metadata"), "finalizers")
        .iter()
        .enumerate()
    {
        validate_finalizer_domain(name, &path.index(i), errors);
    }
}

/// Returns whether a finalizer has a domain or is one of Kubernetes itself.
pub fn is_domain_or_standard_finalizer(name: &str) -> bool {
    name.contains('/') || STANDARD_FINALIZERS.contains(&name)
}

/// Checks that a finalizer is a standard one or has a domain.
pub fn validate_finalizer_domain(name: &str, path: &Path<'_>, errors: &mut Errors) {
    // A name without a domain has no owner that would ever remove it.
    if !is_domain_or_standard_finalizer(name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.invalid(path, name, detail);
    }
}

/// Validates a changed object's metadata.
pub fn validate_metadata_update(
    new: &Value,
    old: &Value,
    _kind: Kind<'_>,
    _rule: NameRule,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // The rule for names is not applied again: names are immutable, and older releases accepted
    // more of them.
    let (new, old) = (get(new, "metadata"), get(old, "metadata"));
    validate_no_new_finalizers(new, old, &path.child("finalizers"), errors);
    // An observed generation greater than the current one would make a controller skip real
    // changes.
    if let (Some(n), Some(o)) = (int(new, "generation"), int(old, "generation"))
        && n < o
    {
        errors.invalid(&path.child("generation"), n, "must not be decremented");
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        // Times are set by the server through deletion only. A null counts as a change, because it
        // would undo the deletion.
        if get(new, field) != get(old, field) {
            errors.invalid(&path.child(field), get(new, field).clone(), IMMUTABLE);
        }
    }
    validate_common_fields(new, path, errors);
}

fn validate_no_new_finalizers(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    // A finalizer added now could delay the deletion without end. Controllers that act on the
    // object have removed theirs.
    if !has(old, "deletionTimestamp") {
        return;
    }
    // Removed finalizers need no check: their controllers have finished. Each of many thousands is
    // looked up, so that the old ones are a set.
    let before: HashSet<&str> = texts(old, "finalizers").into_iter().collect();
    let mut added: Vec<String> = texts(new, "finalizers")
        .iter()
        .filter(|f| !before.contains(**f))
        .map(|f| format!("{f:?}"))
        .collect();
    if !added.is_empty() {
        added.sort();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        errors.forbidden(path, detail);
    }
}
