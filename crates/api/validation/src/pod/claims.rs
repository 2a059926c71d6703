//! Resource claims of pods and their use by containers.

use crate::field::{Errors, FieldError, Path};
use api_meta::names;
use api_meta::tree::{get, has, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

const SOURCES: [&str; 2] = ["resourceClaimName", "resourceClaimTemplateName"];
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Validates `resourceClaims` of a pod.
pub fn validate_pod_claims(
    spec: &Value,
    metadata: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let is_mirror = metadata.is_some_and(|m| has(get(m, "annotations"), MIRROR));
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (i, claim) in list(spec, "resourceClaims").iter().enumerate() {
        // The kubelet runs a static pod without the API server, so no claim could be allocated.
        if is_mirror {
            let detail = "static pods do not support resource claims";
            errors.forbidden(&Path::ROOT.child(""), detail);
            continue;
        }
        validate_pod_claim(claim, &mut seen, &path.index(i), errors);
    }
}

fn validate_pod_claim<'a>(
    claim: &'a Value,
    seen: &mut BTreeSet<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (name, at) = (text(claim, "name"), path.child("name"));
    if name.is_empty() {
        errors.required(&at, "");
    } else if !seen.insert(name) {
        errors.duplicate(&at, name);
    } else {
        errors.invalid_each(&at, name, names::dns1123_label(name));
    }
    // A claim by name is shared between pods. A template makes one claim for each pod, which is
    // deleted with it.
    match SOURCES.iter().filter(|field| has(claim, field)).count() {
        0 => {
            let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
            errors.invalid(path, claim.clone(), detail);
        }
        1 => {}
        _ => {
            let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
            errors.invalid(path, claim.clone(), detail);
        }
    }
    for field in SOURCES.into_iter().filter(|field| has(claim, field)) {
        let name = text(claim, field);
        errors.invalid_each(&path.child(field), name, names::dns1123_subdomain(name));
    }
}

/// Validates `resources.claims` of a container: each names a claim of the pod, and a request of a
/// claim is not used twice.
pub fn validate_claim_names(
    resources: &Value,
    known: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut used: BTreeSet<String> = BTreeSet::new();
    for (i, claim) in list(resources, "claims").iter().enumerate() {
        let (at, name) = (path.index(i), text(claim, "name"));
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        validate_claim_use(claim, &mut used, &at, errors);
        if !known.contains(name) {
            errors.0.push(describe_unknown_claim(name, known, &at));
        }
    }
}

fn validate_claim_use(
    claim: &Value,
    used: &mut BTreeSet<String>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (name, request) = (text(claim, "name"), text(claim, "request"));
    // A claim without a request means all of its requests.
    if used.contains(name) {
        errors.duplicate(path, name);
        return;
    }
    let mut key = name.to_owned();
    if !request.is_empty() {
        errors.invalid_each(
            &path.child("request"),
            request,
            names::dns1123_label(request),
        );
        key = format!("{name}/{request}");
    }
    if used.contains(&key) {
        errors.duplicate(path, key.as_str());
    } else if request.is_empty() {
        let is_of_claim = |k: &&String| k.split('/').next() == Some(name);
        (0..used.iter().filter(is_of_claim).count()).for_each(|_| errors.duplicate(path, name));
    }
    used.insert(key);
}

fn describe_unknown_claim(name: &str, known: &BTreeSet<&str>, path: &Path<'_>) -> FieldError {
    let mut detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
    if known.is_empty() {
        detail.push_str(" which is empty");
    } else {
        detail.push_str(": ");
        detail.push_str(&known.iter().copied().collect::<Vec<_>>().join(", "));
    }
    FieldError {
        kind: crate::field::ErrorKind::NotFound,
        field: path.to_string(),
        value: Some(name.into()),
        detail,
    }
}
