//! Reads under the lock: pairs, comparisons, and the branches of a transaction.

use crate::error::MvccError;
use crate::history::Event;
use crate::index::Item;
use crate::revision::{Mark, decode_record};
use crate::span::Span;
use crate::store::{State, readable_revision};
use crate::txn::{Path, chosen_branch};
use bytes::Bytes;
use kv_engine::{Engine, Table};
use proto_etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::{Compare, RangeRequest, TxnRequest};
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
    pub fn current(&self, key: &[u8]) -> Result<Option<KeyValue>, MvccError> {
        match self.state.index.get(key) {
            Some(item) if item.live() => self.value(item.last, item.record().cloned()),
            _ => Ok(None),
        }
    }

    /// Returns the pair of a revision.
    pub fn value(&self, mark: Mark, record: Option<Bytes>) -> Result<Option<KeyValue>, MvccError> {
        if let Some(record) = record {
            return decode_record(&record)
                .map(Some)
                .ok_or(MvccError::Damaged(mark.main()));
        }
        if mark.main() == self.state.current + 1 {
            return Ok(self
                .pending
                .get(mark.sub() as usize)
                .map(|event| event.kv.clone()));
        }
        if let Some(event) = self.state.history.get(mark) {
            return Ok(Some(event.kv.clone()));
        }
        let record = self.engine.get(Table::Revisions, &mark.key())?;
        record
            .and_then(|record| decode_record(&record))
            .map(Some)
            .ok_or(MvccError::Damaged(mark.main()))
    }

    /// Chooses the branches of a transaction.
    pub fn choose(&self, request: &TxnRequest, path: &mut Path) -> Result<(), MvccError> {
        let mut succeeded = true;
        for compare in &request.compare {
            if !self.holds(compare)? {
                succeeded = false;
                break;
            }
        }
        path.push(succeeded);
        for op in chosen_branch(request, succeeded) {
            if let Some(Request::RequestTxn(nested)) = &op.request {
                self.choose(nested, path)?;
            }
        }
        Ok(())
    }

    fn holds(&self, compare: &Compare) -> Result<bool, MvccError> {
        let span = Span::new(&compare.key, &compare.range_end);
        if compare.target() == CompareTarget::Value {
            return self.values_hold(compare, span);
        }
        let mut any = false;
        let mut all = true;
        self.state.index.visit(span, |_, item| {
            if item.live() {
                any = true;
                all = holds_for(compare, Some(item));
            }
            all
        });
        Ok(if any { all } else { holds_for(compare, None) })
    }

    /// Compares values. The comparison with an absent key fails.
    fn values_hold(&self, compare: &Compare, span: Span<'_>) -> Result<bool, MvccError> {
        let wanted = match &compare.target_union {
            Some(TargetUnion::Value(wanted)) => wanted.clone(),
            _ => Bytes::new(),
        };
        let mut keys = Vec::new();
        self.state.index.visit(span, |key, item| {
            if item.live() {
                keys.push(Bytes::copy_from_slice(key));
            }
            true
        });
        if keys.is_empty() {
            return Ok(false);
        }
        for key in keys {
            let value = self.current(&key)?.unwrap_or_default().value;
            if !compare_result(compare, value.as_ref().cmp(wanted.as_ref())) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Compares a number of a key. An absent key has zeros.
fn holds_for(compare: &Compare, item: Option<&Item>) -> bool {
    let (version, create, modified, lease) = match item {
        Some(item) => (
            item.version(),
            item.create(),
            item.last.main(),
            item.lease(),
        ),
        None => (0, 0, 0, 0),
    };
    let (has, wanted) = match (compare.target(), &compare.target_union) {
        (CompareTarget::Version, Some(TargetUnion::Version(wanted))) => (version, *wanted),
        (CompareTarget::Version, _) => (version, 0),
        (CompareTarget::Create, Some(TargetUnion::CreateRevision(wanted))) => (create, *wanted),
        (CompareTarget::Create, _) => (create, 0),
        (CompareTarget::Mod, Some(TargetUnion::ModRevision(wanted))) => (modified, *wanted),
        (CompareTarget::Mod, _) => (modified, 0),
        (CompareTarget::Lease, Some(TargetUnion::Lease(wanted))) => (lease, *wanted),
        (CompareTarget::Lease, _) => (lease, 0),
        (CompareTarget::Value, _) => return false,
    };
    compare_result(compare, has.cmp(&wanted))
}

fn compare_result(compare: &Compare, ordering: Ordering) -> bool {
    match compare.result() {
        CompareResult::Equal => ordering.is_eq(),
        CompareResult::NotEqual => ordering.is_ne(),
        CompareResult::Greater => ordering.is_gt(),
        CompareResult::Less => ordering.is_lt(),
    }
}
