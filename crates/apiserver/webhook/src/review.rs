//! The request of an AdmissionReview.

use crate::attributes::Attributes;
use crate::kinds::ReviewTarget;
use apiserver_request::{Operation, User};
use serde_json::{Map, Value, json};

/// A version of AdmissionReview. Both have the same fields in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`
    V1,
    /// `v1beta1`
    V1beta1,
}

impl ReviewVersion {
    /// Returns the version of a name in `admissionReviewVersions`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        }
    }

    /// Returns the `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "admission.k8s.io/v1",
            ReviewVersion::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// Builds a review. The objects are in the target's version.
pub fn build_review(
    version: ReviewVersion,
    uid: &str,
    attributes: &Attributes<'_>,
    target: &ReviewTarget,
    object: &Value,
    old: &Value,
) -> Value {
    let mut request = build_request(attributes, target);
    if let Some(fields) = request.as_object_mut() {
        fields.insert("uid".into(), uid.into());
        fields.insert("object".into(), object.clone());
        fields.insert("oldObject".into(), old.clone());
    }
    json!({"kind": "AdmissionReview", "apiVersion": version.api_version(), "request": request})
}

/// Builds `request` without UID and objects, which is also a variable of match conditions.
pub fn build_request(attributes: &Attributes<'_>, (resource, kind): &ReviewTarget) -> Value {
    let mut request = json!({
        "kind": kind.to_json(),
        "resource": resource.to_json(),
        "requestKind": attributes.kind.to_json(),
        "requestResource": attributes.resource.to_json(),
        "operation": attributes.operation.as_str(),
        "userInfo": user_info(attributes.user),
        "dryRun": attributes.dry_run,
        "options": operation_options(attributes),
    });
    // Omitted if empty, as Go's encoder does.
    for (field, text) in [
        ("name", attributes.name),
        ("namespace", attributes.namespace),
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
    ] {
        if let (false, Some(fields)) = (text.is_empty(), request.as_object_mut()) {
            fields.insert(field.into(), text.into());
        }
    }
    request
}

fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    let texts = [("username", &user.name), ("uid", &user.uid)];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        info.insert(field.into(), text.clone().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    Value::Object(info)
}

/// Webhooks see a patch as the update or create that it results in.
fn operation_options(attributes: &Attributes<'_>) -> Value {
    let mut options = attributes.options.clone();
    let kind = match attributes.operation {
        Operation::Create => "CreateOptions",
        _ => "UpdateOptions",
    };
    if options.get("kind").and_then(Value::as_str) == Some("PatchOptions")
        && let Some(fields) = options.as_object_mut()
    {
        fields.insert("kind".into(), kind.into());
        fields.remove("force");
    }
    options
}
