//! Converts errors of the store and the watch caches into API errors.

use api_meta::{ApiError, Cause, Details, Reason};
use apiserver_cache::CacheError;
use apiserver_convert::StoredError;
use apiserver_storage::StoreError;

/// Converts an error of the store; the details are only logged.
pub fn store_error(error: &StoreError) -> ApiError {
    match error {
        StoreError::TooLarge => ApiError::new(
            Reason::RequestEntityTooLarge,
            "etcdserver: request is too large",
        ),
        // Clients relist after a 410; any other code would make them retry the same request
        // forever.
        StoreError::Compacted => expired_error(),
        StoreError::FutureRevision => too_new_error("Too large resource version".to_owned()),
        // The text may name addresses and files of the control plane, so that only the log has it.
        other => {
            tracing::warn!(error = %other, "store request failed");
            ApiError::new(
                Reason::InternalError,
                "the store is not available; try again later",
            )
            .with_details(Details {
                retry_after_seconds: 1,
                ..Details::default()
            })
        }
    }
}

/// Builds a 400 for an object that could not be read after it was written.
pub(crate) fn unreadable_error(error: &StoredError) -> ApiError {
    ApiError::bad_request(format!(
        "the object can't be stored, because it could not be decoded with its managed fields: {error}"
    ))
}

/// Builds a 410 for a compacted revision.
pub(crate) fn expired_error() -> ApiError {
    ApiError::expired("The resourceVersion for the provided list is too old.")
}

/// Builds a 410 for a page of a compacted revision, with a token that continues at the current
/// revision.
pub(crate) fn expired_page(continue_token: String) -> ApiError {
    let text = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                without the continue parameter, or use the continue token in this response to retrieve the remainder of \
                the results. Continuing with the provided token results in an inconsistent list - objects that were \
                created, modified, or deleted between the time the first chunk was returned and now may show up in the \
                list.";
    ApiError {
        continue_token,
        ..ApiError::expired(text)
    }
}

/// Converts an error of the watch caches.
pub(crate) fn cache_error(error: &CacheError) -> ApiError {
    match error {
        CacheError::Store(error) => store_error(error),
        CacheError::TooNew { .. } => too_new_error(error.to_string()),
    }
}

/// Builds a 504 for a revision that the store has not reached.
fn too_new_error(message: String) -> ApiError {
    let cause = Cause {
        // client-go looks for this cause, then lists again without a resourceVersion.
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        ..Cause::default()
    };
    let details = Details {
        causes: vec![cause],
        retry_after_seconds: 1,
        ..Details::default()
    };
    ApiError::new(Reason::Timeout, message).with_details(details)
}
