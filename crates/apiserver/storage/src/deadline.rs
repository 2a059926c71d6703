//! The deadline of calls to the store.

use crate::StoreError;
use std::future::Future;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(10);

/// Applies the deadline to a call.
pub(crate) async fn with_deadline<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(status.into()),
        // The write may still be executed: the error says "unknown", not "failed".
        Err(_) => Err(StoreError::Unavailable("no response within 10 s".into())),
    }
}
