//! PATCH with `application/apply-patch+yaml` or `application/apply-patch+cbor`: server-side apply.

use super::options;
use crate::audit_record::audit_patch;
use crate::authorize::authorize_verb;
use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::encode::encode_value;
use crate::negotiate::{Format, media_type};
use crate::respond;
use crate::server::Server;
use api_codec::{Strictness, cbor, yaml};
use api_kinds::{ObjectSchema, Resource};
use api_meta::{ApiError, Cause, Meta, Reason};
use apiserver_convert::codec;
use apiserver_fields::{ApplyError, Versions, Writer};
use apiserver_registry::{Mode, ObjectChange, Update, Write, build_conflict_error};
use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use serde_json::Value;
use std::sync::Arc;

/// Content-Type of server-side apply.
pub const YAML: &str = "application/apply-patch+yaml";
/// Content-Type of server-side apply in CBOR.
pub const CBOR: &str = "application/apply-patch+cbor";

/// Returns whether a PATCH is an apply.
pub fn is_apply(context: &Context) -> bool {
    intent_format(context).is_some()
}

/// Returns the format of the applied object; `None` for other patches.
fn intent_format(context: &Context) -> Option<Format> {
    match media_type(context.header("content-type")).as_str() {
        YAML => Some(Format::Yaml),
        CBOR if context.formats.cbor => Some(Format::Cbor),
        _ => None,
    }
}

/// Applies an object. If it does not exist, creates it; the user then needs the permission to
/// create in addition to patch.
pub async fn handle_apply(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let (mut write, force) = parse_apply(context, resource)?;
    let target = Target {
        api_version: &resource.api_version(),
        kind: &resource.kind,
        schema: &resource.schema,
    };
    let intent = read_intent(context, target, &write, &body)?;
    let (code, object) = match apply_to_existing(server, &mut write, resource, &intent, force).await
    {
        Err(error) if is_absent(&write, &error) && write.subresource.is_empty() => {
            check_creation(&write, &intent)?;
            // `patch` alone must not create objects.
            authorize_verb(server, context, "create").await?;
            (
                201,
                apply_as_create(server, &mut write, &intent, force).await?,
            )
        }
        changed => (200, changed?),
    };
    Ok(respond::with_warnings(
        respond::object_response(context, code, Some(resource), &resource.schema, &object)?,
        &write.warnings,
    ))
}

/// Applies a Scale: the manager owns the replicas of the object behind it.
pub async fn handle_apply_scale(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    schema: &ObjectSchema,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let (mut write, force) = parse_apply(context, resource)?;
    let target = Target {
        api_version: "autoscaling/v1",
        kind: "Scale",
        schema,
    };
    let intent = read_intent(context, target, &write, &body)?;
    let writer = write.clone();
    let change = |scale: &Value| {
        // A Scale has one version.
        let applied = writer.as_writer(Versions::NONE, |writer| {
            let writer = Writer {
                api_version: target.api_version,
                schema,
                ..*writer
            };
            apiserver_fields::apply_intent(&writer, Some(scale), &intent, force)
        });
        Ok(applied.map_err(scale_error)?.object)
    };
    let scale = server
        .registry
        .update_scale(&mut write, &change, false)
        .await?;
    Ok(respond::with_warnings(
        respond::object_response(context, 200, None, schema, &scale)?,
        &write.warnings,
    ))
}

fn scale_error(error: ApplyError) -> ApiError {
    match error {
        ApplyError::Conflicts(conflicts) => build_conflict_error(&conflicts),
        ApplyError::Unconverted(_) => ApiError::internal("a Scale has one version"),
    }
}

/// The type that the URL takes.
#[derive(Clone, Copy)]
struct Target<'a> {
    api_version: &'a str,
    kind: &'a str,
    schema: &'a ObjectSchema,
}

/// Parses the options of an apply; also returns `force`.
fn parse_apply(context: &Context, resource: &Arc<Resource>) -> Result<(Write, bool), ApiError> {
    let mut write = options::parse_write(context, resource, "PatchOptions")?;
    // Ownership by the name of a program would make two users of it share fields.
    if context.query.text("fieldManager").is_empty() {
        let message = "Required value: is required for apply patch".to_owned();
        let cause = Cause {
            reason: "FieldValueRequired".into(),
            message,
            field: "fieldManager".into(),
        };
        return Err(ApiError::invalid(
            "meta.k8s.io",
            "PatchOptions",
            "",
            vec![cause],
        ));
    }
    // managedFields keeps applied and updated fields of one manager in separate entries.
    write.applies = true;
    Ok((write, context.query.flag("force")))
}

