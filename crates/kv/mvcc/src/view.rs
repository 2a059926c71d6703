//! Reads under the lock: pairs, comparisons, and the branches of a transaction.

use crate::error::MvccError;
use crate::history::Event;
use crate::index::Item;
use crate::revision::{Mark, decode_record};
use crate::span::Span;
use crate::state::{State, readable_revision};
use bytes::Bytes;
use kv_engine::{Engine, Table};
use proto_etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::{Compare, RangeRequest, RequestOp, TxnRequest};
use proto_etcd::mvccpb::KeyValue;
use std::cmp::Ordering;
use std::sync::Arc;

/// The state, and changes that are not committed yet.
pub(crate) struct View<'a> {
    pub engine: &'a dyn Engine,
    pub state: &'a State,
    pub pending: &'a [Arc<Event>],
}

impl View<'_> {
    /// Checks that a range can be read at its revision.
    pub fn check_range(&self, request: &RangeRequest) -> Result<(), MvccError> {
        readable_revision(self.state, request.revision).map(drop)
    }

    /// Returns the current pair of a key.
    pub fn current_pair(&self, key: &[u8]) -> Result<Option<KeyValue>, MvccError> {
        match self.state.index.get(key) {
            Some(item) if item.is_live() => self.pair_at(item.last, item.cached_record().cloned()),
            _ => Ok(None),
        }
    }

    /// Returns the pair of a revision.
    pub fn pair_at(
        &self,
        mark: Mark,
        record: Option<Bytes>,
    ) -> Result<Option<KeyValue>, MvccError> {
        if let Some(record) = record {
            return decode_record(&record)
                .map(Some)
                .ok_or(MvccError::Damaged(mark.main()));
        }
        // A change of the running command is neither in the history nor in the engine yet.
        if mark.main() == self.state.current + 1 {
            return Ok(self
                .pending
                .get(mark.sub() as usize)
                .map(|event| event.kv.clone()));
        }
        if let Some(event) = self.state.history.get(mark) {
            return Ok(Some(event.kv.clone()));
        }
        let record = self.engine.get(Table::Revisions, &mark.engine_key())?;
        record
            .and_then(|record| decode_record(&record))
            .map(Some)
            .ok_or(MvccError::Damaged(mark.main()))
    }

    /// Chooses the branches of a transaction.
    pub fn choose_branches(&self, request: &TxnRequest, path: &mut Path) -> Result<(), MvccError> {
        let mut succeeded = true;
        for compare in &request.compare {
            if !self.evaluate_compare(compare)? {
                succeeded = false;
                break;
            }
        }
        path.push(succeeded);
        // Nested comparisons are decided before the first operation changes anything, as etcd's
        // `compareToPath` does.
        for op in chosen_branch(request, succeeded) {
            if let Some(Request::RequestTxn(nested)) = &op.request {
                self.choose_branches(nested, path)?;
            }
        }
        Ok(())
    }

    fn evaluate_compare(&self, compare: &Compare) -> Result<bool, MvccError> {
        let span = Span::new(&compare.key, &compare.range_end);
        if compare.target() == CompareTarget::Value {
            return self.compare_values(compare, span);
        }
        let mut any = false;
        let mut all = true;
        self.state.index.visit_items(span, |_, item| {
            if item.is_live() {
                any = true;
                all = compare_number(compare, Some(item));
            }
            all
        });
        // A range without keys is compared like an absent key, as in etcd.
        Ok(if any {
            all
        } else {
            compare_number(compare, None)
        })
    }

    /// Compares values. The comparison with an absent key fails.
    fn compare_values(&self, compare: &Compare, span: Span<'_>) -> Result<bool, MvccError> {
        let expected = match &compare.target_union {
            Some(TargetUnion::Value(expected)) => expected.clone(),
            _ => Bytes::new(),
        };
        let mut keys = Vec::new();
        self.state.index.visit_items(span, |key, item| {
            if item.is_live() {
                keys.push(Bytes::copy_from_slice(key));
            }
            true
        });
        if keys.is_empty() {
            return Ok(false);
        }
        for key in keys {
            let value = self.current_pair(&key)?.unwrap_or_default().value;
            if !compare_result(compare, value.as_ref().cmp(expected.as_ref())) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Compares a number of a key. An absent key has zeros.
fn compare_number(compare: &Compare, item: Option<&Item>) -> bool {
    let (version, create, modified, lease) = match item {
        Some(item) => (
            item.version(),
            item.create_revision(),
            item.last.main(),
            item.lease_id(),
        ),
        None => (0, 0, 0, 0),
    };
    let (has, expected) = match (compare.target(), &compare.target_union) {
        (CompareTarget::Version, Some(TargetUnion::Version(expected))) => (version, *expected),
        (CompareTarget::Version, _) => (version, 0),
        (CompareTarget::Create, Some(TargetUnion::CreateRevision(expected))) => (create, *expected),
        (CompareTarget::Create, _) => (create, 0),
        (CompareTarget::Mod, Some(TargetUnion::ModRevision(expected))) => (modified, *expected),
        (CompareTarget::Mod, _) => (modified, 0),
        (CompareTarget::Lease, Some(TargetUnion::Lease(expected))) => (lease, *expected),
        (CompareTarget::Lease, _) => (lease, 0),
        (CompareTarget::Value, _) => return false,
    };
    compare_result(compare, has.cmp(&expected))
}

fn compare_result(compare: &Compare, ordering: Ordering) -> bool {
    match compare.result() {
        CompareResult::Equal => ordering.is_eq(),
        CompareResult::NotEqual => ordering.is_ne(),
        CompareResult::Greater => ordering.is_gt(),
        CompareResult::Less => ordering.is_lt(),
    }
}

/// The chosen branch of each transaction, in the order of execution.
pub(crate) type Path = Vec<bool>;

pub(crate) fn chosen_branch(request: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded {
        &request.success
    } else {
        &request.failure
    }
}
