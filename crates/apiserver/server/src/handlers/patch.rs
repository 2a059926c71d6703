//! PATCH: JSON patch, merge patch, strategic merge patch.

use super::apply;
use super::options;
use crate::audit_record::audit_patch;
use crate::body::Body;
use crate::context::Context;
use crate::decode::{self, strict_text};
use crate::encode::encode_value;
use crate::negotiate::{Formats, media_type, unsupported_media_type};
use crate::respond;
use crate::server::Server;
use api_codec::{DecodeError, Problem, Strictness, json};
use api_kinds::{ObjectSchema, Resource};
use api_meta::{ApiError, Cause, Meta, Reason};
use api_patch::{PatchError, json_patch, merge_patch, strategic_merge};
use apiserver_convert::codec;
use apiserver_registry::{Mode, Update};
use bytes::Bytes;
use http::Response;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// A parsed patch that can be applied repeatedly, because a conflict retries it.
pub struct Patch {
    kind: Kind,
    strictness: Strictness,
    /// Duplicate fields of a merge patch itself.
    duplicates: Vec<Problem>,
    /// Unknown and duplicate fields found by the last attempt.
    problems: Mutex<Vec<Problem>>,
}

enum Kind {
    Json(Bytes),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Parses a patch by its Content-Type.
    pub fn parse(context: &Context, resource: &Resource, body: Bytes) -> Result<Self, ApiError> {
        audit_patch(context, || Some(encode_value(&json::parse(&body).ok()?)));
        // The merge keys of a strategic merge patch are those of messages, which custom resources
        // do not have.
        let strategic = resource.schema.has_protobuf();
        let mut duplicates = Vec::new();
        let kind = match media_type(context.header("content-type")).as_str() {
            JSON_PATCH => Kind::Json(body),
            MERGE_PATCH => {
                let text = std::str::from_utf8(&body).unwrap_or_default();
                let found = api_structural::list_duplicate_fields(text);
                duplicates = found.into_iter().map(Problem::Duplicate).collect();
                Kind::Merge(parse_tree(&body)?)
            }
            STRATEGIC_PATCH if strategic => Kind::Strategic(parse_tree(&body)?),
            _ => return Err(unsupported_patch(strategic, context.formats)),
        };
        let strictness = decode::parse_strictness(context, "PatchOptions")?;
        Ok(Patch {
            kind,
            strictness,
            duplicates,
            problems: Mutex::default(),
        })
    }

    /// Returns the patched object.
    pub fn apply_to(&self, schema: &ObjectSchema, old: &Value) -> Result<Value, ApiError> {
        let patched = match &self.kind {
            Kind::Json(bytes) => {
                // Paths of a JSON patch refer to the encoded form, in which Go writes some empty
                // fields as null.
                json_patch(codec::explicit_tree(schema, old), bytes)
                    .map_err(|e| patch_error(old, &e))?
            }
            Kind::Merge(patch) => merge_patch(old.clone(), patch),
            Kind::Strategic(patch) => {
                let message = schema
                    .message()
                    .ok_or_else(|| unsupported_patch(false, Formats::default()))?;
                strategic_merge(message, old.clone(), patch).map_err(|e| strategic_error(&e))?
            }
        };
        let (mut patched, unknown) =
            codec::check_tree(schema, patched).map_err(|e| mismatch_error(old, &e))?;
        let mut problems = self.duplicates.clone();
        problems.extend(unknown);
        if self.strictness == Strictness::Strict && !problems.is_empty() {
            return Err(invalid_patch(old, strict_text(&problems)));
        }
        // A patch can not change the type of an object.
        for field in ["apiVersion", "kind"] {
            if let (Some(map), Some(value)) = (patched.as_object_mut(), old.get(field)) {
                map.insert(field.into(), value.clone());
            }
        }
        // Replaced by each attempt, so that a retry does not repeat the warnings.
        *self.problems.lock() = problems;
        Ok(patched)
    }

