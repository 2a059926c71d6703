//! Access reviews and requests for tokens, which are answered and never stored.

use crate::field::{Errors, FieldError, Path};
use api_meta::Kind;
use api_meta::names;
use api_meta::semantic::equal_except;
use api_meta::tree::{get, has, int, list, text, texts};
use serde_json::{Value, json};

// Upstream's limit, about 136 years. It keeps the sum with the current time far from an overflow.
const LONGEST_TOKEN: i64 = 1 << 32;
const OPERATORS: [&str; 4] = ["DoesNotExist", "Exists", "In", "NotIn"];

/// Validates a review. Kinds that have no rules pass.
pub fn validate_review(kind: Kind<'_>, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    match (kind.group, kind.kind) {
        ("authorization.k8s.io", "SubjectAccessReview") => {
            validate_subject_review(object, &mut errors);
            validate_empty_metadata(object, &[], "must be empty", &mut errors);
        }
        ("authorization.k8s.io", "SelfSubjectAccessReview") => {
            validate_attributes(get(object, "spec"), &mut errors);
            validate_selectors(get(object, "spec"), &mut errors);
            validate_empty_metadata(object, &[], "must be empty", &mut errors);
        }
        ("authorization.k8s.io", "LocalSubjectAccessReview") => {
            validate_local_review(object, &mut errors);
        }
        ("authentication.k8s.io", "TokenRequest") => {
            validate_token_lifetime(get(object, "spec"), &mut errors);
        }
        _ => {}
    }
    errors.0
}

