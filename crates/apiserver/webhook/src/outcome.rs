//! The consequences of a failed or denied call for the request, with upstream's messages.

use crate::hook::Hook;
use crate::response::ResponseError;
use api_meta::tree::{get, int, text};
use api_meta::{ApiError, Details, Reason};
use apiserver_webhook_client::CallError;
use serde_json::Value;

/// The reason why a call did not end with permission.
#[derive(Debug)]
pub enum HookError {
    /// The webhook could not be called, or its response could not be used: `failurePolicy` decides.
    Calling {
        /// Status for metrics.
        code: u16,
        /// The reason, for the client.
        why: String,
    },
    /// The webhook denied the request.
    Denied(ApiError),
    /// The request can't be served with this webhook, whatever its policy.
    Internal(ApiError),
}

impl From<CallError> for HookError {
    fn from(error: CallError) -> Self {
        let why = match &error {
            CallError::Config(why) => format!("could not get REST client: {why}"),
            other => format!("failed to call webhook: {other}"),
        };
        HookError::Calling {
            code: error.code(),
            why,
        }
    }
}

impl From<ResponseError> for HookError {
    fn from(error: ResponseError) -> Self {
        HookError::Calling {
            // Upstream's "error validating webhook response" is a ServiceUnavailable.
            code: 503,
            why: error.to_string(),
        }
    }
}

/// Returns the message of a failed call.
pub fn failure_message(hook: &Hook, why: &str) -> String {
    format!("failed calling webhook {:?}: {why}", hook.name)
}

/// Builds the error for a dry run that the webhook has no answer to.
pub fn dry_run_error(hook: &Hook) -> ApiError {
    ApiError::bad_request(format!(
        "admission webhook {:?} does not support dry run",
        hook.name
    ))
}

/// Builds the error of a denial from the response's `status`.
pub fn denial_error(name: &str, status: &Value) -> ApiError {
    let denied = format!("admission webhook {name:?} denied the request");
    let message = match (text(status, "message"), text(status, "reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    let (code, given) = (denial_code(status), text(status, "reason"));
    // Code and reason of the response are independent of each other, as upstream.
    let known = REASONS
        .into_iter()
        .find(|reason| reason.as_str() == given && reason.code() == code);
    let mut error = ApiError::new(known.unwrap_or(Reason::Unknown(code)), message);
    if known.is_none() && !given.is_empty() {
        error.own_reason = Some(given.into());
    }
    // A broken `details` does not change the verdict.
    if let Ok(details) = serde_json::from_value::<Details>(get(status, "details").clone()) {
        error = error.with_details(details);
    }
    error
}

/// Returns the HTTP code of a denial. It is that of an error, whatever the webhook says.
fn denial_code(status: &Value) -> u16 {
    let code = int(status, "code").and_then(|code| u16::try_from(code).ok());
    // Other codes are no errors of HTTP. Upstream raises those below 400 to 400, so that no denial
    // looks like a success.
    code.filter(|code| (400..=599).contains(code))
        .unwrap_or(400)
}

const REASONS: [Reason; 17] = [
    Reason::BadRequest,
    Reason::Unauthorized,
    Reason::Forbidden,
    Reason::NotFound,
    Reason::MethodNotAllowed,
    Reason::NotAcceptable,
    Reason::AlreadyExists,
    Reason::Conflict,
    Reason::Expired,
    Reason::Gone,
    Reason::RequestEntityTooLarge,
    Reason::UnsupportedMediaType,
    Reason::Invalid,
    Reason::TooManyRequests,
    Reason::InternalError,
    Reason::ServiceUnavailable,
    Reason::Timeout,
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn denial_names_the_webhook_and_the_reason() {
        for (status, code, reason, message) in [
            (json!(null), 400, "", " without explanation"),
            (json!({"message": "no"}), 400, "", ": no"),
            (json!({"message": "no", "code": 403}), 403, "", ": no"),
            (
                json!({"reason": "Forbidden"}),
                400,
                "Forbidden",
                ": Forbidden",
            ),
            (
                json!({"message": "no", "reason": "Invalid", "code": 422}),
                422,
                "Invalid",
                ": no",
            ),
            (
                json!({"message": "no", "reason": "Invalid", "code": 403}),
                403,
                "Invalid",
                ": no",
            ),
            (
                json!({"message": "no", "code": 200, "status": "Success"}),
                400,
                "",
                ": no",
            ),
            (json!({"message": "no", "code": 99999}), 400, "", ": no"),
            (
                json!({"reason": "own words", "code": 409}),
                409,
                "own words",
                ": own words",
            ),
        ] {
            let error = denial_error("h", &status);
            let expect = format!("admission webhook \"h\" denied the request{message}");
            assert_eq!(error.message, expect, "{status}");
            let sent = error.status();
            let found = (error.code(), sent.code, sent.reason.as_str());
            assert_eq!(found, (code, i32::from(code), reason), "{status}");
        }
    }

    #[test]
    fn details_of_a_denial_are_kept() {
        let status = json!({"message": "no", "details": {"causes": [{"field": "spec.x"}]}});
        let details = denial_error("h", &status).details;
        assert_eq!(
            details.map(|details| details.causes[0].field.clone()),
            Some("spec.x".to_owned())
        );
    }

    #[test]
    fn failed_calls_are_told_apart() {
        let why = |error: HookError| match error {
            HookError::Calling { why, .. } => why,
            other => format!("{other:?}"),
        };
        assert_eq!(
            why(CallError::Config("bad CA".into()).into()),
            "could not get REST client: bad CA"
        );
        let failed = CallError::Failed {
            url: "u".into(),
            why: "EOF".into(),
        };
        assert_eq!(
            why(failed.into()),
            "failed to call webhook: Post \"u\": EOF"
        );
        let invalid = ResponseError::Invalid("x".into());
        assert_eq!(why(invalid.into()), "received invalid webhook response: x");
    }
}
