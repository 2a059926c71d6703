//! Responses: objects, lists and Status in the negotiated representation.

use crate::audit_record::{audit_response_object, audit_status, records_response};
use crate::body::{Body, full_body};
use crate::compress;
use crate::context::Context;
use crate::encode::encode_value;
pub use crate::encode::{encode_tree, encode_untyped};
use crate::negotiate::{Format, MediaType, Transform};
use crate::transform;
use api_codec::list::ListMeta;
use api_codec::{cbor, envelope};
use api_kinds::{ObjectSchema, Resource};
use api_meta::{ApiError, Status};
use api_schema::schema;
use apiserver_cache::Entry;
use apiserver_convert::codec;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::Value;
use std::sync::Arc;

const STATUS: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.Status";

/// Builds a response from an error.
pub fn error_response(media_type: MediaType, error: &ApiError) -> Response<Body> {
    let retry = error.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    let mut response = status_response(media_type, &error.status());
    // client-go waits for the time in this header, not for the one in the Status.
    if retry > 0 {
        response
            .headers_mut()
            .insert("retry-after", HeaderValue::from(retry));
    }
    with_warnings(response, &error.warnings)
}

/// Builds a response from a Status; uses its code.
pub fn status_response(media_type: MediaType, status: &Status) -> Response<Body> {
    let code = u16::try_from(status.code)
        .ok()
        .filter(|c| *c >= 100)
        .unwrap_or(200);
    let tree = serde_json::to_value(status).unwrap_or_default();
    // Errors are a Status even for clients that negotiated tables.
    let media_type = MediaType {
        transform: Transform::None,
        ..media_type
    };
    let bytes = match schema().message(STATUS) {
        Some(message) => encode_tree(media_type, &message.into(), &tree),
        None => tree.to_string().into_bytes(),
    };
    raw_response(code, media_type.format.media_type(), bytes)
}

/// Builds a response from a Status in the negotiated format, and records it for the audit.
pub fn audited_status_response(
    context: &Context,
    status: &Status,
) -> Result<Response<Body>, ApiError> {
    audit_status(context, status);
    Ok(status_response(context.media_type()?, status))
}

/// Builds a response from an object. `resource` provides table columns; without it only the object
/// itself can be sent.
pub fn object_response(
    context: &Context,
    code: u16,
    resource: Option<&Resource>,
    schema: &ObjectSchema,
    tree: &Value,
) -> Result<Response<Body>, ApiError> {
    let media_type = match resource {
        Some(resource) => context.object_media_type(resource)?,
        None => context.media_type_without_table()?,
    };
    let bytes = match (media_type.transform, resource) {
        (Transform::None, _) | (Transform::Table, None) => {
            audit_response_object(context, || codec::encode_json(schema, tree));
            encode_tree(media_type, schema, tree)
        }
        (Transform::Table, Some(resource)) => {
            let table = transform::table_object(
                context.query.text("includeObject"),
                resource,
                std::iter::once(Ok(tree)),
                &one_meta(tree),
                true,
            )?;
            audit_response_object(context, || encode_value(&table));
            encode_untyped(media_type, &table)
        }
        (Transform::Partial | Transform::PartialList, _) => {
            let partial = transform::partial_metadata(tree);
            audit_response_object(context, || encode_value(&partial));
            transform::encode_partial(media_type, &partial)
        }
    };
    Ok(compress::compress_response(
        context,
        raw_response(code, media_type.format.media_type(), Bytes::new()),
        bytes,
    ))
}

fn one_meta(tree: &Value) -> ListMeta {
    ListMeta {
        resource_version: api_meta::Meta::resource_version(tree).to_owned(),
        ..ListMeta::default()
    }
}

