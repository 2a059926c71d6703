//! `metav1.Status` and the error type that is converted to it.
//!
//! Every failure that reaches a client is an `ApiError`, with upstream's message if clients know
//! one. Internal error text never becomes a message: `ApiError::internal` takes a text for the
//! client.

use serde::{Deserialize, Serialize};

/// `metav1.StatusReason` with its HTTP code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 400
    BadRequest,
    /// 401
    Unauthorized,
    /// 403
    Forbidden,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 406
    NotAcceptable,
    /// 409: create of an existing object
    AlreadyExists,
    /// 409: stale resourceVersion or failed precondition
    Conflict,
    /// 410: resourceVersion or continue token too old
    Expired,
    /// 410
    Gone,
    /// 413
    RequestEntityTooLarge,
    /// 415
    UnsupportedMediaType,
    /// 422
    Invalid,
    /// 429
    TooManyRequests,
    /// 500
    InternalError,
    /// 500: the server may retry
    ServerTimeout,
    /// 503
    ServiceUnavailable,
    /// 504
    Timeout,
    /// Any other code, with an empty reason.
    Unknown(u16),
}

impl Reason {
    /// Returns the HTTP status code.
    pub fn code(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::Unauthorized => 401,
            Reason::Forbidden => 403,
            Reason::NotFound => 404,
            Reason::MethodNotAllowed => 405,
            Reason::NotAcceptable => 406,
            Reason::AlreadyExists | Reason::Conflict => 409,
            // client-go's reflectors list again after either reason.
            Reason::Expired | Reason::Gone => 410,
            Reason::RequestEntityTooLarge => 413,
            Reason::UnsupportedMediaType => 415,
            Reason::Invalid => 422,
            Reason::TooManyRequests => 429,
            // Clients recognise ServerTimeout by its reason: upstream answers with 500 and not with
            // 504.
            Reason::InternalError | Reason::ServerTimeout => 500,
            Reason::ServiceUnavailable => 503,
            Reason::Timeout => 504,
            Reason::Unknown(code) => code,
        }
    }

    /// Returns the word in `status.reason`; empty for `Unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::BadRequest => "BadRequest",
            Reason::Unauthorized => "Unauthorized",
            Reason::Forbidden => "Forbidden",
            Reason::NotFound => "NotFound",
            Reason::MethodNotAllowed => "MethodNotAllowed",
            Reason::NotAcceptable => "NotAcceptable",
            Reason::AlreadyExists => "AlreadyExists",
            Reason::Conflict => "Conflict",
            Reason::Expired => "Expired",
            Reason::Gone => "Gone",
            Reason::RequestEntityTooLarge => "RequestEntityTooLarge",
            Reason::UnsupportedMediaType => "UnsupportedMediaType",
            Reason::Invalid => "Invalid",
            Reason::TooManyRequests => "TooManyRequests",
            Reason::InternalError => "InternalError",
            Reason::ServerTimeout => "ServerTimeout",
            Reason::ServiceUnavailable => "ServiceUnavailable",
            Reason::Timeout => "Timeout",
            Reason::Unknown(_) => "",
        }
    }
}

/// `metav1.StatusCause`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Reason of the cause, such as `FieldValueInvalid`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Human-readable message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Field path, such as `spec.containers[0].image`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// `metav1.StatusDetails`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Object name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural resource, or the kind for validation errors.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Object UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Errors of individual fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds after which to retry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: i32,
}

fn is_zero(n: &i32) -> bool {
    *n == 0
}

/// `metav1.Status` as on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Always `Status`.
    pub kind: String,
    /// Always `v1`.
    pub api_version: String,
    /// List metadata: empty, or with a continue token.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// `Success` or `Failure`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Human-readable message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Reason as text, see `Reason`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The object that the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// HTTP code.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: i32,
}

impl Status {
    /// Returns the response to a completed delete, and to other requests without an object to
    /// return.
    pub fn success(details: Option<Details>) -> Self {
        Status {
            kind: "Status".into(),
            api_version: "v1".into(),
            status: "Success".into(),
            details,
            ..Status::default()
        }
    }
}

/// An error that a client may see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Reason of the error.
    pub reason: Reason,
    /// The word in `status.reason` instead of that of `reason`, if a webhook chose another one.
    pub own_reason: Option<Box<str>>,
    /// Human-readable message; upstream's words if clients know them.
    pub message: String,
    /// The object that the error is about.
    pub details: Option<Box<Details>>,
    /// `metadata.continue` of the Status: token from which an expired list may continue
    /// inconsistently; empty without one.
    pub continue_token: String,
    /// Warnings beside the error, sent as headers.
    pub warnings: Vec<String>,
}

