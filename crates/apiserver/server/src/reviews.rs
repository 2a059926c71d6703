//! Kinds that are not stored: reviews, bindings, component statuses.

use crate::body::{Body, Payload};
use crate::context::Context;
use crate::decode::{self, Expected};
use crate::handlers::options;
use crate::list_body::Encodings;
use crate::lists;
use crate::method::method_not_allowed;
use crate::respond;
use crate::server::Server;
use api_codec::list::ListMeta;
use api_kinds::Resource;
use api_meta::{ApiError, Meta, Status, meta::object_at};
use apiserver_authz::aggregate_errors;
use apiserver_registry::Write;
use apiserver_request::{Attributes, Authorizer, Decision, Failure, Operation, User};
use http::Response;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Responds to a request for such a kind.
pub async fn respond_review(
    server: &Server,
    context: &Context,
    row: &Arc<Resource>,
    body: &mut Payload,
) -> Result<Response<Body>, ApiError> {
    if row.plural == "componentstatuses" {
        return component_statuses(context, row).await;
    }
    // Reviews are not stored, so that there is nothing to read.
    if context.info.verb != "create" {
        return Err(method_not_allowed());
    }
    context.media_type_without_table()?;
    let mut write = options::parse_write(context, row, "CreateOptions")?;
    let strictness = decode::parse_strictness(context, "CreateOptions")?;
    let expected = Expected {
        api_version: &row.api_version(),
        kind: &row.kind,
        schema: &row.schema,
    };
    let mut object = decode::decode_object(
        context,
        expected,
        &body.read_all().await?,
        strictness,
        &mut write.warnings,
    )?;
    if row.kind == "Binding" {
        return bind_token_request(server, context, object).await;
    }
    fill_namespace(&mut object, &context.info.namespace)?;
    let mut object = admit_review(server, &mut write, object).await?;
    match &*row.kind {
        // A token that is not valid is a result, not an error: the review itself succeeds.
        "TokenReview" => object["status"] = token_review(server, context, &object).await?,
        "SelfSubjectReview" => object["status"] = json!({"userInfo": context.user.to_user_info()}),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let user = review_subject(&object["spec"]);
            object["status"] = review_access(server, context, &object["spec"], user).await
        }
        // The user is the caller, so that no permission to review others is needed.
        "SelfSubjectAccessReview" => {
            object["status"] =
                review_access(server, context, &object["spec"], context.user.clone()).await
        }
        "SelfSubjectRulesReview" => object["status"] = review_rules(server, context, &object)?,
        _ => return Err(ApiError::no_such_path()),
    }
    Ok(respond::with_warnings(
        respond::object_response(context, 201, None, &row.schema, &object)?,
        &write.warnings,
    ))
}

/// Sets the namespace of the path, which the body may repeat. A user may review access in this
/// namespace only because a role there allows it.
fn fill_namespace(review: &mut Value, namespace: &str) -> Result<(), ApiError> {
    let given = review.namespace();
    if !given.is_empty() && !namespace.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let metadata = object_at(review, "metadata");
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".into(), namespace.into());
    }
    Ok(())
}

/// Runs admission: a review is created like other objects, although it is not stored.
async fn admit_review(
    server: &Server,
    write: &mut Write,
    review: Value,
) -> Result<Value, ApiError> {
    let name = review.name().to_owned();
    let mut request = write.admission_request(Operation::Create, &name, review, None);
    server.registry.run_mutating(&mut request).await?;
    write.reject_invalid_review(&request.object)?;
    server.registry.run_validating(&request).await?;
    let (review, warnings) = (request.object, request.warnings);
    write.warnings.extend(warnings);
    Ok(review)
}

async fn bind_token_request(
    server: &Server,
    context: &Context,
    binding: Value,
) -> Result<Response<Body>, ApiError> {
    let pods = api_kinds::find("", "v1", "pods").ok_or_else(ApiError::no_such_path)?;
    let mut write = options::parse_write(context, pods, "CreateOptions")?;
    // This path ends at the collection, so that the pod's name is in the binding; admission sees
    // the same request as for pods/binding.
    write.name = binding.name().to_owned();
    write.subresource = "binding".into();
    server.registry.bind_pod(&mut write, binding).await?;
    respond::audited_status_response(
        context,
        &Status {
            code: 201,
            ..Status::success(None)
        },
    )
}

async fn token_review(
    server: &Server,
    context: &Context,
    review: &Value,
) -> Result<Value, ApiError> {
    let token = review
        .pointer("/spec/token")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let audiences = string_list(&review["spec"]["audiences"]);
    let warnings = &context.warnings;
    Ok(server.authn.review(token, &audiences, warnings).await)
}