    /// Returns the warnings of the last attempt.
    pub fn list_warnings(&self) -> Vec<String> {
        if self.strictness == Strictness::Ignore {
            Vec::new()
        } else {
            self.problems
                .lock()
                .iter()
                .map(ToString::to_string)
                .collect()
        }
    }
}

/// Returns a 415 error with the media types of patches, in upstream's order.
fn unsupported_patch(strategic: bool, formats: Formats) -> ApiError {
    let mut accepted = vec![JSON_PATCH, MERGE_PATCH];
    accepted.extend(strategic.then_some(STRATEGIC_PATCH));
    accepted.push(apply::YAML);
    accepted.extend(formats.cbor.then_some(apply::CBOR));
    unsupported_media_type(&accepted)
}

/// Handles PATCH of an object, or of a subresource whose body is the object.
pub async fn handle_patch(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    context.object_media_type(resource)?;
    // Apply has other options (a required manager, `force`), so that it parses its own.
    if apply::is_apply(context) {
        return apply::handle_apply(server, context, resource, body).await;
    }
    // If `force` were ignored, the client would believe that it had taken over the fields.
    if context.query.first("force").is_some() {
        let message = "Forbidden: may not be specified for non-apply patch".to_owned();
        let cause = Cause {
            reason: "FieldValueForbidden".into(),
            message,
            field: "force".into(),
        };
        return Err(ApiError::invalid(
            "meta.k8s.io",
            "PatchOptions",
            "",
            vec![cause],
        ));
    }
    let mut write = options::parse_write(context, resource, "PatchOptions")?;
    let patch = Patch::parse(context, resource, body)?;
    // Run again on the newer object after a conflict: a patch without resourceVersion can not be
    // stale.
    let change = |old: &Value| patch.apply_to(&resource.schema, old);
    let patched = server
        .registry
        .update(
            &mut write,
            &Update {
                change: &change,
                replaces: false,
                mode: Mode::Full,
            },
        )
        .await?;
    // Only now: earlier attempts may have had other problems than the one that was stored.
    let mut warnings = patch.list_warnings();
    warnings.append(&mut write.warnings);
    Ok(respond::with_warnings(
        respond::object_response(context, 200, Some(resource), &resource.schema, &patched)?,
        &warnings,
    ))
}

fn parse_tree(body: &[u8]) -> Result<Value, ApiError> {
    let tree = json::parse(body)
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    // A merge patch that is no object would replace the whole object by it (RFC 7396).
    if tree.is_object() {
        Ok(tree)
    } else {
        Err(ApiError::bad_request("the patch is not a JSON object"))
    }
}

fn too_large(why: &str) -> ApiError {
    ApiError::new(
        Reason::RequestEntityTooLarge,
        format!("Request entity too large: {why}"),
    )
}

fn patch_error(old: &Value, error: &PatchError) -> ApiError {
    match error {
        PatchError::Malformed(why) => ApiError::bad_request(why.clone()),
        PatchError::TooLarge(why) => too_large(why),
        PatchError::Inapplicable(why) | PatchError::Directive(why) => ApiError::new(
            Reason::Invalid,
            format!("the server rejected our request due to an error in our request: {why}"),
        )
        .with_details(api_meta::Details {
            name: old.name().to_owned(),
            ..Default::default()
        }),
    }
}

fn strategic_error(error: &PatchError) -> ApiError {
    match error {
        PatchError::Malformed(why) => ApiError::bad_request(why.clone()),
        PatchError::TooLarge(why) => too_large(why),
        // Upstream returns most of these errors unconverted, which clients see as a 500.
        PatchError::Inapplicable(why) | PatchError::Directive(why) => {
            ApiError::new(Reason::Unknown(500), why.clone())
        }
    }
}

fn mismatch_error(old: &Value, error: &DecodeError) -> ApiError {
    match error {
        DecodeError::Type(why) => invalid_patch(old, why.clone()),
        other => ApiError::bad_request(other.to_string()),
    }
}

fn invalid_patch(old: &Value, why: String) -> ApiError {
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {why}"),
        field: "patch".into(),
    };
    ApiError::invalid("", "", old.name(), vec![cause])
}