impl ApiError {
    /// Creates an error without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        ApiError {
            reason,
            own_reason: None,
            message: message.into(),
            details: None,
            continue_token: String::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds details.
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    fn about(reason: Reason, group: &str, resource: &str, name: &str, message: String) -> Self {
        ApiError::new(reason, message).with_details(Details {
            name: name.into(),
            group: group.into(),
            kind: resource.into(),
            ..Details::default()
        })
    }

    /// Returns a 404: `pods "x" not found`.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(resource, group));
        Self::about(Reason::NotFound, group, resource, name, message)
    }

    /// Returns a 404 for a path that no API serves.
    pub fn no_such_path() -> Self {
        ApiError::new(
            Reason::NotFound,
            "the server could not find the requested resource",
        )
        .with_details(Details::default())
    }

    /// Returns a 409: `pods "x" already exists`.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(resource, group));
        Self::about(Reason::AlreadyExists, group, resource, name, message)
    }

    /// Returns a 409: `Operation cannot be fulfilled on pods "x": why`.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            qualified(resource, group)
        );
        Self::about(Reason::Conflict, group, resource, name, message)
    }

    /// Returns a 409 for a stale resourceVersion.
    pub fn stale(group: &str, resource: &str, name: &str) -> Self {
        // The text of upstream's `OptimisticLockErrorMsg`, which users search for in logs.
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, resource, name, why)
    }

    /// Returns a 403: `pods "x" is forbidden: why`.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        // Paths such as `/metrics` have no resource to name in the message.
        let message = if resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{} is forbidden: {why}", qualified(resource, group))
        } else {
            format!(
                "{} {name:?} is forbidden: {why}",
                qualified(resource, group)
            )
        };
        Self::about(Reason::Forbidden, group, resource, name, message)
    }

    /// Returns a 422 with one cause per field error. `kind` is the object's kind.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let parts: Vec<String> = causes
            .iter()
            .map(|c| format!("{}: {}", c.field, c.message))
            .collect();
        // Upstream prints an aggregate of errors: one alone, and several in brackets.
        let why = match parts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {name:?} is invalid: {why}", qualified(kind, group));
        ApiError::new(Reason::Invalid, message).with_details(Details {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            causes,
            ..Details::default()
        })
    }

    /// Returns a 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// Returns a 410 for a resourceVersion or continue token that the server no longer has.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(Reason::Expired, message)
    }

    /// Returns a 500. `message` is shown to the client: it says what failed, without secrets or
    /// file contents.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        ApiError::new(
            Reason::InternalError,
            format!("Internal error occurred: {message}"),
        )
        .with_details(Details {
            // Upstream repeats the text as a cause without a field.
            causes: vec![Cause {
                message: message.to_string(),
                ..Cause::default()
            }],
            ..Details::default()
        })
    }

    /// Returns a 429 with Retry-After.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: i32) -> Self {
        Self::new(Reason::TooManyRequests, message).with_details(Details {
            retry_after_seconds,
            ..Details::default()
        })
    }

    /// Returns a 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Reason::ServiceUnavailable, message)
    }

    /// Returns the HTTP status code.
    pub fn code(&self) -> u16 {
        self.reason.code()
    }

    /// Converts the error to its wire form.
    pub fn status(&self) -> Status {
        let mut metadata = serde_json::Map::new();
        // A client may continue an expired list with this token, at a newer revision.
        if !self.continue_token.is_empty() {
            metadata.insert("continue".into(), self.continue_token.clone().into());
        }
        Status {
            metadata,
            kind: "Status".into(),
            api_version: "v1".into(),
            status: "Failure".into(),
            message: self.message.clone(),
            reason: self
                .own_reason
                .as_deref()
                .unwrap_or(self.reason.as_str())
                .into(),
            details: self.details.as_deref().cloned(),
            code: i32::from(self.code()),
        }
    }
}

/// Returns `pods` or `deployments.apps`, like upstream's `GroupResource.String()`.
pub fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn error_messages_are_those_of_upstream() {
        let check = |e: ApiError, code: u16, text: &str| {
            assert_eq!((e.code(), e.message.as_str()), (code, text));
        };
        check(
            ApiError::not_found("", "pods", "x"),
            404,
            "pods \"x\" not found",
        );
        check(
            ApiError::already_exists("apps", "deployments", "x"),
            409,
            "deployments.apps \"x\" already exists",
        );
        check(
            ApiError::forbidden("", "pods", "", "no"),
            403,
            "pods is forbidden: no",
        );
        let cause = Cause {
            reason: "FieldValueRequired".into(),
            message: "Required value".into(),
            field: "spec".into(),
        };
        check(
            ApiError::invalid("", "Pod", "x", vec![cause]),
            422,
            "Pod \"x\" is invalid: spec: Required value",
        );
    }

    #[test]
    fn empty_fields_are_omitted_from_a_status() {
        let json = serde_json::to_value(ApiError::bad_request("why").status()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "why", "reason": "BadRequest", "code": 400})
        );
    }
}
