//! Transactions: which branches are taken, whether their operations can be carried out, and carrying them out.
//!
//! All comparisons, those of nested transactions too, see the state before the first operation. Everything is checked
//! before anything is changed.

use crate::error::MvccError;
use crate::index::Item;
use crate::range;
use crate::span::Span;
use crate::writer::{LeaseBook, Writer};
use bytes::Bytes;
use proto_etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::response_op::Response;
use proto_etcd::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// How deep transactions may nest.
const MAX_DEPTH: usize = 64;

/// Bounds on a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Comparisons, or operations of a branch.
    pub max_txn_ops: usize,
}

/// Whether a put makes sense by itself.
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
    if request.key.is_empty() { Err(MvccError::EmptyKey) } else { Ok(()) }
}

/// Whether a request makes sense by itself, before it is proposed.
pub fn check_request(request: &Request, limits: Limits) -> Result<(), MvccError> {
    match request {
        Request::RequestRange(request) => range::check(request),
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
    if depth > MAX_DEPTH {
        return Err(MvccError::InvalidTxn);
    }
    let longest = request.compare.len().max(request.success.len()).max(request.failure.len());
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

/// What a branch puts and deletes; a key may be put once, and not also be deleted.
#[derive(Default)]
struct Touched {
    puts: BTreeSet<Bytes>,
    deletes: Vec<(Bytes, Bytes)>,
}

impl Touched {
    fn deletes(&self, key: &[u8]) -> bool {
        self.deletes.iter().any(|(from, end)| Span::new(from, end).contains(key))
    }

    fn meets(&self, other: &Touched) -> bool {
        other.puts.iter().any(|key| self.puts.contains(key) || self.deletes(key))
            || self.puts.iter().any(|key| other.deletes(key))
    }

    fn merge(&mut self, other: Touched) {
        self.puts.extend(other.puts);
        self.deletes.extend(other.deletes);
    }
}

fn check_overlaps(ops: &[RequestOp]) -> Result<Touched, MvccError> {
    let mut touched = Touched::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(request)) = &op.request {
            touched.deletes.push((request.key.clone(), request.range_end.clone()));
        }
    }
    for op in ops {
        let Some(Request::RequestTxn(nested)) = &op.request else { continue };
        let mut either = check_overlaps(&nested.success)?;
        either.merge(check_overlaps(&nested.failure)?);
        if touched.meets(&either) {
            return Err(MvccError::DuplicateKey);
        }
        touched.merge(either);
    }
    for op in ops {
        let Some(Request::RequestPut(request)) = &op.request else { continue };
        if touched.deletes(&request.key) || !touched.puts.insert(request.key.clone()) {
            return Err(MvccError::DuplicateKey);
        }
    }
    Ok(touched)
}

/// Which branch each transaction takes, in the order in which they are carried out.
type Path = Vec<bool>;

impl Writer<'_> {
    /// Carries out a transaction that `check_request` has let pass.
    pub fn txn(&mut self, request: &TxnRequest, leases: &mut dyn LeaseBook) -> Result<TxnResponse, MvccError> {
        let mut path = Path::new();
        self.choose(request, &mut path)?;
        self.check_branches(request, &mut path.iter().copied(), leases)?;
        self.carry_out(request, &mut path.into_iter(), leases)
    }

    fn choose(&self, request: &TxnRequest, path: &mut Path) -> Result<(), MvccError> {
        let mut succeeded = true;
        for compare in &request.compare {
            if !self.holds(compare)? {
                succeeded = false;
                break;
            }
        }
        path.push(succeeded);
        for op in branch(request, succeeded) {
            if let Some(Request::RequestTxn(nested)) = &op.request {
                self.choose(nested, path)?;
            }
        }
        Ok(())
    }

    fn check_branches(
        &self,
        request: &TxnRequest,
        path: &mut impl Iterator<Item = bool>,
        leases: &dyn LeaseBook,
    ) -> Result<(), MvccError> {
        for op in branch(request, path.next().unwrap_or_default()) {
            match &op.request {
                Some(Request::RequestPut(request)) => self.check_put(request, leases)?,
                Some(Request::RequestRange(request)) => self.check_range(request)?,
                Some(Request::RequestTxn(nested)) => self.check_branches(nested, path, leases)?,
                Some(Request::RequestDeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        request: &TxnRequest,
        path: &mut impl Iterator<Item = bool>,
        leases: &mut dyn LeaseBook,
    ) -> Result<TxnResponse, MvccError> {
        let succeeded = path.next().unwrap_or_default();
        let mut responses = Vec::new();
        for op in branch(request, succeeded) {
            let response = match &op.request {
                Some(Request::RequestRange(request)) => Some(Response::ResponseRange(self.range(request)?)),
                Some(Request::RequestPut(request)) => Some(Response::ResponsePut(self.put(request, leases)?)),
                Some(Request::RequestDeleteRange(request)) => {
                    Some(Response::ResponseDeleteRange(self.delete_range(request, leases)?))
                }
                Some(Request::RequestTxn(nested)) => Some(Response::ResponseTxn(self.carry_out(nested, path, leases)?)),
                None => None,
            };
            responses.push(ResponseOp { response });
        }
        Ok(TxnResponse { header: self.header(), succeeded, responses })
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

    /// A value comparison of an absent key fails, whatever it asks.
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
            if !result(compare, value.as_ref().cmp(wanted.as_ref())) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn branch(request: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded { &request.success } else { &request.failure }
}

/// Compares a number of a key; an absent key has zeros.
fn holds_for(compare: &Compare, item: Option<&Item>) -> bool {
    let (version, create, modified, lease) = match item {
        Some(item) => (item.version(), item.create(), item.last.main(), item.lease()),
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
    result(compare, has.cmp(&wanted))
}

fn result(compare: &Compare, ordering: Ordering) -> bool {
    match compare.result() {
        CompareResult::Equal => ordering.is_eq(),
        CompareResult::NotEqual => ordering.is_ne(),
        CompareResult::Greater => ordering.is_gt(),
        CompareResult::Less => ordering.is_lt(),
    }
}
