//! Random commands. Few keys and short ranges make conflicts likely.

use bytes::Bytes;
use proptest::prelude::*;
use proto_etcd::etcdserverpb::compare::{CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

#[derive(Clone, Debug)]
pub enum Command {
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Range(RangeRequest),
    Grant(i64),
    Revoke(i64),
    /// Compacts to this part of the history, in 255ths.
    Compact(u8),
    /// Deletes compacted records.
    Reclaim,
    Restart,
}

pub fn commands() -> impl Strategy<Value = Vec<Command>> {
    let one = prop_oneof![
        8 => put().prop_map(Command::Put),
        3 => delete().prop_map(Command::Delete),
        6 => txn().prop_map(Command::Txn),
        6 => range().prop_map(Command::Range),
        2 => lease().prop_map(Command::Grant),
        1 => lease().prop_map(Command::Revoke),
        1 => any::<u8>().prop_map(Command::Compact),
        1 => Just(Command::Reclaim),
        1 => Just(Command::Restart),
    ];
    proptest::collection::vec(one, 1..60)
}

fn key() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(b'a'..b'd', 1..3).prop_map(Bytes::from)
}

fn end() -> impl Strategy<Value = Bytes> {
    prop_oneof![3 => Just(Bytes::new()), 1 => Just(Bytes::from_static(b"\0")), 3 => key()]
}

fn value() -> impl Strategy<Value = Bytes> {
    (0..5_u8).prop_map(|byte| Bytes::from(vec![byte; usize::from(byte)]))
}

fn lease() -> impl Strategy<Value = i64> {
    1..4_i64
}

/// Generates zero in most cases.
fn seldom(number: impl Strategy<Value = i64>) -> impl Strategy<Value = i64> {
    prop_oneof![4 => Just(0_i64), 1 => number]
}

fn put() -> impl Strategy<Value = PutRequest> {
    let rarely = proptest::bool::weighted(0.15);
    (
        key(),
        value(),
        seldom(lease()),
        any::<bool>(),
        rarely,
        rarely,
    )
        .prop_map(
            |(key, value, lease, prev_kv, ignore_value, ignore_lease)| PutRequest {
                value: if ignore_value { Bytes::new() } else { value },
                lease: if ignore_lease { 0 } else { lease },
                key,
                prev_kv,
                ignore_value,
                ignore_lease,
            },
        )
}

fn delete() -> impl Strategy<Value = DeleteRangeRequest> {
    (key(), end(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| DeleteRangeRequest {
        key,
        range_end,
        prev_kv,
    })
}

fn range() -> impl Strategy<Value = RangeRequest> {
    let rarely = proptest::bool::weighted(0.15);
    let bounds = [
        seldom(1..30_i64),
        seldom(1..30_i64),
        seldom(1..30_i64),
        seldom(1..30_i64),
    ];
    (
        key(),
        end(),
        0..4_i64,
        seldom(-1..30_i64),
        0..3_i32,
        0..5_i32,
        rarely,
        rarely,
        bounds,
    )
        .prop_map(
            |(
                key,
                range_end,
                limit,
                revision,
                sort_order,
                sort_target,
                keys_only,
                count_only,
                bounds,
            )| RangeRequest {
                key,
                range_end,
                limit,
                revision,
                sort_order,
                sort_target,
                keys_only,
                count_only,
                min_mod_revision: bounds[0],
                max_mod_revision: bounds[1],
                min_create_revision: bounds[2],
                max_create_revision: bounds[3],
                ..RangeRequest::default()
            },
        )
}

fn compare() -> impl Strategy<Value = Compare> {
    let target = prop_oneof![
        (0..4_i64).prop_map(|n| (CompareTarget::Version, TargetUnion::Version(n))),
        (0..20_i64).prop_map(|n| (CompareTarget::Create, TargetUnion::CreateRevision(n))),
        (0..20_i64).prop_map(|n| (CompareTarget::Mod, TargetUnion::ModRevision(n))),
        value().prop_map(|value| (CompareTarget::Value, TargetUnion::Value(value))),
        (0..4_i64).prop_map(|n| (CompareTarget::Lease, TargetUnion::Lease(n))),
    ];
    (key(), end(), 0..4_i32, target).prop_map(|(key, range_end, result, (target, union))| Compare {
        key,
        range_end,
        result,
        target: target.into(),
        target_union: Some(union),
    })
}

fn branches(op: impl Strategy<Value = RequestOp> + Clone) -> impl Strategy<Value = TxnRequest> {
    let branch = proptest::collection::vec(op, 0..4);
    (
        proptest::collection::vec(compare(), 0..3),
        branch.clone(),
        branch,
    )
        .prop_map(|(compare, success, failure)| TxnRequest {
            compare,
            success,
            failure,
        })
}

fn txn() -> impl Strategy<Value = TxnRequest> {
    let one = prop_oneof![
        3 => put().prop_map(Request::RequestPut),
        1 => delete().prop_map(Request::RequestDeleteRange),
        2 => range().prop_map(Request::RequestRange),
    ];
    let leaf = one.prop_map(|request| RequestOp {
        request: Some(request),
    });
    let tree = leaf.prop_recursive(2, 12, 3, |inner| {
        branches(inner).prop_map(|request| RequestOp {
            request: Some(Request::RequestTxn(request)),
        })
    });
    branches(tree)
}
