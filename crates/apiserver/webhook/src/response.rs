//! The response of an AdmissionReview: decoding and its checks.

use crate::review::GROUP;
use api_meta::tree::{entries, flag, get, has, list, opt_text, text};
use apiserver_webhook_client::ReviewVersion;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Warnings that are read from one response. The response to the client holds less text than this.
const MAX_WARNINGS: usize = 128;
/// Audit annotations that are read from one response.
const MAX_ANNOTATIONS: usize = 128;

/// A checked response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    pub allowed: bool,
    /// A JSON patch, empty for none.
    pub patch: Vec<u8>,
    pub patch_type: String,
    /// `status`, null for none.
    pub status: Value,
    pub warnings: Vec<String>,
    /// Annotations for the audit, without the name of the webhook.
    pub annotations: Vec<(String, String)>,
}

/// A response that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// Not an AdmissionReview.
    #[error("failed to call webhook: {0}")]
    Undecodable(String),
    /// An AdmissionReview that breaks a rule.
    #[error("received invalid webhook response: {0}")]
    Invalid(String),
}

/// Decodes and checks a response.
///
/// # Errors
/// A body that is no review, belongs to another request, or has fields that do not fit the kind of
/// webhook.
pub fn decode_response(
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
    body: &[u8],
) -> Result<Response, ResponseError> {
    let review = parse_review(body).map_err(ResponseError::Undecodable)?;
    let response = get(&review, "response");
    let invalid = |why: String| Err(ResponseError::Invalid(why));
    // Otherwise a body such as `{}` would read as a denial without a reason.
    if response.is_null() {
        return invalid("webhook response was absent".into());
    }
    check_types(response).map_err(ResponseError::Undecodable)?;
    // v1beta1 has neither check, and old webhooks rely on that.
    if version == ReviewVersion::V1 {
        check_identity(&review, response, uid).map_err(ResponseError::Invalid)?;
        check_patch_fields(response, mutating).map_err(ResponseError::Invalid)?;
    }
    let mut patch = Vec::new();
    let mut patch_type = String::new();
    // In v1beta1, the patch of a validating webhook is ignored.
    if mutating {
        patch = STANDARD
            .decode(text(response, "patch"))
            .map_err(|_| ResponseError::Undecodable("response.patch is not base64".into()))?;
        patch_type = match version {
            ReviewVersion::V1 => text(response, "patchType").to_owned(),
            // Upstream pins the only type, because v1beta1 has never checked the field.
            ReviewVersion::V1beta1 => "JSONPatch".to_owned(),
        };
    }
    let warnings = list(response, "warnings").iter().take(MAX_WARNINGS);
    let annotations = entries(response, "auditAnnotations").take(MAX_ANNOTATIONS);
    Ok(Response {
        allowed: flag(response, "allowed"),
        patch,
        patch_type,
        status: get(response, "status").clone(),
        warnings: warnings
            .filter_map(Value::as_str)
            .filter(|warning| !warning.is_empty())
            .map(str::to_owned)
            .collect(),
        annotations: annotations
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
    })
}

fn parse_review(body: &[u8]) -> Result<Value, String> {
    // Nesting is bounded by the parser.
    let review = api_codec::json::parse(body)
        .map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))?;
    let kind = text(&review, "kind");
    // Webhooks of v1beta1 may leave out the type.
    if !review.is_object() || !matches!(kind, "" | "AdmissionReview") {
        return Err(format!(
            "the response is not an AdmissionReview: kind {kind:?}"
        ));
    }
    Ok(review)
}

/// Rejects fields of the wrong type, which would otherwise count as absent.
fn check_types(response: &Value) -> Result<(), String> {
    type Check = fn(&Value) -> bool;
    let wrong = |field: &str, is: Check| {
        let value = get(response, field);
        !value.is_null() && !is(value)
    };
    let texts = |value: &Value| {
        let is_text = |list: &Vec<Value>| list.iter().all(Value::is_string);
        value.as_array().is_some_and(is_text)
    };
    let text_map = |value: &Value| {
        let is_text = |map: &Map<String, Value>| map.values().all(Value::is_string);
        value.as_object().is_some_and(is_text)
    };
    let fields: [(&str, Check); 7] = [
        ("uid", Value::is_string),
        ("allowed", Value::is_boolean),
        ("patch", Value::is_string),
        ("patchType", Value::is_string),
        ("status", Value::is_object),
        ("warnings", texts),
        ("auditAnnotations", text_map),
    ];
    match fields.into_iter().find(|(field, is)| wrong(field, *is)) {
        Some((field, _)) => Err(format!("json: response.{field} has the wrong type")),
        None => Ok(()),
    }
}

