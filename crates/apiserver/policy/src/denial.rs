//! The error of a request that a policy denies.

use crate::source::Binding;
use crate::validating::{Decision, ValidatingPolicy};
use api_meta::{ApiError, Cause, Reason};
use apiserver_request::AdmissionRequest;

/// A denial of a request.
pub struct Denial {
    message: String,
    reason: Reason,
}

impl Denial {
    /// Creates the denial of a policy, or of a policy with a binding.
    pub fn new(policy: &ValidatingPolicy, binding: Option<&Binding>, decision: &Decision) -> Self {
        let binding = binding.map_or(String::new(), |binding| {
            format!(" with binding '{}'", binding.name)
        });
        Denial {
            message: format!(
                "ValidatingAdmissionPolicy '{}'{binding} denied request: {}",
                policy.name, decision.message
            ),
            reason: match decision.reason.as_str() {
                "Forbidden" => Reason::Forbidden,
                "Unauthorized" => Reason::Unauthorized,
                "RequestEntityTooLarge" => Reason::RequestEntityTooLarge,
                // Validation of policies admits no other reason, and upstream's default is Invalid.
                _ => Reason::Invalid,
            },
        }
    }
}

/// Builds the error of a denial. It has the message of a 403, whatever its status.
pub fn denial_error(request: &AdmissionRequest<'_>, denial: &Denial) -> ApiError {
    // Upstream builds a Forbidden with `admission.NewForbidden`, and then replaces reason and code
    // only.
    let mut error = forbidden_error(request, &denial.message);
    error.reason = denial.reason;
    if let Some(details) = &mut error.details {
        details.causes.push(Cause {
            reason: String::new(),
            message: denial.message.clone(),
            field: String::new(),
        });
    }
    error
}

/// Builds a 403 that names the object, or the prefix of its name.
pub fn forbidden_error(request: &AdmissionRequest<'_>, why: &str) -> ApiError {
    let text = |pointer: &str| {
        let found = request
            .object
            .pointer(pointer)
            .and_then(|value| value.as_str());
        found.filter(|name| !name.is_empty())
    };
    let name = match request.name {
        // The name is not generated yet when mutating policies run. The words are those of
        // upstream's `extractResourceName`.
        "" => text("/metadata/name")
            .or_else(|| text("/metadata/generateName"))
            .unwrap_or("Unknown"),
        name => name,
    };
    ApiError::forbidden(request.group, request.resource, name, why)
}
