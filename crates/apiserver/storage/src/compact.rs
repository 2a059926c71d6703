//! Periodic compaction, by one of all API servers.
//!
//! The key `compact_rev_key` holds the revision of the last round; its version counts rounds. The
//! server that wins the compare-and-swap of a round compacts to the revision that the previous
//! round recorded, so that the history of one whole interval stays. This is upstream's protocol:
//! stock servers may run beside this one.

use crate::client::key_bytes;
use crate::{Store, StoreError};
use proto_etcd::etcdserverpb as pb;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const KEY: &str = "compact_rev_key";

/// Compacts every `interval` until `stop`.
pub async fn compact_regularly(store: Store, interval: Duration, stop: CancellationToken) {
    let mut round = Round::default();
    while stop
        .run_until_cancelled(tokio::time::sleep(interval))
        .await
        .is_some()
    {
        match run_round(&store, &round).await {
            Ok(next) => round = next,
            Err(e) => tracing::info!(error = %e, "compaction is tried again in the next round"),
        }
    }
}

#[derive(Default)]
pub(crate) struct Round {
    pub(crate) version: i64,
    revision: i64,
}

pub(crate) async fn run_round(store: &Store, round: &Round) -> Result<Round, StoreError> {
    let response = store.execute_txn(round_txn(round)).await?;
    let now = response.header.map_or(0, |h| h.revision);
    if !response.succeeded {
        let current = response
            .responses
            .into_iter()
            .find_map(|op| match op.response? {
                pb::response_op::Response::ResponseRange(range) => range.kvs.into_iter().next(),
                _ => None,
            });
        // The version that was read lets this server take part in the next round.
        let version = current.as_ref().map_or(0, |kv| kv.version);
        // The winner compacts to the revision that the previous round recorded.
        let recorded = current.and_then(|kv| std::str::from_utf8(&kv.value).ok()?.parse().ok());
        store.note_compaction(recorded.unwrap_or(0));
        return Ok(Round {
            version,
            revision: now,
        });
    }
    // The first round after a start knows no earlier revision, so it only records one.
    if round.revision > 0 {
        match store.compact_history(round.revision).await {
            // "Compacted" means that a person or another tool was faster, which is as good.
            Ok(()) | Err(StoreError::Compacted) => store.note_compaction(round.revision),
            Err(e) => return Err(e),
        }
    }
    Ok(Round {
        version: round.version + 1,
        revision: now,
    })
}

fn round_txn(round: &Round) -> pb::TxnRequest {
    let compare = pb::Compare {
        result: pb::compare::CompareResult::Equal.into(),
        // The version grows by one with each round, so that exactly one server wins it.
        target: pb::compare::CompareTarget::Version.into(),
        key: key_bytes(KEY),
        target_union: Some(pb::compare::TargetUnion::Version(round.version)),
        ..Default::default()
    };
    let put = pb::PutRequest {
        key: key_bytes(KEY),
        value: key_bytes(&round.revision.to_string()),
        ..Default::default()
    };
    let read = pb::RangeRequest {
        key: key_bytes(KEY),
        ..Default::default()
    };
    let op = |request| {
        vec![pb::RequestOp {
            request: Some(request),
        }]
    };
    pb::TxnRequest {
        compare: vec![compare],
        success: op(pb::request_op::Request::RequestPut(put)),
        failure: op(pb::request_op::Request::RequestRange(read)),
    }
}
