//! Hash of a member's data, for operators and for the comparison of members.

use crate::context::ServerContext;
use kv_machine::EtcdError;
use kv_mvcc::MvccError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Time that a member waits for a requested revision that it has not applied yet.
const CATCHING_UP: Duration = Duration::from_secs(3);

/// Hash of a member's data.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HashResult {
    /// Hash of all records.
    #[prost(uint32, tag = "1")]
    pub hash: u32,
    /// The hash covers all records up to this revision.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// The compacted revision, where the hash starts.
    #[prost(int64, tag = "3")]
    pub compacted: i64,
}

impl HashResult {
    /// Returns whether both hashes cover the same records.
    pub fn comparable(&self, other: &HashResult) -> bool {
        (self.revision, self.compacted) == (other.revision, other.compacted)
    }
}

/// Returns the hash up to a revision (0: the current one). It is computed on a blocking thread.
pub async fn hash_locally(
    core: &Arc<ServerContext>,
    revision: i64,
) -> Result<HashResult, EtcdError> {
    let (store, began) = (core.store().clone(), Instant::now());
    // It scans all records, which would keep the runtime from sending heartbeats.
    let hashed = tokio::task::spawn_blocking(move || store.hash_history(revision))
        .await
        .map_err(|error| {
            tracing::error!(%error, "the hash can't be made");
            EtcdError::Stopped
        })?;
    core.metrics.hash.observe_duration(began.elapsed());
    let (hash, revision, compacted) = hashed?;
    Ok(HashResult {
        hash,
        revision,
        compacted,
    })
}

/// Returns the hash for a peer, after this member has applied the revision.
pub(crate) async fn respond_hash(
    core: &Arc<ServerContext>,
    revision: i64,
) -> Result<HashResult, EtcdError> {
    let mut applied = core.machine.subscribe_applied();
    let reached = applied.wait_for(|_| core.store().current_revision() >= revision);
    if timeout(CATCHING_UP, reached).await.is_err() {
        return Err(MvccError::Future.into());
    }
    hash_locally(core, revision).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_other_ranges_of_revisions_are_not_comparable() {
        let hash = |hash, revision, compacted| HashResult {
            hash,
            revision,
            compacted,
        };
        let mine = hash(1, 9, 3);
        for (theirs, expect) in [
            (hash(1, 9, 3), true),
            (hash(2, 9, 3), true),
            (hash(1, 8, 3), false),
            (hash(1, 9, 4), false),
        ] {
            assert_eq!(mine.comparable(&theirs), expect, "{theirs:?}");
        }
    }
}
