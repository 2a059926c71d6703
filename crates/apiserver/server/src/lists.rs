//! Responses with lists of objects.

use crate::audit_record::{audit_response_object, records_response};
use crate::body::{Body, run_sized, stream_body};
use crate::compress;
use crate::context::Context;
use crate::encode::{encode_untyped, restyle_json};
use crate::list_body::{Encodings, ListBody, ListFormat, strips_type_meta};
use crate::negotiate::{Format, MediaType, Transform};
use crate::respond::raw_response;
use crate::transform;
use api_codec::list::{self, ListMeta};
use api_kinds::Resource;
use api_meta::ApiError;
use apiserver_cache::Entry;
use bytes::Bytes;
use http::Response;
use serde_json::Value;
use std::sync::Arc;

/// Builds a response from a list of cached objects. A long one is encoded while it is sent.
pub async fn list_response(
    context: &Context,
    resource: &Arc<Resource>,
    entries: Vec<Arc<Entry>>,
    meta: &ListMeta,
    encodings: Encodings,
) -> Result<Response<Body>, ApiError> {
    let media_type = context.list_media_type(resource)?;
    let stored_size = || entries.iter().map(|entry| entry.stored_size()).sum();
    if records_response(context) {
        let record = || audit_list(context, media_type, resource, &entries, meta);
        run_sized(&context.user, stored_size(), record).await?;
    }
    let mut response = raw_response(200, media_type.format.media_type(), Bytes::new());
    let Some(format) = ListFormat::from_media_type(media_type) else {
        let size = stored_size();
        let transform = || {
            let bytes = transform_list(context, media_type, resource, entries, meta)?;
            Ok(compress::compress_response(context, response, bytes))
        };
        return run_sized(&context.user, size, transform).await;
    };
    let mut body = ListBody::new(resource, format, entries, meta, encodings)?;
    // Short lists have a Content-Length.
    if body.fill_part(compress::THRESHOLD)? {
        let bytes = body.into_bytes()?;
        return Ok(compress::compress_response(context, response, bytes));
    }
    if compress::accepts_gzip(context) {
        compress::mark_compressed(response.headers_mut());
        body.compress();
    }
    let size = body.size();
    *response.body_mut() = stream_body(body, size);
    Ok(response)
}

/// Records a list for the audit, in JSON.
fn audit_list(
    context: &Context,
    media_type: MediaType,
    resource: &Arc<Resource>,
    entries: &[Arc<Entry>],
    meta: &ListMeta,
) -> Result<(), ApiError> {
    let json = MediaType {
        format: Format::Json,
        pretty: false,
        ..media_type
    };
    let bytes = transform_list(context, json, resource, entries.to_vec(), meta)?;
    audit_response_object(context, || bytes);
    Ok(())
}

/// Encodes a list in a representation that is not cached.
fn transform_list(
    context: &Context,
    media_type: MediaType,
    resource: &Arc<Resource>,
    entries: Vec<Arc<Entry>>,
    meta: &ListMeta,
) -> Result<Vec<u8>, ApiError> {
    // One tree at a time: it takes several times the memory of the bytes.
    let read = |entry: &Arc<Entry>| entry.tree_as(resource);
    match media_type.transform {
        // Not in parts: CBOR is behind a gate that is off by default.
        Transform::None if media_type.format == Format::Cbor => {
            let encode = |entry: &Arc<Entry>| entry.encode_cbor(resource);
            let items = entries.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
            let strips = strips_type_meta(resource);
            let (version, kind) = (resource.api_version(), &resource.list_kind);
            Ok(list::cbor(&version, kind, meta, &items, strips))
        }
        Transform::None => {
            let json = ListFormat::Json;
            let body = ListBody::new(resource, json, entries, meta, Encodings::Dropped)?;
            let mut bytes = body.into_bytes()?;
            // The newline follows the indentation.
            bytes.truncate(bytes.trim_ascii_end().len());
            Ok(restyle_json(media_type, bytes))
        }
        // One table for all items: clients align its columns over all rows.
        Transform::Table => {
            let include = context.query.text("includeObject");
            let trees = entries.iter().map(read);
            let table = transform::table_object(include, resource, trees, meta, true)?;
            Ok(encode_untyped(media_type, &table))
        }
        Transform::Partial | Transform::PartialList => {
            let trees = entries.iter().map(read);
            let items = trees
                .map(|tree| tree.map(|tree| transform::partial_metadata(&tree)))
                .collect::<Result<Vec<Value>, _>>()?;
            Ok(transform::encode_partial_list(media_type, &items, meta))
        }
    }
}
