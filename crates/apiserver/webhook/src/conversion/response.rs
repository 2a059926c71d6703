//! The response of a ConversionReview: its checks, and those of the converted objects.

use super::review::GROUP;
use api_meta::names::{label_value, qualified_name};
use api_meta::tree::{get, has, text};
use api_meta::{ApiError, Meta, Reason};
use apiserver_webhook_client::ReviewVersion;
use serde_json::{Map, Value};

/// Maximum size of all annotations.
// Upstream's `TotalAnnotationSizeLimitB`.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Characters of a webhook's message that reach the client.
const MAX_MESSAGE: usize = 2048;

/// A conversion that failed, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("conversion webhook for {0}")]
pub struct ConversionError(String);

impl ConversionError {
    /// Returns the error for the client, as upstream's a 500 without a reason.
    pub fn into_api_error(self) -> ApiError {
        ApiError::new(Reason::Unknown(500), self.to_string())
    }

    pub(super) fn call(kind: &str, why: &str) -> Self {
        Self(format!("{kind} failed: {why}"))
    }

    pub(super) fn count(kind: &str, found: usize, expected: usize) -> Self {
        Self(format!(
            "{kind} returned {found} objects, expected {expected}"
        ))
    }

    pub(super) fn object(kind: &str, index: usize, why: &str) -> Self {
        Self(format!(
            "{kind} returned invalid converted object at index {index}: {why}"
        ))
    }
}

/// Returns the converted objects of a response.
pub fn parse_response(
    version: ReviewVersion,
    uid: &str,
    body: &[u8],
) -> Result<Vec<Value>, String> {
    let mut review: Value =
        serde_json::from_slice(body).map_err(|e| format!("couldn't decode the response: {e}"))?;
    let type_of = |review: &Value| {
        format!(
            "{}, Kind={}",
            text(review, "apiVersion"),
            text(review, "kind")
        )
    };
    let (expected, found) = (
        format!("{}, Kind=ConversionReview", version.api_version(GROUP)),
        type_of(&review),
    );
    // Upstream doesn't check type and UID of v1beta1.
    let is_strict = version == ReviewVersion::V1;
    if is_strict && found != expected {
        return Err(format!(
            "expected webhook response of {expected}, got {found}"
        ));
    }
    if !has(&review, "response") {
        return Err("no response provided".into());
    }
    let response = get(&review, "response");
    let found = text(response, "uid");
    if is_strict && found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let result = get(response, "result");
    let status = text(result, "status");
    if status != "Success" {
        let message: String = text(result, "message").chars().take(MAX_MESSAGE).collect();
        return Err(if message.is_empty() {
            format!("response.result.status was '{status}', not 'Success'")
        } else {
            message
        });
    }
    match review
        .pointer_mut("/response/convertedObjects")
        .map(Value::take)
    {
        Some(Value::Array(objects)) => Ok(objects),
        // The comparison of the numbers then reports the error.
        _ => Ok(Vec::new()),
    }
}

/// Returns the converted object with the metadata of the original, except for labels and
/// annotations.
pub fn check_converted(
    original: &Value,
    mut converted: Value,
    api_version: &str,
) -> Result<Value, String> {
    if !converted.is_object() {
        return Err("it is no object".into());
    }
    let found = text(&converted, "apiVersion");
    if found != api_version {
        return Err(format!(
            "invalid groupVersion (expected {api_version}, received {found})"
        ));
    }
    let (expected, found) = (text(original, "kind"), text(&converted, "kind"));
    if expected != found {
        return Err(format!(
            "invalid kind (expected {expected}, received {found})"
        ));
    }
    for (what, expected, found) in [
        ("name", original.name(), converted.name()),
        ("namespace", original.namespace(), converted.namespace()),
        ("UID", original.uid(), converted.uid()),
    ] {
        if expected != found {
            return Err(format!("must have the same {what}: {expected} != {found}"));
        }
    }
    let metadata = restore_metadata(original, &converted)?;
    if let Some(fields) = converted.as_object_mut() {
        fields.insert("metadata".into(), metadata.into());
    }
    Ok(converted)
}

fn restore_metadata(original: &Value, converted: &Value) -> Result<Map<String, Value>, String> {
    let returned = match converted.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None => return Err("missing metadata in converted object".into()),
        Some(_) => return Err("invalid metadata in converted object".into()),
    };
    let before = get(original, "metadata").as_object();
    // The metadata of the original: a webhook must not change owners, finalizers or managed fields.
    let mut metadata = before.cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match returned.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
            }
            Some(Value::Object(texts)) => {
                let is_changed = metadata.get(field).and_then(Value::as_object) != Some(texts);
                check_texts(field, texts, is_changed)?;
                metadata.insert(field.into(), texts.clone().into());
            }
            Some(_) => return Err(format!("invalid metadata.{field} in converted object")),
        }
    }
    Ok(metadata)
}

/// Checks labels or annotations. What an older server stored stays valid.
fn check_texts(field: &str, texts: &Map<String, Value>, is_changed: bool) -> Result<(), String> {
    let mut size = 0;
    for (key, value) in texts {
        let Some(value) = value.as_str() else {
            return Err(format!(
                "metadata.{field}[{key}] must be a string in converted object"
            ));
        };
        size += key.len() + value.len();
        let problems = match field {
            "labels" => [qualified_name(key), label_value(value)].concat(),
            // Upstream's `ValidateAnnotations` checks the keys in lower case.
            _ => qualified_name(&key.to_ascii_lowercase()),
        };
        if let (true, Some(problem)) = (is_changed, problems.first()) {
            return Err(format!(
                "metadata.{field}: Invalid value: {key:?}: {problem}"
            ));
        }
    }
    if is_changed && field == "annotations" && size > MAX_ANNOTATIONS {
        return Err(format!(
            "metadata.annotations: Too long: may not be more than {MAX_ANNOTATIONS} bytes"
        ));
    }
    Ok(())
}