fn read_intent(
    context: &Context,
    target: Target<'_>,
    write: &Write,
    body: &[u8],
) -> Result<Value, ApiError> {
    let strictness = decode::parse_strictness(context, "PatchOptions")?;
    let malformed =
        |e: api_codec::DecodeError| ApiError::bad_request(format!("error decoding YAML: {e}"));
    let (tree, duplicates) = match intent_format(context) {
        // Duplicate keys are an error of CBOR itself.
        Some(Format::Cbor) => (cbor::parse(body).map_err(malformed)?, Vec::new()),
        _ => yaml::parse(body).map_err(malformed)?,
    };
    audit_patch(context, || Some(encode_value(&tree)));
    let text = |name: &str| tree.get(name).and_then(Value::as_str).unwrap_or_default();
    // Ownership is recorded per version, so that the type can not be implied.
    if text("kind") != target.kind || text("apiVersion") != target.api_version {
        let (kind, version) = (text("kind"), text("apiVersion"));
        return Err(ApiError::bad_request(format!(
            "the type of the object ({version}, {kind}) does not match that of the URL"
        )));
    }
    if !tree.name().is_empty() && tree.name() != write.name {
        let text = format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            tree.name(),
            write.name
        );
        return Err(ApiError::bad_request(text));
    }
    if tree
        .metadata()
        .is_some_and(|m| m.get("managedFields").is_some_and(|f| !f.is_null()))
    {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    if strictness == Strictness::Strict && !duplicates.is_empty() {
        return Err(ApiError::bad_request(decode::strict_text(&duplicates)));
    }
    // The intent stays as sent: the canonical form would add fields that the manager does not
    // apply.
    let (_, problems) = codec::check_tree(target.schema, tree.clone())
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
    if let Some(problem) = problems.first() {
        let problem = problem.to_string();
        let field = problem.split('"').nth(1).unwrap_or_default();
        let why = format!(".{field}: field not declared in schema");
        return Err(untyped_intent(target, &tree, &why));
    }
    let intent = without_nulls(tree);
    // An ambiguous element has no owner.
    apiserver_fields::check_elements_of(target.schema, &intent)
        .map_err(|why| untyped_intent(target, &intent, &why))?;
    Ok(intent)
}

fn untyped_intent(target: Target<'_>, intent: &Value, why: &str) -> ApiError {
    // Upstream returns the error of its typed schema unconverted, hence the text and the 500.
    let name = format!("{}/{}", intent.namespace(), intent.name());
    let (version, kind) = (target.api_version, target.kind);
    let text =
        format!("failed to create typed patch object ({name}; {version}, Kind={kind}): {why}");
    ApiError::new(Reason::Unknown(500), text)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(k, v)| (k, without_nulls(v)))
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

async fn apply_to_existing(
    server: &Server,
    write: &mut Write,
    resource: &Arc<Resource>,
    intent: &Value,
    force: bool,
) -> Result<Value, ApiError> {
    let change = IntentMerge {
        server,
        write: write.clone(),
        resource,
        intent,
        force,
    };
    server
        .registry
        .update(
            write,
            &Update {
                change: &change,
                replaces: false,
                mode: Mode::Full,
            },
        )
        .await
}

/// Merges an intent inside of an update: ownership computed from an older object would drop the
/// fields of a concurrent apply.
struct IntentMerge<'a> {
    server: &'a Server,
    write: Write,
    resource: &'a Resource,
    intent: &'a Value,
    force: bool,
}

#[async_trait]
impl ObjectChange for IntentMerge<'_> {
    async fn apply(&self, old: &Value) -> Result<Value, ApiError> {
        let registry = &self.server.registry;
        let merged = registry.merge_intent(&self.write, Some(old), self.intent, self.force);
        let (object, _) = codec::check_tree(&self.resource.schema, merged.await?)
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        Ok(object)
    }
}

/// Returns whether an apply failed because the object does not exist. A webhook may deny an update
/// with 404, too; its message says so.
fn is_absent(write: &Write, error: &ApiError) -> bool {
    error.reason == Reason::NotFound && error.message == write.not_found().message
}

/// Checks that the intent names an object that may be created.
fn check_creation(write: &Write, intent: &Value) -> Result<(), ApiError> {
    // The client means a certain object, which is deleted: a new one would be another.
    if !intent.uid().is_empty() {
        return Err(write.conflict_error(&format!(
            "uid mismatch: the provided object specified uid {}, and no existing object was found",
            intent.uid()
        )));
    }
    // As upstream: `generateName` makes no name, and the URL's is not implied.
    if intent.name().is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            write.name
        )));
    }
    Ok(())
}

async fn apply_as_create(
    server: &Server,
    write: &mut Write,
    intent: &Value,
    force: bool,
) -> Result<Value, ApiError> {
    let registry = &server.registry;
    let merged = registry.merge_intent(write, None, intent, force).await?;
    // Converts to canonical form; unknown fields were rejected when the intent was read.
    let (object, _) = codec::check_tree(&write.resource.schema, merged)
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
    write.name.clear();
    registry.create(write, object).await
}
