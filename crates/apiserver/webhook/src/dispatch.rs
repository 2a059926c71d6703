//! Calls one webhook, and decides by its policy what a failure means.

use crate::attributes::Attributes;
use crate::hook::Hook;
use crate::matching::Invocation;
use crate::metrics::{CallLabels, Phase, RejectionCause};
use crate::outcome::{HookError, denial_error, dry_run_error, failure_message};
use crate::plugin::Setup;
use crate::response::{Response, decode_response};
use crate::review::encode_review;
use crate::versioned::VersionedObjects;
use api_meta::ApiError;
use bytes::Bytes;
use serde_json::Value;
use std::time::Instant;

/// Calls a webhook. The response is checked, and allows the request.
///
/// # Errors
/// A denial, a failed call, or a dry run that the webhook does not support.
pub async fn call_hook(
    setup: &Setup,
    invocation: &Invocation,
    attributes: &Attributes<'_>,
    objects: &VersionedObjects,
    phase: Phase,
) -> Result<Response, HookError> {
    let hook = &*invocation.hook;
    // Before the call, and whatever the failure policy: a dry run must have no effects outside of
    // the cluster.
    if attributes.dry_run && !hook.allows_dry_run {
        return Err(HookError::Internal(dry_run_error(hook)));
    }
    let Some(version) = hook.review else {
        let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(HookError::Calling {
            // The status of upstream's error, which only the metrics show.
            code: 400,
            why: why.to_owned(),
        });
    };
    let endpoint = hook.endpoint.as_ref().map_err(|why| HookError::Calling {
        code: 500,
        why: format!("could not get REST client: {why}"),
    })?;
    let uid = uuid::Uuid::new_v4().to_string();
    let target = (invocation.resource.clone(), invocation.kind.clone());
    let kinds = &setup.kinds;
    let encode = |object: &Value, out: &mut Vec<u8>| match object {
        Value::Object(_) => kinds.encode_object(&target.0, attributes.subresource, object, out),
        // Both fields are always present, as Go writes an empty `RawExtension` as null.
        _ => out.extend_from_slice(b"null"),
    };
    let objects = [&objects.object, &objects.old];
    let body = encode_review(version, &uid, attributes, &target, objects, encode);
    let body = Bytes::from(body);
    let body = setup
        .transport
        .post_json(endpoint, body, hook.timeout)
        .await?;
    let response = decode_response(version, &uid, phase == Phase::Admit, &body)?;
    Ok(response)
}

/// Returns the denial that a response contains.
///
/// # Errors
/// The denial.
pub fn check_verdict(hook: &Hook, response: &Response) -> Result<(), HookError> {
    if response.allowed {
        Ok(())
    } else {
        Err(HookError::Denied(denial_error(
            &hook.name,
            &response.status,
        )))
    }
}

/// Records a call in the metrics and returns the error for the client, if the policy does not
/// ignore it.
///
/// # Errors
/// The request is rejected.
pub fn conclude_call<T>(
    setup: &Setup,
    hook: &Hook,
    call: &CallLabels,
    begun: Instant,
    result: Result<T, HookError>,
) -> Result<Option<T>, ApiError> {
    let metrics = &setup.metrics;
    let record = |code: u16, rejected: bool| {
        metrics.record_call(call, begun.elapsed(), code, rejected);
    };
    match result {
        Ok(done) => {
            record(200, false);
            Ok(Some(done))
        }
        Err(HookError::Calling { code, why }) if hook.ignores_failure => {
            record(code, false);
            metrics.count_fail_open(call);
            log_failure(hook, code, &why, "failing open");
            Ok(None)
        }
        Err(HookError::Calling { code, why }) => {
            record(code, true);
            metrics.count_rejection(call, RejectionCause::CallingWebhook, code);
            log_failure(hook, code, &why, "failing closed");
            Err(ApiError::internal(failure_message(hook, &why)))
        }
        // A denial is a valid response: `failurePolicy: Ignore` covers failed calls only.
        Err(HookError::Denied(error)) => {
            record(error.code(), true);
            metrics.count_rejection(call, RejectionCause::Denied, error.code());
            Err(error)
        }
        Err(HookError::Internal(error)) => {
            // Upstream passes 0 for errors that are not of the webhook.
            record(0, true);
            metrics.count_rejection(call, RejectionCause::ServerInternal, 0);
            Err(error)
        }
    }
}

/// Logs a failed call, without the body of an error response: webhooks may repeat objects in it.
fn log_failure(hook: &Hook, code: u16, why: &str, consequence: &'static str) {
    let why = why.split(" (\"").next().unwrap_or_default();
    tracing::warn!(
        webhook = hook.name,
        code,
        why,
        "failed calling webhook, {consequence}"
    );
}