fn validate_attributes(spec: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let urls = get(spec, "nonResourceAttributes");
    // An authorizer answers one question, so a review with both or neither has no defined answer.
    match (has(spec, "resourceAttributes"), urls.is_null()) {
        (true, false) => errors.invalid(
            &path.child("nonResourceAttributes"),
            urls.clone(),
            "cannot be specified in combination with resourceAttributes",
        ),
        (false, true) => errors.invalid(
            &path.child("resourceAttributes"),
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
}

fn validate_subject_review(object: &Value, errors: &mut Errors) {
    let spec = get(object, "spec");
    validate_attributes(spec, errors);
    // A review of groups alone is allowed: it answers for an unnamed member of them.
    if text(spec, "user").is_empty() && list(spec, "groups").is_empty() {
        errors.invalid(
            &Path::ROOT.child("spec").child("user"),
            "",
            "at least one of user or group must be specified",
        );
    }
    validate_selectors(spec, errors);
}

fn validate_empty_metadata(object: &Value, except: &[&str], why: &str, errors: &mut Errors) {
    let metadata = get(object, "metadata");
    // The server itself writes managedFields before validation, so they are not the client's.
    let ignored: Vec<&str> = except.iter().copied().chain(["managedFields"]).collect();
    if metadata.is_object() && !equal_except(metadata, &json!({}), &ignored) {
        errors.invalid(&Path::ROOT.child("metadata"), metadata.clone(), why);
    }
}

/// A local review is authorized in its namespace, and may ask about no other.
fn validate_local_review(object: &Value, errors: &mut Errors) {
    let spec = get(object, "spec");
    validate_subject_review(object, errors);
    let why = "must be empty except for namespace";
    validate_empty_metadata(object, &["namespace"], why, errors);
    let path = Path::ROOT.child("spec");
    let attributes = get(spec, "resourceAttributes");
    let namespace = text(attributes, "namespace");
    if !attributes.is_null() && namespace != text(get(object, "metadata"), "namespace") {
        let at = path.child("resourceAttributes");
        errors.invalid(
            &at.child("namespace"),
            namespace,
            "must match metadata.namespace",
        );
    }
    // Paths without a resource have no namespace, so access to one namespace must not reveal who
    // may use them.
    if has(spec, "nonResourceAttributes") {
        errors.invalid(
            &path.child("nonResourceAttributes"),
            get(spec, "nonResourceAttributes").clone(),
            "disallowed on this kind of request",
        );
    }
}

fn validate_selectors(spec: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let path = path.child("resourceAttributes");
    for field in ["fieldSelector", "labelSelector"] {
        let selector = get(get(spec, "resourceAttributes"), field);
        if !selector.is_null() {
            validate_selector(
                selector,
                field == "labelSelector",
                &path.child(field),
                errors,
            );
        }
    }
}

fn validate_selector(selector: &Value, of_labels: bool, path: &Path<'_>, errors: &mut Errors) {
    let (raw, requirements) = (
        text(selector, "rawSelector"),
        list(selector, "requirements"),
    );
    let at = path.child("requirements");
    // Both forms could contradict each other, and the authorizer would have to choose which to
    // believe.
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => errors.invalid(
            &path.child("rawSelector"),
            raw,
            "may not specified at the same time as requirements",
        ),
        (true, true) => errors.required(
            &at,
            format!("when {path} is specified, requirements or rawSelector is required"),
        ),
        _ => {}
    }
    for (i, requirement) in requirements.iter().enumerate() {
        validate_requirement(requirement, of_labels, &at.index(i), errors);
    }
}

/// Unknown operators pass: an authorizer of a newer release may know them.
fn validate_requirement(
    requirement: &Value,
    of_labels: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (key, operator) = (text(requirement, "key"), text(requirement, "operator"));
    let values = texts(requirement, "values");
    let at = path.child("key");
    // Keys of fields are paths such as `spec.nodeName`, for which there is no common syntax.
    if of_labels {
        errors.invalid_each(&at, key, names::qualified_name(key));
    } else if key.is_empty() {
        errors.required(&at, "must be specified");
    }
    let at = path.child("values");
    let takes_values = operator.ends_with("In");
    if OPERATORS.contains(&operator) && takes_values && values.is_empty() {
        errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
    }
    if OPERATORS.contains(&operator) && !takes_values && !values.is_empty() {
        errors.forbidden(
            &at,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        );
    }
    // Values of fields may be any text; only labels have a syntax.
    for (i, value) in values.iter().enumerate().filter(|_| of_labels) {
        errors.invalid_each(&at.index(i), value, names::label_value(value));
    }
}

fn validate_token_lifetime(spec: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let at = path.child("expirationSeconds");
    // Defaulting sets an hour.
    match int(spec, "expirationSeconds").unwrap_or(3600) {
        // The kubelet renews a token at 80 % of its life. With less than 10 minutes, a short outage
        // would invalidate it.
        n if n < 600 => errors.invalid(&at, n, "may not specify a duration less than 10 minutes"),
        n if n > LONGEST_TOKEN => {
            errors.invalid(
                &at,
                n,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(kind: &'static str, object: Value) -> Vec<String> {
        let group = match kind {
            "TokenRequest" => "authentication.k8s.io",
            _ => "authorization.k8s.io",
        };
        let kind = Kind {
            group,
            version: "v1",
            kind,
            namespaced: false,
        };
        let errors = validate_review(kind, &object);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn review_asks_one_question_about_a_subject() {
        for (spec, expected) in [
            (json!({"user": "u", "resourceAttributes": {}}), ""),
            (
                json!({"groups": ["g"], "nonResourceAttributes": {"path": "/"}}),
                "",
            ),
            (
                json!({"user": "u"}),
                "spec.resourceAttributes: Invalid value: null: exactly one of",
            ),
            (
                json!({"resourceAttributes": {}}),
                "spec.user: Invalid value: \"\": at least one of user or group",
            ),
            (
                json!({"user": "u", "resourceAttributes": {}, "nonResourceAttributes": {}}),
                "spec.nonResourceAttributes: Invalid value: {}: cannot be specified in combination",
            ),
            (
                json!({"user": "u", "resourceAttributes": {"labelSelector": {}}}),
                "spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified",
            ),
            (
                json!({"user": "u", "resourceAttributes": {"labelSelector": {"requirements": [{"key": "a b", "operator": "New"}]}}}),
                "spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: \"a b\"",
            ),
            (
                json!({"user": "u", "resourceAttributes": {"fieldSelector": {"requirements": [{"key": "a", "operator": "In"}]}}}),
                "spec.resourceAttributes.fieldSelector.requirements[0].values: Required value",
            ),
            (
                json!({"user": "u", "resourceAttributes": {"fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}}}),
                "spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified",
            ),
        ] {
            let found = problems("SubjectAccessReview", json!({"spec": spec})).join("; ");
            assert!(
                found.starts_with(expected) && found.is_empty() == expected.is_empty(),
                "{spec}: {found}"
            );
        }
    }

    #[test]
    fn metadata_of_a_review_is_empty() {
        let spec = json!({"resourceAttributes": {}});
        let named = json!({"metadata": {"name": "x"}, "spec": spec});
        assert_eq!(
            problems(
                "SelfSubjectAccessReview",
                json!({"metadata": {}, "spec": spec})
            )
            .len(),
            0
        );
        assert_eq!(problems("SelfSubjectAccessReview", named).len(), 1);
    }

    #[test]
    fn local_review_stays_in_its_namespace() {
        let review = |namespace: &str| {
            json!({"metadata": {"namespace": "n"},
            "spec": {"user": "u", "resourceAttributes": {"namespace": namespace}}})
        };
        assert_eq!(problems("LocalSubjectAccessReview", review("n")).len(), 0);
        assert_eq!(
            problems("LocalSubjectAccessReview", review("m")),
            [
                "spec.resourceAttributes.namespace: Invalid value: \"m\": must match metadata.namespace"
            ]
        );
    }

    #[test]
    fn token_lives_ten_minutes_or_longer() {
        for (seconds, count) in [(600, 0), (599, 1), (1 << 32, 0), ((1i64 << 32) + 1, 1)] {
            let found = problems(
                "TokenRequest",
                json!({"spec": {"expirationSeconds": seconds}}),
            );
            assert_eq!(found.len(), count, "{seconds}: {found:?}");
        }
    }
}
