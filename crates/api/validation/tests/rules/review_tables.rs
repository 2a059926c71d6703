//! Access reviews and requests for tokens.

use super::table::check_with;
use super::{Name, kind};
use api_validation::validate_review;
use serde_json::{Value, json};

const SUBJECT: Name = ("authorization.k8s.io", "SubjectAccessReview");
const OWN: Name = ("authorization.k8s.io", "SelfSubjectAccessReview");
const LOCAL: Name = ("authorization.k8s.io", "LocalSubjectAccessReview");
const TOKEN: Name = ("authentication.k8s.io", "TokenRequest");

/// Rows for the attributes of all reviews.
const ATTRIBUTES: &str = r#"
    /spec/nonResourceAttributes={} => spec.nonResourceAttributes: Invalid value: {}: cannot be specified in combination with resourceAttributes ;; ...
    /spec/resourceAttributes/labelSelector={"rawSelector":"a=b"} => ok
    /spec/resourceAttributes/labelSelector={"requirements":[{"key":"a","operator":"In","values":["b"]}]} => ok
    /spec/resourceAttributes/labelSelector={} => spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required
    /spec/resourceAttributes/labelSelector={"rawSelector":"a=b","requirements":[{"key":"a","operator":"Exists"}]} => spec.resourceAttributes.labelSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements
    /spec/resourceAttributes/labelSelector={"requirements":[{"key":"a","operator":"NotIn"}]} => spec.resourceAttributes.labelSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
    /spec/resourceAttributes/labelSelector={"requirements":[{"key":"a","operator":"DoesNotExist","values":["b"]}]} => spec.resourceAttributes.labelSelector.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'
    /spec/resourceAttributes/labelSelector={"requirements":[{"key":"a b","operator":"Exists"}]} => spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: "a b": name part must consist of
    /spec/resourceAttributes/labelSelector={"requirements":[{"key":"a","operator":"In","values":["-"]}]} => spec.resourceAttributes.labelSelector.requirements[0].values[0]: Invalid value: "-": a valid label must be
    /spec/resourceAttributes/labelSelector={"requirements":[{"key":"a","operator":"Newer","values":["b"]}]} => ok
    /spec/resourceAttributes/fieldSelector={"rawSelector":"a=b"} => ok
    /spec/resourceAttributes/fieldSelector={"requirements":[{"key":"spec.nodeName","operator":"In","values":["-"]}]} => ok
    /spec/resourceAttributes/fieldSelector={} => spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required
    /spec/resourceAttributes/fieldSelector={"rawSelector":"a=b","requirements":[{"key":"a","operator":"Exists"}]} => spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements
    /spec/resourceAttributes/fieldSelector={"requirements":[{"key":"","operator":"Exists"}]} => spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified
    /spec/resourceAttributes/fieldSelector={"requirements":[{"key":"a","operator":"In"}]} => spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
    /spec/resourceAttributes/fieldSelector={"requirements":[{"key":"a","operator":"Exists","values":["b"]}]} => spec.resourceAttributes.fieldSelector.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'
"#;

fn check_review(name: Name, base: &Value, table: &str) {
    check_with(name, base, table, |review| {
        validate_review(kind(name), &review)
    });
}

#[test]
fn subject_access_reviews_are_checked() {
    let base = json!({"spec": {"user": "u", "resourceAttributes": {}}});
    check_review(SUBJECT, &base, ATTRIBUTES);
    let table = r#"
        /spec/user=null & /spec/groups=["g"] => ok
        /spec/user=null => spec.user: Invalid value: "": at least one of user or group must be specified
        /spec/resourceAttributes=null & /spec/nonResourceAttributes={"path":"/"} => ok
        /spec/resourceAttributes=null => spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified
        /metadata={"managedFields":[{"manager":"m"}]} => ok
        /metadata={"name":"x"} => metadata: Invalid value: {"name":"x"}: must be empty
    "#;
    check_review(SUBJECT, &base, table);
}

#[test]
fn reviews_of_oneself_are_checked() {
    let base = json!({"spec": {"resourceAttributes": {}}});
    check_review(OWN, &base, ATTRIBUTES);
    let table = r#"
        /spec/resourceAttributes=null & /spec/nonResourceAttributes={"path":"/"} => ok
        /spec/resourceAttributes=null => spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified
        /metadata={"labels":{"a":"b"}} => metadata: Invalid value: {"labels":{"a":"b"}}: must be empty
    "#;
    check_review(OWN, &base, table);
}

#[test]
fn local_access_reviews_are_checked() {
    let base = json!({"metadata": {"namespace": "n"},
        "spec": {"user": "u", "resourceAttributes": {"namespace": "n"}}});
    check_review(LOCAL, &base, ATTRIBUTES);
    let table = r#"
        /spec/user="" => spec.user: Invalid value: "": at least one of user or group must be specified
        /metadata/name="x" => metadata: Invalid value: {
        /spec/resourceAttributes/namespace="m" => spec.resourceAttributes.namespace: Invalid value: "m": must match metadata.namespace
        /spec/resourceAttributes/namespace=null => spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace
        /spec/resourceAttributes=null & /spec/nonResourceAttributes={"path":"/"} => spec.nonResourceAttributes: Invalid value: {"path":"/"}: disallowed on this kind of request
    "#;
    check_review(LOCAL, &base, table);
}

#[test]
fn requests_for_tokens_are_checked() {
    let table = r#"
        /spec/expirationSeconds=null => ok
        /spec/expirationSeconds=600 => ok
        /spec/expirationSeconds=599 => spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes
        /spec/expirationSeconds=0 => spec.expirationSeconds: Invalid value: 0: may not specify a duration less than 10 minutes
        /spec/expirationSeconds=-1 => spec.expirationSeconds: Invalid value: -1: may not specify a duration less than 10 minutes
        /spec/expirationSeconds=4294967296 => ok
        /spec/expirationSeconds=4294967297 => spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds
        /spec/audiences=["a"] => ok
        /spec/boundObjectRef={"kind":"Pod","name":"p"} => ok
        /metadata={"name":"a"} => ok
    "#;
    check_review(TOKEN, &json!({"spec": {}}), table);
}
