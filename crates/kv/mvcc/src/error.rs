//! Why a request can't be carried out.

use kv_engine::EngineError;

/// Errors of reads, writes and compactions. The texts of etcd's errors belong to the services.
#[derive(Debug, thiserror::Error)]
pub enum MvccError {
    /// The revision is gone.
    #[error("required revision has been compacted")]
    Compacted,
    /// The revision is not there yet.
    #[error("required revision is a future revision")]
    Future,
    /// `ignore_value` or `ignore_lease` of a key that is not there.
    #[error("key not found")]
    KeyNotFound,
    /// The lease is not there.
    #[error("requested lease not found")]
    LeaseNotFound,
    /// No key given.
    #[error("key is not provided")]
    EmptyKey,
    /// A value besides `ignore_value`.
    #[error("value is provided")]
    ValueProvided,
    /// A lease besides `ignore_lease`.
    #[error("lease is provided")]
    LeaseProvided,
    /// A transaction puts a key twice, or puts one that it deletes.
    #[error("duplicate key given in txn request")]
    DuplicateKey,
    /// A transaction with too many operations.
    #[error("too many operations in txn request")]
    TooManyOps,
    /// A sort order or target that is none.
    #[error("invalid sort option")]
    InvalidSort,
    /// A transaction nested too deeply, or an operation without content.
    #[error("invalid transaction")]
    InvalidTxn,
    /// The engine's content is being replaced by another member's: what is in memory has nothing behind it.
    #[error("the state is being replaced")]
    Replaced,
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A record can't be decoded.
    #[error(
        "the record of revision {0} is damaged or missing; restore this member from a snapshot (kvstore snapshot restore)"
    )]
    Damaged(i64),
}
