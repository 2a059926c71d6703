//! Adds to the audit record of a request, if it has one.

use crate::context::Context;
use api_kinds::ObjectSchema;
use api_meta::{ApiError, Status};
use apiserver_convert::codec;
use serde_json::Value;

/// Records the user that the request acts for.
pub fn audit_impersonation(context: &Context) {
    if let Some(record) = &context.audit {
        record.set_impersonated(&context.user);
    }
}

/// Records the decoded body of a request.
pub fn audit_request_object(context: &Context, schema: &ObjectSchema, object: &Value) {
    if let Some(record) = &context.audit {
        record.set_request_object(object, || codec::encode_json(schema, object));
    }
}

/// Records a patch as the body of the request.
pub fn audit_patch(context: &Context, patch: impl FnOnce() -> Option<Vec<u8>>) {
    if let Some(record) = &context.audit {
        record.set_patch(patch);
    }
}

/// Records the body of the response, if events have it.
pub fn audit_response_object(context: &Context, body: impl FnOnce() -> Vec<u8>) {
    if let Some(record) = &context.audit {
        record.set_response_object(body);
    }
}

/// Records a Status that is the response.
pub fn audit_status(context: &Context, status: &Status) {
    if let Some(record) = &context.audit {
        record.set_status(status);
    }
}

/// Returns whether events have the body of the response.
pub fn records_response(context: &Context) -> bool {
    context
        .audit
        .as_ref()
        .is_some_and(|record| record.has_response())
}

/// Records an error as the response.
pub fn audit_error(context: &Context, error: &ApiError) {
    audit_status(context, &error.status());
}
