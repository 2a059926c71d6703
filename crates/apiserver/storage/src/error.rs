//! Errors of the store.

use crate::value::StoredValue;

/// A failed operation on the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The key of a create already exists.
    #[error("the key exists")]
    Exists,
    /// A compare failed; holds the current value.
    #[error("the key has another revision")]
    Conflict(Option<StoredValue>),
    /// The revision is compacted.
    #[error("revision is compacted")]
    Compacted,
    /// The revision does not exist yet.
    #[error("revision is in the future")]
    FutureRevision,
    /// The value exceeds the store's limit.
    #[error("request is too large")]
    TooLarge,
    /// The store can't be reached or has no leader; the outcome of a write is unknown.
    #[error("the store can't be reached: {0}")]
    Unavailable(String),
    /// Any other error of the store.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl From<tonic::Status> for StoreError {
    fn from(status: tonic::Status) -> Self {
        let text = status.message();
        match status.code() {
            // etcd has one code for both errors; only the text differs.
            tonic::Code::OutOfRange if text.contains("compacted") => StoreError::Compacted,
            tonic::Code::OutOfRange => StoreError::FutureRevision,
            tonic::Code::InvalidArgument if text.contains("too large") => StoreError::TooLarge,
            tonic::Code::ResourceExhausted if text.contains("message larger") => {
                StoreError::TooLarge
            }
            tonic::Code::Unavailable
            | tonic::Code::DeadlineExceeded
            | tonic::Code::Cancelled
            // tonic reports some broken connections as Unknown. The write may have been executed.
            | tonic::Code::Unknown => StoreError::Unavailable(text.to_owned()),
            _ => StoreError::Failed(text.to_owned()),
        }
    }
}
