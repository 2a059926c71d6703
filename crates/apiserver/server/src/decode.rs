//! Decodes request bodies into objects.

use crate::audit_record::audit_request_object;
use crate::context::Context;
use crate::negotiate::{Format, PROTOBUF};
use crate::query::unsupported_value;
use api_codec::{DecodeError, Problem, Strictness, cbor, envelope, json, proto, yaml};
use api_kinds::ObjectSchema;
use api_meta::ApiError;
use api_schema::Message;
use apiserver_convert::codec;
use serde_json::Value;

/// Characters of a body without a kind that the error shows.
const SHOWN: usize = 1000;

/// The type that a body must have.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// `group/version`
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Schema.
    pub schema: &'a ObjectSchema,
}

/// Parses `fieldValidation`; `kind` names the options in the error.
pub fn parse_strictness(context: &Context, kind: &str) -> Result<Strictness, ApiError> {
    match context.query.text("fieldValidation") {
        "" | "Warn" => Ok(Strictness::Warn),
        "Strict" => Ok(Strictness::Strict),
        "Ignore" => Ok(Strictness::Ignore),
        other => Err(unsupported_value(
            kind,
            "fieldValidation",
            other,
            &["Ignore", "Strict", "Warn"],
        )),
    }
}

/// Decodes a body of the expected type; adds warnings about unknown and duplicate fields.
pub fn decode_object(
    context: &Context,
    expected: Expected<'_>,
    body: &[u8],
    strictness: Strictness,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let format = context
        .formats
        .body_format(context.header("content-type"))?;
    let (object, problems) = match format {
        Format::Json => codec::decode_json(expected.schema, body, strictness)
            .map_err(|e| decode_error(expected, &e))?,
        Format::Yaml => codec::decode_yaml(expected.schema, body, strictness)
            .map_err(|e| decode_error(expected, &e))?,
        Format::Cbor => codec::decode_cbor(expected.schema, body, strictness)
            .map_err(|e| decode_error(expected, &e))?,
        // No strict validation, as upstream: protobuf has no unknown names.
        Format::Protobuf => (decode_protobuf(expected, body)?, Vec::new()),
    };
    // After decoding and before the strictness check: a wrong type would report all its fields as
    // unknown.
    let object = with_expected_type(expected, object)?;
    audit_request_object(context, expected.schema, &object);
    apply_strictness(expected, strictness, &problems, warnings)?;
    Ok(object)
}

/// Decodes an options object. Clients send it in the version of the group they act on, so every
/// version is accepted.
pub fn decode_options(
    context: &Context,
    kind: &str,
    message: &'static Message,
    body: &[u8],
) -> Result<Value, ApiError> {
    let format = context
        .formats
        .body_format(context.header("content-type"))?;
    let version = stated_version(format, body)
        .filter(|version| !version.is_empty())
        .unwrap_or_else(|| "v1".to_owned());
    let expected = Expected {
        api_version: &version,
        kind,
        schema: &message.into(),
    };
    decode_object(context, expected, body, Strictness::Ignore, &mut Vec::new())
}

/// Returns the apiVersion in a body; None if the body can't be decoded.
fn stated_version(format: Format, body: &[u8]) -> Option<String> {
    let tree = match format {
        Format::Json => json::parse(body).ok()?,
        Format::Yaml => yaml::parse(body).ok()?.0,
        Format::Cbor => cbor::parse(body).ok()?,
        Format::Protobuf => return Some(envelope::unwrap(body).ok()?.api_version.to_owned()),
    };
    Some(tree.get("apiVersion")?.as_str()?.to_owned())
}

fn decode_protobuf(expected: Expected<'_>, body: &[u8]) -> Result<Value, ApiError> {
    let frame = envelope::unwrap(body).map_err(|e| decode_error(expected, &e))?;
    // The protobuf envelope names the type, which must be checked before the bytes are decoded as
    // that type.
    check_type(expected, frame.api_version, frame.kind)?;
    if !frame.content_encoding.is_empty() || !matches!(frame.content_type, "" | PROTOBUF) {
        return Err(ApiError::bad_request(
            "the body's content type or encoding is not supported",
        ));
    }
    let Some(message) = expected.schema.message() else {
        let text = "objects of this kind have no protobuf encoding".to_owned();
        return Err(decode_error(expected, &DecodeError::Type(text)));
    };
    proto::decode(message, frame.raw).map_err(|e| decode_error(expected, &e))
}

