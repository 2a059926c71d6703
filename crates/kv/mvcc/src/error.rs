//! Errors of requests.

use kv_engine::EngineError;

/// Errors of reads, writes and compactions. The texts of etcd's errors belong to the services.
#[derive(Debug, thiserror::Error)]
pub enum MvccError {
    /// The revision is below the compacted revision.
    #[error("required revision has been compacted")]
    Compacted,
    /// The revision is above the current revision.
    #[error("required revision is a future revision")]
    Future,
    /// `ignore_value` or `ignore_lease` for a key that does not exist.
    #[error("key not found")]
    KeyNotFound,
    /// The lease does not exist.
    #[error("requested lease not found")]
    LeaseNotFound,
    /// The request has no key.
    #[error("key is not provided")]
    EmptyKey,
    /// The request has a value and `ignore_value`.
    #[error("value is provided")]
    ValueProvided,
    /// The request has a lease and `ignore_lease`.
    #[error("lease is provided")]
    LeaseProvided,
    /// A transaction puts a key twice, or puts and deletes the same key.
    #[error("duplicate key given in txn request")]
    DuplicateKey,
    /// A transaction has too many operations.
    #[error("too many operations in txn request")]
    TooManyOps,
    /// The sort order or target is invalid.
    #[error("invalid sort option")]
    InvalidSort,
    /// A transaction is nested too deeply, or an operation has no content.
    #[error("invalid transaction")]
    InvalidTxn,
    /// A snapshot is being installed: the index in memory does not match the engine.
    #[error("the state is being replaced")]
    Replaced,
    /// The engine returned an error.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A record can't be decoded.
    #[error(
        "the record of revision {0} is damaged or missing; restore this member from a snapshot (kvstore snapshot restore)"
    )]
    Damaged(i64),
}
