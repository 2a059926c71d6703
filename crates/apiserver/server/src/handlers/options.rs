//! Options of reads and writes in the query.

use crate::context::Context;
use api_codec::list::ListMeta;
use api_kinds::Resource;
use api_meta::fields::FieldSelector;
use api_meta::{ApiError, Selector};
use apiserver_cache::Selection;
use apiserver_registry::{ListQuery, ListResult, Write};
use serde_json::{Value, json};
use std::sync::Arc;

/// Parses scope and selectors of a list, watch or deletecollection.
pub fn parse_selection(context: &Context, resource: &Resource) -> Result<Selection, ApiError> {
    // A broken selector must fail: ignored, it would select all objects, and a deletecollection
    // would delete them.
    let labels = Selector::parse(context.query.text("labelSelector"))
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
    let text = context.query.text("fieldSelector");
    let fields = FieldSelector::parse(text).map_err(|e| ApiError::bad_request(e.to_string()))?;
    let mut fields = known_fields(resource, fields)?;
    let mut converted_fields = FieldSelector::default();
    if resource.schema.converter().is_some() {
        let (metadata, others) = fields
            .terms
            .into_iter()
            .partition(|term| term.field.starts_with("metadata."));
        (fields.terms, converted_fields.terms) = (metadata, others);
    }
    // For the resource `namespaces` the path's namespace is the object itself.
    let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
    let namespace = Some(context.info.namespace.clone()).filter(|n| !n.is_empty() && !is_namespace);
    // A list has a name only if its field selector requires one by `metadata.name`.
    let name = Some(context.info.name.clone()).filter(|n| !n.is_empty());
    Ok(Selection {
        namespace,
        name,
        labels,
        fields,
        converted_fields,
    })
}

/// Rejects fields that the kind can't be selected by, and translates field names of other versions.
fn known_fields(
    resource: &Resource,
    mut selector: FieldSelector,
) -> Result<FieldSelector, ApiError> {
    for term in &mut selector.terms {
        let field = term.field.as_str();
        if let Some(text) = api_kinds::unsupported_field(resource, field) {
            return Err(ApiError::bad_request(text));
        }
        if resource.group == "events.k8s.io" {
            term.field = event_field(field).to_owned();
        }
    }
    Ok(selector)
}

fn event_field(field: &str) -> &str {
    // Both groups share one cache, which selects by the field names of the core group.
    match field.strip_prefix("regarding.") {
        Some("kind") => "involvedObject.kind",
        Some("namespace") => "involvedObject.namespace",
        Some("name") => "involvedObject.name",
        Some("uid") => "involvedObject.uid",
        Some("apiVersion") => "involvedObject.apiVersion",
        Some("resourceVersion") => "involvedObject.resourceVersion",
        Some("fieldPath") => "involvedObject.fieldPath",
        _ if field == "reportingController" => "reportingComponent",
        _ => field,
    }
}

/// Parses the options of a list.
pub fn list_query(context: &Context, resource: &Resource) -> Result<ListQuery, ApiError> {
    let limit = context.query.number("limit")?.unwrap_or(0);
    // Only watches use it, but every list request is decoded into all options.
    context.query.number("timeoutSeconds")?;
    Ok(ListQuery {
        selection: parse_selection(context, resource)?,
        // A negative limit means none.
        limit: usize::try_from(limit).unwrap_or(0),
        continue_token: context.query.text("continue").to_owned(),
        resource_version: context.query.text("resourceVersion").to_owned(),
        version_match: context.query.text("resourceVersionMatch").to_owned(),
    })
}

/// Builds the metadata of a list.
pub fn list_meta(result: &ListResult) -> ListMeta {
    ListMeta {
        resource_version: result.revision.to_string(),
        continue_token: result.continue_token.clone(),
        remaining_item_count: result.remaining,
    }
}

/// Parses the options of a write; `options` names the options' kind (`CreateOptions`).
pub fn parse_write(
    context: &Context,
    resource: &Arc<Resource>,
    options: &str,
) -> Result<Write, ApiError> {
    let info = &context.info;
    let dry_run = context.query.dry_run(options)?;
    let manager = context.query.text("fieldManager");
    // Upstream's FieldManagerMaxLength: managedFields repeats the name in every object written.
    if manager.len() > 128 {
        let message = format!(
            "Too long: may not be more than 128 bytes, got {}",
            manager.len()
        );
        let cause = api_meta::Cause {
            reason: "FieldValueTooLong".into(),
            message,
            field: "fieldManager".into(),
        };
        return Err(ApiError::invalid("meta.k8s.io", options, "", vec![cause]));
    }
    let cluster = !resource.namespaced;
    Ok(Write {
        user: context.user.clone(),
        resource: resource.clone(),
        subresource: info.subresource.clone(),
        // The path of a namespace names itself as its namespace, but its key has none.
        namespace: if cluster {
            String::new()
        } else {
            info.namespace.clone()
        },
        name: info.name.clone(),
        dry_run,
        manager: context.field_manager(),
        applies: false,
        options: options_object(context, options),
        warnings: Vec::new(),
    })
}

fn options_object(context: &Context, kind: &str) -> Value {
    let mut out = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    for name in ["fieldManager", "fieldValidation"] {
        if let Some(text) = context.query.first(name) {
            out[name] = text.into();
        }
    }
    // The options kinds have a list here, although its only value is `All`.
    if let Some(text) = context.query.first("dryRun") {
        out["dryRun"] = json!([text]);
    }
    out
}
