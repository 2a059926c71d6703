//! The store's and the caches' failures as clients see them.

use api_meta::{ApiError, Cause, Details, Reason};
use apiserver_cache::CacheError;
use apiserver_storage::StoreError;

/// A failure of the store; the log has the details.
pub fn store_error(error: &StoreError) -> ApiError {
    match error {
        StoreError::TooLarge => ApiError::new(Reason::RequestEntityTooLarge, "etcdserver: request is too large"),
        StoreError::Compacted => expired(),
        StoreError::FutureRevision => ApiError::bad_request("the resource version is in the future"),
        other => {
            tracing::warn!(error = %other, "the store refused or did not answer");
            ApiError::new(Reason::InternalError, "the store is not available; try again later")
                .with_details(Details { retry_after_seconds: 1, ..Details::default() })
        }
    }
}

/// 410 for a revision that the store no longer has.
pub(crate) fn expired() -> ApiError {
    ApiError::expired("The resourceVersion for the provided list is too old.")
}

/// 410 for a page of such a revision, with a token that goes on in the present.
pub(crate) fn expired_page(continue_token: String) -> ApiError {
    let text = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                without the continue parameter, or use the continue token in this response to retrieve the remainder of \
                the results. Continuing with the provided token results in an inconsistent list - objects that were \
                created, modified, or deleted between the time the first chunk was returned and now may show up in the \
                list.";
    ApiError { continue_token, ..ApiError::expired(text) }
}

/// A read that the caches can't serve.
pub(crate) fn cache_error(error: &CacheError) -> ApiError {
    match error {
        CacheError::Store(error) => store_error(error),
        CacheError::TooNew { .. } => {
            let cause = Cause {
                reason: "ResourceVersionTooLarge".into(),
                message: "Too large resource version".into(),
                ..Cause::default()
            };
            let details = Details { causes: vec![cause], retry_after_seconds: 1, ..Details::default() };
            ApiError::new(Reason::Timeout, error.to_string()).with_details(details)
        }
    }
}
