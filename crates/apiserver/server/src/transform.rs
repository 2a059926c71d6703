//! Tables and partial metadata.

use crate::encode::encode_untyped;
use crate::negotiate::{Format, MediaType};
use api_codec::list::ListMeta;
use api_codec::{list, proto};
use api_kinds::Resource;
use api_meta::ApiError;
use api_schema::schema;
use apiserver_printers::{define_columns, row_cells};
use serde_json::{Value, json};
use std::borrow::Borrow;

const META: &str = "meta.k8s.io/v1";
const PARTIAL: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";
const PARTIAL_LIST: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList";

/// Builds a Table of objects. Watches send the columns with their first event only.
pub fn table_object(
    include: &str,
    resource: &Resource,
    trees: impl Iterator<Item = Result<impl Borrow<Value>, ApiError>>,
    meta: &ListMeta,
    with_columns: bool,
) -> Result<Value, ApiError> {
    if !matches!(include, "" | "Metadata" | "Object" | "None") {
        return Err(ApiError::bad_request(format!(
            "unrecognized includeObject value: {include:?}"
        )));
    }
    // Once, so that the ages of all rows agree.
    let now = jiff::Timestamp::now();
    let rows = trees
        .map(|tree| Ok(table_row(resource, tree?.borrow(), include, now)))
        .collect::<Result<Vec<Value>, ApiError>>()?;
    let mut table = json!({"kind": "Table", "apiVersion": META, "metadata": list::meta_tree(meta), "rows": rows});
    table["columnDefinitions"] = if with_columns {
        define_columns(resource).into()
    } else {
        Value::Null
    };
    Ok(table)
}

fn table_row(resource: &Resource, tree: &Value, include: &str, now: jiff::Timestamp) -> Value {
    let mut out = json!({"cells": row_cells(resource, tree, now)});
    out["object"] = match include {
        "None" => Value::Null,
        "Object" => tree.clone(),
        // The default: kubectl needs names and namespaces of the rows, but not whole objects.
        _ => partial_metadata(tree),
    };
    out
}

/// Builds a PartialObjectMetadata from an object.
pub fn partial_metadata(tree: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": tree.get("metadata")})
}

/// Encodes a PartialObjectMetadata.
pub fn encode_partial(media_type: MediaType, tree: &Value) -> Vec<u8> {
    encode_transformed(media_type, PARTIAL, tree)
}

/// Encodes a PartialObjectMetadataList.
pub fn encode_partial_list(media_type: MediaType, items: &[Value], meta: &ListMeta) -> Vec<u8> {
    let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": list::meta_tree(meta), "items": items});
    encode_transformed(media_type, PARTIAL_LIST, &list)
}

fn encode_transformed(media_type: MediaType, message: &str, tree: &Value) -> Vec<u8> {
    match schema().message(message) {
        Some(message) if media_type.format == Format::Protobuf => {
            proto::encode_object(message, tree)
        }
        _ => encode_untyped(media_type, tree),
    }
}
