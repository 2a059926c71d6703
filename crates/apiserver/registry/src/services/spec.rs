//! Fields of a Service.

use api_meta::{ApiError, Meta};
use serde_json::Value;

pub(super) fn spec_str<'a>(service: &'a Value, field: &str) -> &'a str {
    service
        .pointer("/spec")
        .and_then(|spec| spec.get(field)?.as_str())
        .unwrap_or_default()
}

pub(super) fn service_type(service: &Value) -> &str {
    match spec_str(service, "type") {
        "" => "ClusterIP",
        ty => ty,
    }
}

/// Builds a 422 about a field of a Service.
pub(super) fn invalid_field(service: &Value, field: &str, value: &Value, why: &str) -> ApiError {
    let cause = api_meta::Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {value}: {why}"),
        field: field.into(),
    };
    ApiError::invalid("", "Service", service.name(), vec![cause])
}