/// Builds a response from a cached object.
pub fn entry_response(
    context: &Context,
    resource: &Arc<Resource>,
    entry: &Entry,
) -> Result<Response<Body>, ApiError> {
    let media_type = context.resource_media_type(resource)?;
    // Only compact JSON, protobuf and CBOR are cached; other forms are encoded from the tree.
    if media_type.transform != Transform::None
        || media_type.pretty
        || media_type.format == Format::Yaml
    {
        return object_response(
            context,
            200,
            Some(resource),
            &resource.schema,
            &entry.tree_as(resource)?,
        );
    }
    if records_response(context) {
        let json = entry.encode_json(resource)?;
        audit_response_object(context, || json.to_vec());
    }
    let bytes = match media_type.format {
        Format::Protobuf => envelope::wrap(
            &resource.api_version(),
            &resource.kind,
            &entry.encode_proto(resource)?,
        ),
        Format::Cbor => cbor::mark(&entry.encode_cbor(resource)?),
        _ => with_newline(&entry.encode_json(resource)?),
    };
    Ok(compress::compress_response(
        context,
        raw_response(200, media_type.format.media_type(), Bytes::new()),
        bytes,
    ))
}

fn with_newline(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 1);
    out.extend_from_slice(bytes);
    out.push(b'\n');
    out
}

/// Builds a response with a body of that type.
pub fn raw_response(code: u16, content_type: &str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full_body(bytes));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response.headers_mut().insert(
        // As upstream: responses depend on the user.
        "cache-control",
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// Builds a plain-text response.
pub fn text_response(code: u16, text: impl Into<String>) -> Response<Body> {
    raw_response(code, "text/plain; charset=utf-8", text.into())
}

/// Builds a response with JSON that is no API object.
pub fn plain_json(code: u16, tree: &Value) -> Response<Body> {
    raw_response(
        code,
        "application/json",
        serde_json::to_vec(tree).unwrap_or_default(),
    )
}

/// Upstream's limit of the text of all warnings, in characters.
const MAX_WARNINGS: usize = 4096;
/// Upstream's limit of one warning, once all together are too long.
const MAX_WARNING: usize = 256;

/// Bounds the warnings, which webhooks may have written: clients limit the size of a header.
fn bound_warnings(warnings: &[String]) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let total: usize = warnings.iter().map(|warning| length(warning)).sum();
    if total <= MAX_WARNINGS {
        return warnings.to_vec();
    }
    let mut written = 0;
    let mut bounded = Vec::new();
    for warning in warnings {
        if written >= MAX_WARNINGS {
            break;
        }
        let text: String = warning.chars().take(MAX_WARNING).collect();
        written += length(&text);
        bounded.push(text);
    }
    bounded
}

/// Adds the warnings that a write collected.
pub fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in bound_warnings(warnings) {
        // A header can not hold a line break, and the text is a quoted string (RFC 7234).
        let quoted = warning
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', " ");
        // Code 299, a persistent warning, is the only one that client-go shows; `-` is the agent.
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append("warning", value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_is_quoted_and_kept_on_one_line() {
        let response = with_warnings(
            text_response(200, ""),
            &["a \"b\" \\ c\nd".to_owned(), "second".to_owned()],
        );
        let warnings: Vec<&[u8]> = response
            .headers()
            .get_all("warning")
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        let first: &[u8] = br#"299 - "a \"b\" \\ c d""#;
        assert_eq!(warnings, [first, br#"299 - "second""#]);
    }

    #[test]
    fn long_warnings_are_cut() {
        let short = ["a".repeat(4000), "b".to_owned()];
        assert_eq!(bound_warnings(&short), short);
        let long = vec!["x".repeat(300); 100];
        let bounded = bound_warnings(&long);
        assert_eq!(bounded.len(), 16);
        assert!(bounded.iter().all(|warning| warning.len() == 256));
    }

    #[test]
    fn error_sets_retry_after_and_forbids_caching() {
        let error = ApiError::too_many_requests("busy", 7);
        let response = error_response(MediaType::default(), &error);
        assert_eq!(response.status(), 429);
        let header = |name: &str| response.headers().get(name).map(HeaderValue::as_bytes);
        assert_eq!(header("retry-after"), Some(&b"7"[..]));
        assert_eq!(header("cache-control"), Some(&b"no-cache, private"[..]));
    }

    #[test]
    fn error_for_a_table_request_is_a_status() {
        let media_type = MediaType {
            transform: Transform::Table,
            ..MediaType::default()
        };
        let response = error_response(media_type, &ApiError::no_such_path());
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    }
}