fn with_expected_type(expected: Expected<'_>, mut object: Value) -> Result<Value, ApiError> {
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    // Also for JSON: without this check, a Deployment posted as a Pod would lose most of its
    // fields.
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if expected.schema.message().is_none() {
        // As upstream, a custom resource states its kind, and validation rejects another one.
        if kind.is_empty() {
            let start: String = object.to_string().chars().take(SHOWN).collect();
            return Err(ApiError::bad_request(format!(
                "Object 'Kind' is missing in '{start}'"
            )));
        }
        check_type(expected, api_version, "")?;
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), expected.api_version.into());
        }
        return Ok(object);
    }
    check_type(expected, api_version, kind)?;
    // A body without a type has the expected one; later stages rely on both fields.
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), expected.api_version.into());
        map.insert("kind".into(), expected.kind.into());
    }
    Ok(object)
}

/// Checks kind and apiVersion. A body without them has the expected type.
fn check_type(expected: Expected<'_>, api_version: &str, kind: &str) -> Result<(), ApiError> {
    let Expected {
        api_version: version,
        kind: wanted,
        ..
    } = expected;
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

fn decode_error(expected: Expected<'_>, error: &DecodeError) -> ApiError {
    let version = expected.api_version.rsplit('/').next().unwrap_or_default();
    let kind = expected.kind;
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {error}"
    ))
}

/// Rejects or warns about unknown and duplicate fields.
fn apply_strictness(
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
    Err(ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
    )))
}

/// Formats `strict decoding error: ...` with all problems.
pub fn strict_text(problems: &[Problem]) -> String {
    // Upstream finds duplicate keys of YAML in its converter, with a text of their own, before all
    // other problems.
    let (yaml, other): (Vec<_>, Vec<_>) = problems
        .iter()
        .partition(|p| matches!(p, Problem::YamlDuplicate { .. }));
    let mut parts = Vec::new();
    if !yaml.is_empty() {
        let lines: Vec<String> = yaml.iter().map(|p| format!("  {p}")).collect();
        parts.push(format!("yaml: unmarshal errors:\n{}", lines.join("\n")));
    }
    parts.extend(other.iter().map(ToString::to_string));
    format!("strict decoding error: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    const OPTIONS: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.DeleteOptions";

    fn read(content_type: &str, body: &[u8]) -> Result<Value, ApiError> {
        let request = http::Request::delete("/api/v1/namespaces/d/pods/p")
            .header("content-type", content_type);
        let mut context = Context::new(request.body(()).unwrap().into_parts().0).unwrap();
        context.formats.cbor = true;
        decode_options(
            &context,
            "DeleteOptions",
            api_schema::schema().message(OPTIONS).unwrap(),
            body,
        )
    }

    #[test]
    fn delete_options_are_read_in_the_version_of_any_group() {
        let message = api_schema::schema().message(OPTIONS).unwrap();
        let tree = json!({"gracePeriodSeconds": 3, "propagationPolicy": "Orphan"});
        for version in [
            "v1",
            "meta.k8s.io/v1",
            "apps/v1",
            "policy/v1",
            "flowcontrol.apiserver.k8s.io/v1",
            "",
        ] {
            let mut whole = tree.clone();
            (whole["apiVersion"], whole["kind"]) = (version.into(), "DeleteOptions".into());
            let proto = envelope::wrap(version, "DeleteOptions", &proto::encode(message, &tree));
            let yaml = yaml::encode(&whole);
            for (content_type, body) in [
                ("application/json", whole.to_string().into_bytes()),
                ("application/yaml", yaml.into_bytes()),
                ("application/vnd.kubernetes.protobuf", proto),
                ("application/cbor", cbor::encode_value(&whole)),
            ] {
                let read = read(content_type, &body).unwrap();
                assert_eq!(read["gracePeriodSeconds"], 3, "{version} {content_type}");
                assert_eq!(
                    read["propagationPolicy"], "Orphan",
                    "{version} {content_type}"
                );
            }
        }
        assert!(read("application/json", br#"{"kind":"Pod","apiVersion":"v1"}"#).is_err());
        let pod = envelope::wrap("v1", "Pod", b"");
        assert!(read("application/vnd.kubernetes.protobuf", &pod).is_err());
    }
}
