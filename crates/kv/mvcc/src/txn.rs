//! Transactions: chooses branches, validates their operations, and executes them.
//!
//! All comparisons, including those of nested transactions, see the state before the first
//! operation. Everything is validated before anything is changed.

use crate::error::MvccError;
use crate::range;
use crate::touched::WriteSet;
use crate::view::{Path, chosen_branch};
use crate::writer::{LeaseBook, Writer};
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::response_op::Response;
use proto_etcd::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};

/// Maximum depth of nested transactions.
const MAX_DEPTH: usize = 64;

/// Limits of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of comparisons, and of operations per branch.
    pub max_txn_ops: usize,
}

/// Validates a put, independent of the state.
pub fn check_put(request: &PutRequest) -> Result<(), MvccError> {
    if request.key.is_empty() {
        return Err(MvccError::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(MvccError::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(MvccError::LeaseProvided);
    }
    Ok(())
}

fn check_delete(request: &DeleteRangeRequest) -> Result<(), MvccError> {
    if request.key.is_empty() {
        Err(MvccError::EmptyKey)
    } else {
        Ok(())
    }
}

/// Validates a request before it is proposed, independent of the state.
pub fn check_request(request: &Request, limits: Limits) -> Result<(), MvccError> {
    match request {
        Request::RequestRange(request) => range::check_range(request),
        Request::RequestPut(request) => check_put(request),
        Request::RequestDeleteRange(request) => check_delete(request),
        Request::RequestTxn(request) => {
            check_txn(request, limits, 0)?;
            check_overlaps(&request.success).map(drop)?;
            check_overlaps(&request.failure).map(drop)
        }
    }
}

fn check_txn(request: &TxnRequest, limits: Limits, depth: usize) -> Result<(), MvccError> {
    // Each level costs stack here, in the permission check and in the execution.
    if depth > MAX_DEPTH {
        return Err(MvccError::InvalidTxn);
    }
    let longest = request
        .compare
        .len()
        .max(request.success.len())
        .max(request.failure.len());
    if longest > limits.max_txn_ops {
        return Err(MvccError::TooManyOps);
    }
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(MvccError::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestTxn(nested)) => check_txn(nested, limits, depth + 1)?,
            Some(other) => check_request(other, limits)?,
            None => return Err(MvccError::KeyNotFound),
        }
    }
    Ok(())
}

fn check_overlaps(ops: &[RequestOp]) -> Result<WriteSet, MvccError> {
    // The deletions of a level come first, wherever they stand in the request, as in etcd's
    // `checkIntervals`. Deletions may overlap each other.
    let mut touched = WriteSet::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(request)) = &op.request {
            touched.add_delete(&request.key, &request.range_end);
        }
    }
    for op in ops {
        let Some(Request::RequestTxn(nested)) = &op.request else {
            continue;
        };
        // Only one of the branches is executed, so they may change the same keys. Both count
        // against the operations beside them.
        let mut either = check_overlaps(&nested.success)?;
        either.merge(check_overlaps(&nested.failure)?);
        if touched.conflicts_with(&either) {
            return Err(MvccError::DuplicateKey);
        }
        touched.merge(either);
    }
    for op in ops {
        let Some(Request::RequestPut(request)) = &op.request else {
            continue;
        };
        if !touched.add_put(&request.key) {
            return Err(MvccError::DuplicateKey);
        }
    }
    Ok(touched)
}

