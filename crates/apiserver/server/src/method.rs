//! The error of a method that a path does not have.

use api_meta::{ApiError, Reason};

/// Returns a 405 error.
pub fn method_not_allowed() -> ApiError {
    ApiError::new(
        Reason::MethodNotAllowed,
        "the server does not allow this method on the requested resource",
    )
    .with_details(api_meta::Details::default())
}
