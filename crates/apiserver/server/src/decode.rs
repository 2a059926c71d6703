//! Request bodies as objects.

use crate::context::Context;
use crate::negotiate::{self, Format};
use crate::query::unsupported;
use api_codec::{DecodeError, Problem, Strictness, envelope, json, proto, yaml};
use api_meta::ApiError;
use api_schema::Message;
use serde_json::Value;

/// The type that a body has to have.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// `group/version`
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Schema.
    pub message: &'static Message,
}

/// `fieldValidation`; `kind` names the options in the error.
pub fn strictness(context: &Context, kind: &str) -> Result<Strictness, ApiError> {
    match context.query.text("fieldValidation") {
        "" | "Warn" => Ok(Strictness::Warn),
        "Strict" => Ok(Strictness::Strict),
        "Ignore" => Ok(Strictness::Ignore),
        other => Err(unsupported(kind, "fieldValidation", other, &["Ignore", "Strict", "Warn"])),
    }
}

/// Reads a body of the expected type; warnings are added for what was left out.
pub fn object(
    context: &Context,
    expected: Expected<'_>,
    body: &[u8],
    strictness: Strictness,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let format = negotiate::body_format(context.header("content-type"))?;
    let (object, problems) = match format {
        Format::Json => json::decode(expected.message, body, strictness).map_err(|e| unreadable(expected, &e))?,
        Format::Yaml => yaml::decode(expected.message, body, strictness).map_err(|e| unreadable(expected, &e))?,
        Format::Protobuf => (protobuf(expected, body)?, Vec::new()),
    };
    let object = typed(expected, object)?;
    judge(expected, strictness, &problems, warnings)?;
    Ok(object)
}

fn protobuf(expected: Expected<'_>, body: &[u8]) -> Result<Value, ApiError> {
    let frame = envelope::unwrap(body).map_err(|e| unreadable(expected, &e))?;
    // The frame names the type before the bytes are read as one.
    check_type(expected, frame.api_version, frame.kind)?;
    if !frame.content_encoding.is_empty() || !matches!(frame.content_type, "" | negotiate::PROTOBUF) {
        return Err(ApiError::bad_request("the body's content type or encoding is not supported"));
    }
    proto::decode(expected.message, frame.raw).map_err(|e| unreadable(expected, &e))
}

fn typed(expected: Expected<'_>, mut object: Value) -> Result<Value, ApiError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    check_type(expected, text("apiVersion"), text("kind"))?;
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), expected.api_version.into());
        map.insert("kind".into(), expected.kind.into());
    }
    Ok(object)
}

/// A body without a type has the expected one.
fn check_type(expected: Expected<'_>, api_version: &str, kind: &str) -> Result<(), ApiError> {
    let Expected { api_version: version, kind: wanted, .. } = expected;
    if !kind.is_empty() && kind != wanted {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {api_version:?} cannot be handled as a {wanted}: converting ({api_version}.{kind}) to ({version}.{wanted}): unknown conversion"
        )));
    }
    if !api_version.is_empty() && api_version != version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({version})"
        )));
    }
    Ok(())
}

fn unreadable(expected: Expected<'_>, error: &DecodeError) -> ApiError {
    let version = expected.api_version.rsplit('/').next().unwrap_or_default();
    let kind = expected.kind;
    ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}"))
}

/// Refuses or warns about unknown and duplicate fields.
fn judge(
    expected: Expected<'_>,
    strictness: Strictness,
    problems: &[Problem],
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    if problems.is_empty() || strictness == Strictness::Ignore {
        return Ok(());
    }
    if strictness == Strictness::Warn {
        warnings.extend(problems.iter().map(ToString::to_string));
        return Ok(());
    }
    let version = expected.api_version.rsplit('/').next().unwrap_or_default();
    let kind = expected.kind;
    let why = strict_text(problems);
    Err(ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}")))
}

/// `strict decoding error: ...` with all problems.
pub fn strict_text(problems: &[Problem]) -> String {
    let (yaml, other): (Vec<_>, Vec<_>) = problems.iter().partition(|p| matches!(p, Problem::YamlDuplicate { .. }));
    let mut parts = Vec::new();
    if !yaml.is_empty() {
        let lines: Vec<String> = yaml.iter().map(|p| format!("  {p}")).collect();
        parts.push(format!("yaml: unmarshal errors:\n{}", lines.join("\n")));
    }
    parts.extend(other.iter().map(ToString::to_string));
    format!("strict decoding error: {}", parts.join(", "))
}