impl Writer<'_> {
    /// Executes a transaction that `check_request` has accepted.
    pub fn execute_txn(
        &mut self,
        request: &TxnRequest,
        leases: &mut dyn LeaseBook,
    ) -> Result<TxnResponse, MvccError> {
        let mut path = Path::new();
        self.view().choose_branches(request, &mut path)?;
        if chosen_branch(request, path.first() == Some(&true)).len() > 1 {
            self.count_txn();
        }
        // An operation that fails half-way could not be undone.
        self.check_branches(request, &mut path.iter().copied(), leases)?;
        self.execute_branch(request, &mut path.into_iter(), leases)
    }

    fn check_branches(
        &self,
        request: &TxnRequest,
        path: &mut impl Iterator<Item = bool>,
        leases: &dyn LeaseBook,
    ) -> Result<(), MvccError> {
        for op in chosen_branch(request, path.next().unwrap_or_default()) {
            match &op.request {
                Some(Request::RequestPut(request)) => self.check_put(request, leases)?,
                Some(Request::RequestRange(request)) => self.view().check_range(request)?,
                Some(Request::RequestTxn(nested)) => self.check_branches(nested, path, leases)?,
                Some(Request::RequestDeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }

    fn execute_branch(
        &mut self,
        request: &TxnRequest,
        path: &mut impl Iterator<Item = bool>,
        leases: &mut dyn LeaseBook,
    ) -> Result<TxnResponse, MvccError> {
        let succeeded = path.next().unwrap_or_default();
        let mut responses = Vec::new();
        for op in chosen_branch(request, succeeded) {
            let response = match &op.request {
                Some(Request::RequestRange(request)) => {
                    Some(Response::ResponseRange(self.range_in_txn(request)?))
                }
                Some(Request::RequestPut(request)) => {
                    Some(Response::ResponsePut(self.put(request, leases)?))
                }
                Some(Request::RequestDeleteRange(request)) => Some(Response::ResponseDeleteRange(
                    self.delete_range(request, leases)?,
                )),
                Some(Request::RequestTxn(nested)) => Some(Response::ResponseTxn(
                    self.execute_branch(nested, path, leases)?,
                )),
                None => None,
            };
            responses.push(ResponseOp { response });
        }
        Ok(TxnResponse {
            header: self.response_header(),
            succeeded,
            responses,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::span::Span;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn put(key: &[u8]) -> RequestOp {
        let request = PutRequest {
            key: Bytes::copy_from_slice(key),
            ..PutRequest::default()
        };
        RequestOp {
            request: Some(Request::RequestPut(request)),
        }
    }

    fn delete(key: &[u8], end: &[u8]) -> RequestOp {
        let (key, range_end) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(end));
        RequestOp {
            request: Some(Request::RequestDeleteRange(DeleteRangeRequest {
                key,
                range_end,
                prev_kv: false,
            })),
        }
    }

    fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        let request = TxnRequest {
            compare: Vec::new(),
            success,
            failure,
        };
        RequestOp {
            request: Some(Request::RequestTxn(request)),
        }
    }

    /// Keys that are put and ranges that are deleted, compared pairwise.
    type Plain = (Vec<Bytes>, Vec<(Bytes, Bytes)>);

    fn plain(ops: &[RequestOp]) -> Option<Plain> {
        let deleted = |(_, deletes): &Plain, key: &Bytes| {
            deletes
                .iter()
                .any(|(from, end)| Span::new(from, end).contains(key))
        };
        let mut all = Plain::default();
        for op in ops {
            if let Some(Request::RequestDeleteRange(request)) = &op.request {
                all.1.push((request.key.clone(), request.range_end.clone()));
            }
        }
        for op in ops {
            let Some(Request::RequestTxn(request)) = &op.request else {
                continue;
            };
            let (mut either, failure) = (plain(&request.success)?, plain(&request.failure)?);
            either.0.extend(failure.0);
            either.1.extend(failure.1);
            let overlaps = either
                .0
                .iter()
                .any(|key| all.0.contains(key) || deleted(&all, key));
            if overlaps || all.0.iter().any(|key| deleted(&either, key)) {
                return None;
            }
            all.0.extend(either.0);
            all.1.extend(either.1);
        }
        for op in ops {
            let Some(Request::RequestPut(request)) = &op.request else {
                continue;
            };
            if all.0.contains(&request.key) || deleted(&all, &request.key) {
                return None;
            }
            all.0.push(request.key.clone());
        }
        Some(all)
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0..4u8, 1..3)
    }

    fn ops() -> impl Strategy<Value = Vec<RequestOp>> {
        let end = prop_oneof![1 => Just(Vec::new()), 1 => Just(vec![0]), 3 => key()];
        let one = prop_oneof![3 => key().prop_map(|key| put(&key)), 1 => (key(), end).prop_map(|(key, end)| delete(&key, &end))];
        let tree = one.prop_recursive(4, 24, 4, |inner| {
            let branch = proptest::collection::vec(inner, 0..4);
            (branch.clone(), branch).prop_map(|(success, failure)| nested(success, failure))
        });
        proptest::collection::vec(tree, 0..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn conflicts_equal_those_of_a_pairwise_comparison(ops in ops()) {
            prop_assert_eq!(check_overlaps(&ops).is_err(), plain(&ops).is_none());
        }
    }

    /// Comparing each put with each deletion would take 10^9 steps here.
    #[test]
    fn check_of_nested_branches_takes_no_quadratic_time() {
        const EACH: u32 = 128;
        let branch = |number: u32, op: &dyn Fn(&[u8]) -> RequestOp| {
            nested(
                (0..EACH)
                    .map(|at| op(&(number * EACH + at).to_be_bytes()))
                    .collect(),
                Vec::new(),
            )
        };
        let tree = |first: u32, op: &dyn Fn(&[u8]) -> RequestOp| {
            nested(
                (0..EACH).map(|number| branch(first + number, op)).collect(),
                Vec::new(),
            )
        };
        let ops = [
            tree(0, &|key| put(key)),
            tree(EACH, &|key| put(key)),
            tree(2 * EACH, &|key| delete(key, b"")),
        ];
        let request = TxnRequest {
            compare: Vec::new(),
            success: ops.to_vec(),
            failure: Vec::new(),
        };
        assert!(
            check_request(
                &Request::RequestTxn(request),
                Limits {
                    max_txn_ops: EACH as usize
                }
            )
            .is_ok()
        );
    }
}
