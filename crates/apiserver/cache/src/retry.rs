//! Reads of the store that are repeated until they succeed.

use apiserver_storage::StoreError;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(200);

/// Repeats a read of the store until it succeeds.
pub(crate) async fn retry_read<T, R>(read: impl Fn() -> R) -> T
where
    R: Future<Output = Result<T, StoreError>>,
{
    let mut warned = false;
    loop {
        match read().await {
            Ok(result) => return result,
            // Warn once: while the store starts, this fails several times a second.
            Err(e) if !warned => {
                warned = true;
                tracing::warn!(error = %e, "the store can't be read yet; trying again");
            }
            Err(e) => tracing::debug!(error = %e, "the store can't be read yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
