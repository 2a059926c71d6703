//! Read-only transactions: evaluated at one revision under a shared lock. The pairs are read after
//! the lock is released.

use crate::error::MvccError;
use crate::state::State;
use crate::store::{RangeSelection, Store};
use crate::view::{Path, View, chosen_branch};
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::response_op::Response;
use proto_etcd::etcdserverpb::{
    RangeRequest, RangeResponse, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use std::sync::atomic::Ordering;

/// The chosen branch, with the selections of its operations.
struct ChosenBranch<'a> {
    succeeded: bool,
    ops: Vec<Op<'a>>,
}

enum Op<'a> {
    Range(&'a RangeRequest, RangeSelection),
    Txn(ChosenBranch<'a>),
    Nothing,
}

impl Store {
    /// Executes a read-only transaction that `check_request` has accepted. Write operations are
    /// ignored.
    pub fn read_txn(&self, request: &TxnRequest) -> Result<TxnResponse, MvccError> {
        loop {
            // One lock for comparisons and selections: all of them see the same revision.
            let (branch, revision) = {
                let state = self.state.read();
                let mut path = Path::new();
                View {
                    engine: &*self.engine,
                    state: &state,
                    pending: &[],
                }
                .choose_branches(request, &mut path)?;
                (
                    collect_ranges(&state, request, &mut path.into_iter())?,
                    state.current,
                )
            };
            let operations = branch.ops.len() as u64;
            if let Some(response) = self.fetch_all(branch, revision)? {
                self.counts.ranges.fetch_add(operations, Ordering::Relaxed);
                self.counts
                    .txns
                    .fetch_add(u64::from(operations > 1), Ordering::Relaxed);
                return Ok(response);
            }
        }
    }

    /// Reads the pairs. Returns `None` if a compaction deleted one in the meantime.
    fn fetch_all(
        &self,
        branch: ChosenBranch<'_>,
        revision: i64,
    ) -> Result<Option<TxnResponse>, MvccError> {
        let header = Some(ResponseHeader {
            revision,
            ..ResponseHeader::default()
        });
        let mut responses = Vec::with_capacity(branch.ops.len());
        for op in branch.ops {
            let response = match op {
                Op::Range(request, selected) => {
                    let Some(response) = self.fetch_pairs(request, selected)? else {
                        return Ok(None);
                    };
                    Some(Response::ResponseRange(RangeResponse {
                        header,
                        ..response
                    }))
                }
                Op::Txn(nested) => {
                    let Some(response) = self.fetch_all(nested, revision)? else {
                        return Ok(None);
                    };
                    Some(Response::ResponseTxn(response))
                }
                // An operation that a read-only transaction can't have keeps its place among the
                // responses.
                Op::Nothing => None,
            };
            responses.push(ResponseOp { response });
        }
        Ok(Some(TxnResponse {
            header,
            succeeded: branch.succeeded,
            responses,
        }))
    }
}

fn collect_ranges<'a>(
    state: &State,
    request: &'a TxnRequest,
    path: &mut impl Iterator<Item = bool>,
) -> Result<ChosenBranch<'a>, MvccError> {
    let succeeded = path.next().unwrap_or_default();
    let mut ops = Vec::new();
    for op in chosen_branch(request, succeeded) {
        ops.push(match &op.request {
            Some(Request::RequestRange(request)) => {
                Op::Range(request, RangeSelection::new(state, request)?)
            }
            Some(Request::RequestTxn(nested)) => Op::Txn(collect_ranges(state, nested, path)?),
            _ => Op::Nothing,
        });
    }
    Ok(ChosenBranch { succeeded, ops })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::NoLeases;
    use bytes::Bytes;
    use kv_engine::{Batch, MemoryEngine};
    use proto_etcd::etcdserverpb::compare::{CompareTarget, TargetUnion};
    use proto_etcd::etcdserverpb::{Compare, PutRequest, RequestOp};
    use std::sync::Arc;

    fn store() -> Store {
        let store = Store::open(Arc::new(MemoryEngine::default()), 0).unwrap();
        for value in ["one", "two"] {
            let request = PutRequest {
                key: "a".into(),
                value: value.into(),
                ..PutRequest::default()
            };
            let mut writer = store.writer();
            writer.put(&request, &mut NoLeases).unwrap();
            writer.commit(&mut Batch::default());
        }
        store
    }

    fn read(revision: i64) -> RequestOp {
        let request = RangeRequest {
            key: "a".into(),
            revision,
            ..RangeRequest::default()
        };
        RequestOp {
            request: Some(Request::RequestRange(request)),
        }
    }

    fn compared(value: &'static str) -> TxnRequest {
        let compare = Compare {
            key: "a".into(),
            target: CompareTarget::Value.into(),
            target_union: Some(TargetUnion::Value(Bytes::from(value))),
            ..Compare::default()
        };
        let nested = TxnRequest {
            failure: vec![read(2)],
            compare: vec![compare.clone()],
            ..TxnRequest::default()
        };
        let nested = RequestOp {
            request: Some(Request::RequestTxn(nested)),
        };
        TxnRequest {
            compare: vec![compare],
            success: vec![read(0), read(2)],
            failure: vec![nested],
        }
    }

    #[test]
    fn read_only_transaction_responds_like_the_writer() {
        let store = store();
        for value in ["two", "other"] {
            let request = compared(value);
            let expected = store.writer().execute_txn(&request, &mut NoLeases).unwrap();
            assert_eq!(expected.succeeded, value == "two");
            assert_eq!(store.read_txn(&request).unwrap(), expected);
        }
        let future = TxnRequest {
            success: vec![read(9)],
            ..TxnRequest::default()
        };
        assert_eq!(
            store.read_txn(&future).unwrap_err().to_string(),
            MvccError::Future.to_string()
        );
    }

    #[test]
    fn read_only_transaction_takes_a_shared_lock() {
        let store = store();
        // An exclusive lock would deadlock here.
        let _reading = store.state.read();
        assert!(store.read_txn(&compared("two")).unwrap().succeeded);
    }
}
