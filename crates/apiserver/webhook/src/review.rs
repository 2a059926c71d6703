//! The request of an AdmissionReview.

use crate::attributes::Attributes;
use crate::kinds::ReviewTarget;
use api_codec::json::{write_string, write_value};
use apiserver_request::{Operation, User};
use serde_json::{Map, Value, json};

/// Bytes for a review of a small object.
const REVIEW_CAPACITY: usize = 4096;

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

/// Encodes a review as JSON. The objects are in the target's version, and `encode` appends one of
/// them: a tree of the review would be a copy of both.
pub fn encode_review(
    version: ReviewVersion,
    uid: &str,
    attributes: &Attributes<'_>,
    target: &ReviewTarget,
    [object, old]: [&Value; 2],
    encode: impl Fn(&Value, &mut Vec<u8>),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(REVIEW_CAPACITY);
    out.extend_from_slice(br#"{"kind":"AdmissionReview","apiVersion":"#);
    write_string(version.api_version(), &mut out);
    out.extend_from_slice(br#","request":{"uid":"#);
    write_string(uid, &mut out);
    let request = build_request(attributes, target);
    for (name, value) in request.as_object().into_iter().flatten() {
        out.push(b',');
        write_string(name, &mut out);
        out.push(b':');
        write_value(value, &mut out);
    }
    out.extend_from_slice(br#","object":"#);
    encode(object, &mut out);
    out.extend_from_slice(br#","oldObject":"#);
    encode(old, &mut out);
    out.extend_from_slice(b"}}");
    out
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
        // `CreateOptions` and `UpdateOptions` have no such field, and a strict webhook would reject
        // it.
        fields.remove("force");
    }
    options
}
