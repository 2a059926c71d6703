//! The request of an AdmissionReview.

use crate::attributes::Attributes;
use crate::kinds::ReviewTarget;
use api_codec::json::{write_string, write_value};
use apiserver_request::Operation;
use apiserver_webhook_client::ReviewVersion;
use serde_json::{Value, json};

/// Bytes for a review of a small object.
const REVIEW_CAPACITY: usize = 4096;

/// The group of reviews. Both versions have the same fields in a request.
pub const GROUP: &str = "admission.k8s.io";

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
    write_string(&version.api_version(GROUP), &mut out);
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
        "userInfo": attributes.user.to_user_info(),
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