fn check_identity(review: &Value, response: &Value, uid: &str) -> Result<(), String> {
    let found = text(response, "uid");
    if found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let (version, kind) = (text(review, "apiVersion"), text(review, "kind"));
    let expect = ReviewVersion::V1.api_version(GROUP);
    if version != expect || kind != "AdmissionReview" {
        return Err(format!(
            "expected webhook response of {expect}, Kind=AdmissionReview, got {version}, Kind={kind}"
        ));
    }
    Ok(())
}

fn check_patch_fields(response: &Value, mutating: bool) -> Result<(), String> {
    let patch = !text(response, "patch").is_empty();
    let problem = match (mutating, patch, opt_text(response, "patchType")) {
        (true, true, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (true, false, Some(_)) => "webhook returned response.patchType but not response.patch",
        (false, true, _) => "validating webhook may not return response.patch",
        (false, false, _) if has(response, "patchType") => {
            "validating webhook may not return response.patchType"
        }
        _ => return Ok(()),
    };
    Err(problem.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn decode(version: ReviewVersion, mutating: bool, review: &Value) -> Result<Response, String> {
        decode_response(version, "u", mutating, review.to_string().as_bytes())
            .map_err(|e| e.to_string())
    }

    fn v1(response: Value) -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    #[test]
    fn response_is_decoded() {
        let patch = STANDARD.encode("[]");
        let review = v1(
            json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch",
            "warnings": ["w", ""], "auditAnnotations": {"a": "b"}}),
        );
        let response = decode(ReviewVersion::V1, true, &review).unwrap();
        assert!(response.allowed);
        assert_eq!(response.patch, b"[]");
        assert_eq!(response.patch_type, "JSONPatch");
        assert_eq!(response.warnings, ["w"]);
    }

    #[test]
    fn v1_response_has_to_follow_the_rules() {
        for (mutating, review, expect) in [
            (true, json!({}), "webhook response was absent"),
            (
                true,
                v1(json!({"uid": "x", "allowed": true})),
                "expected response.uid=\"u\", got \"x\"",
            ),
            (
                true,
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"uid": "u"}}),
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1beta1, Kind=AdmissionReview",
            ),
            (
                true,
                v1(json!({"uid": "u", "patch": "W10="})),
                "webhook returned response.patch but not response.patchType",
            ),
            (
                true,
                v1(json!({"uid": "u", "patchType": "JSONPatch"})),
                "webhook returned response.patchType but not response.patch",
            ),
            (
                false,
                v1(json!({"uid": "u", "patch": "W10="})),
                "validating webhook may not return response.patch",
            ),
            (
                false,
                v1(json!({"uid": "u", "patchType": "JSONPatch"})),
                "validating webhook may not return response.patchType",
            ),
        ] {
            let error = decode(ReviewVersion::V1, mutating, &review).unwrap_err();
            assert_eq!(
                error,
                format!("received invalid webhook response: {expect}"),
                "{review}"
            );
        }
    }

    #[test]
    fn v1beta1_response_has_no_identity_and_any_patch_is_a_json_patch() {
        let review = json!({"response": {"allowed": true, "patch": "W10="}});
        let response = decode(ReviewVersion::V1beta1, true, &review).unwrap();
        assert_eq!(response.patch_type, "JSONPatch");
        let validating = decode(ReviewVersion::V1beta1, false, &review).unwrap();
        assert!(validating.patch.is_empty(), "ignored, as upstream");
    }

    #[test]
    fn absent_verdict_is_a_denial() {
        let response = decode(ReviewVersion::V1, false, &v1(json!({"uid": "u"}))).unwrap();
        assert!(!response.allowed);
    }

    #[test]
    fn body_that_is_no_review_is_a_failed_call() {
        for body in [
            "",
            "[]",
            "null",
            "{",
            "{\"kind\": \"Pod\"}",
            "{\"response\": {\"allowed\": \"yes\"}}",
            "{\"response\": []}",
        ] {
            let found = decode_response(ReviewVersion::V1, "u", true, body.as_bytes());
            let error = found.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("webhook"), "{body}: {error}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(decode_response(ReviewVersion::V1, "u", true, deep.as_bytes()).is_err());
    }
}