fn string_list(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn review_subject(spec: &Value) -> User {
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let extra: BTreeMap<String, Vec<String>> = spec["extra"]
        .as_object()
        .into_iter()
        .flatten()
        // Keys of extra are case-insensitive, as HTTP headers carry them.
        .map(|(k, v)| (k.to_lowercase(), string_list(v)))
        .collect();
    User {
        name: text("user"),
        uid: text("uid"),
        groups: string_list(&spec["groups"]),
        extra,
    }
}

/// Computes the status of an access review.
async fn review_access(server: &Server, context: &Context, spec: &Value, user: User) -> Value {
    let attributes = Attributes {
        caller: Some(context.user.clone()),
        ..review_attributes(spec, user)
    };
    let decision = server.authz.authorize(&attributes).await;
    // `denied` is for explicit denials: without it, the caller may consult its next authorizer.
    let (allowed, denied, reason, error) = match decision {
        Decision::Allow(reason) => (true, false, reason, None),
        Decision::Deny(reason) => (false, true, reason, None),
        Decision::NoOpinion(reason) => (false, false, reason, None),
        Decision::Failed(failure) => {
            let Failure {
                is_denied,
                reason,
                error,
                ..
            } = failure;
            (false, is_denied, reason, Some(error))
        }
    };
    let mut status = json!({"allowed": allowed});
    if denied {
        status["denied"] = true.into();
    }
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    if let Some(error) = error {
        status["evaluationError"] = error.into();
    }
    status
}

fn review_attributes(spec: &Value, user: User) -> Attributes {
    if let Some(path) = spec["nonResourceAttributes"].as_object() {
        let text = |field: &str| {
            path.get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        return Attributes {
            user,
            verb: text("verb"),
            path: text("path"),
            ..Attributes::default()
        };
    }
    let resource = &spec["resourceAttributes"];
    let text = |field: &str| resource[field].as_str().unwrap_or_default().to_owned();
    Attributes {
        user,
        verb: text("verb"),
        group: text("group"),
        version: text("version"),
        namespace: text("namespace"),
        resource: text("resource"),
        subresource: text("subresource"),
        name: text("name"),
        is_resource: true,
        field_selector: format_selector(&resource["fieldSelector"], field_term),
        label_selector: format_selector(&resource["labelSelector"], label_term),
        ..Attributes::default()
    }
}

/// Converts a review's selector to query form: as sent, or from its requirements. A requirement
/// that has no query form is omitted, which selects more objects and so can only deny more.
fn format_selector(selector: &Value, term: fn(&str, &str, &[String]) -> Option<String>) -> String {
    if let Some(raw) = selector["rawSelector"]
        .as_str()
        .filter(|raw| !raw.is_empty())
    {
        return raw.to_owned();
    }
    let requirements = selector["requirements"].as_array().into_iter().flatten();
    let text = |requirement: &Value, field: &str| {
        requirement[field].as_str().unwrap_or_default().to_owned()
    };
    let terms = requirements.filter_map(|r| {
        term(
            &text(r, "key"),
            &text(r, "operator"),
            &string_list(&r["values"]),
        )
    });
    terms.collect::<Vec<_>>().join(",")
}

fn field_term(key: &str, operator: &str, values: &[String]) -> Option<String> {
    let escaped = |value: &String| {
        value
            .replace('\\', "\\\\")
            .replace(',', "\\,")
            .replace('=', "\\=")
    };
    match (operator, values) {
        _ if !is_name(key) => None,
        // Field selectors have no sets, so that only single values can be expressed.
        ("In", [value]) => Some(format!("{key}={}", escaped(value))),
        ("NotIn", [value]) => Some(format!("{key}!={}", escaped(value))),
        _ => None,
    }
}

fn label_term(key: &str, operator: &str, values: &[String]) -> Option<String> {
    match operator {
        _ if !is_name(key)
            || !values
                .iter()
                .all(|value| value.is_empty() || is_name(value)) =>
        {
            None
        }
        "In" => Some(format!("{key} in ({})", values.join(","))),
        "NotIn" => Some(format!("{key} notin ({})", values.join(","))),
        "Exists" => Some(key.to_owned()),
        "DoesNotExist" => Some(format!("!{key}")),
        _ => None,
    }
}

/// Returns whether the text has no special characters of selectors.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))
}

fn review_rules(server: &Server, context: &Context, review: &Value) -> Result<Value, ApiError> {
    let namespace = review
        .pointer("/spec/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let rules = server.authz.rules(&context.user, namespace);
    let mut status = json!({"resourceRules": rules.resources, "nonResourceRules": rules.paths,
        "incomplete": rules.incomplete});
    if !rules.errors.is_empty() {
        status["evaluationError"] = aggregate_errors(&rules.errors).into();
    }
    Ok(status)
}

/// Responds with an empty list: ComponentStatus is deprecated and has no source here.
async fn component_statuses(
    context: &Context,
    row: &Arc<Resource>,
) -> Result<Response<Body>, ApiError> {
    match context.info.verb.as_str() {
        "list" => {
            lists::list_response(
                context,
                row,
                Vec::new(),
                &ListMeta::default(),
                Encodings::Dropped,
            )
            .await
        }
        "get" => Err(ApiError::not_found(
            &row.group,
            &row.plural,
            &context.info.name,
        )),
        _ => Err(method_not_allowed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_of_a_review_are_those_of_a_request() {
        let requirement = |operator: &str, values: Value| json!({"key": "k", "operator": operator, "values": values});
        let all = json!({"requirements": [requirement("In", json!(["a,b"])), requirement("Exists", json!([]))]});
        assert_eq!(format_selector(&all, field_term), "k=a\\,b");
        let all = json!({"requirements": [requirement("NotIn", json!(["a", "b"])), requirement("DoesNotExist", json!([]))]});
        assert_eq!(format_selector(&all, label_term), "k notin (a,b),!k");
        assert_eq!(
            format_selector(&json!({"rawSelector": "spec.nodeName=n"}), field_term),
            "spec.nodeName=n"
        );
        assert_eq!(format_selector(&Value::Null, field_term), "");
    }
}
