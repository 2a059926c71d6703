//! Transactions: comparisons, branches and their order.

use super::{TestStore, put_request, range_request};
use crate::{Limits, MvccError, check_request};
use proto_etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::response_op::Response;
use proto_etcd::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

fn op(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

fn put_op(key: &'static str, value: &'static str) -> RequestOp {
    op(Request::RequestPut(put_request(key, value)))
}

fn range_op(key: &'static str) -> RequestOp {
    op(Request::RequestRange(range_request(key, "")))
}

fn delete_op(key: &'static str, range_end: &'static str) -> RequestOp {
    op(Request::RequestDeleteRange(DeleteRangeRequest {
        key: key.into(),
        range_end: range_end.into(),
        prev_kv: false,
    }))
}

fn compare(key: &'static str, result: CompareResult, target: TargetUnion) -> Compare {
    let kind = match &target {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    Compare {
        result: result.into(),
        target: kind.into(),
        key: key.into(),
        target_union: Some(target),
        ..Compare::default()
    }
}

fn txn(compare: Vec<Compare>, success: Vec<RequestOp>, failure: Vec<RequestOp>) -> TxnRequest {
    TxnRequest {
        compare,
        success,
        failure,
    }
}

#[test]
fn comparison_of_each_target_decides_the_branch() {
    use CompareResult::{Equal, Greater, Less, NotEqual};
    use TargetUnion::{CreateRevision, Lease, ModRevision, Value, Version};
    let store = TestStore::new();
    store.put("a", "m");
    store.put("a", "m");
    for (key, result, target, expect) in [
        ("a", Equal, Version(2), true),
        ("a", Greater, Version(2), false),
        ("a", Equal, CreateRevision(2), true),
        ("a", Less, CreateRevision(2), false),
        ("a", Greater, ModRevision(2), true),
        ("a", NotEqual, ModRevision(3), false),
        ("a", Equal, Value("m".into()), true),
        ("a", Less, Value("n".into()), true),
        ("a", Greater, Value("ma".into()), false),
        ("a", Equal, Lease(0), true),
        ("absent", Equal, Version(0), true),
        ("absent", Equal, CreateRevision(0), true),
        ("absent", Greater, ModRevision(0), false),
        ("absent", Equal, Value("".into()), false),
        ("absent", NotEqual, Value("m".into()), false),
    ] {
        let shown = format!("{key} {result:?} {target:?}");
        let request = txn(vec![compare(key, result, target)], vec![], vec![]);
        assert_eq!(store.txn(&request).unwrap().succeeded, expect, "{shown}");
    }
}

#[test]
fn comparison_of_a_range_holds_only_for_all_of_its_keys() {
    let store = TestStore::new();
    store.put("a1", "x");
    store.put("a2", "y");
    for (target, expect) in [
        (TargetUnion::Version(1), true),
        (TargetUnion::ModRevision(2), false),
        (TargetUnion::Value("x".into()), false),
    ] {
        let shown = format!("{target:?}");
        let compare = Compare {
            range_end: "b".into(),
            ..compare("a", CompareResult::Equal, target)
        };
        let request = txn(vec![compare], vec![], vec![]);
        assert_eq!(store.txn(&request).unwrap().succeeded, expect, "{shown}");
    }
}

#[test]
fn all_comparisons_must_hold() {
    let store = TestStore::new();
    store.put("a", "1");
    let holds = || compare("a", CompareResult::Equal, TargetUnion::Version(1));
    let fails = || compare("b", CompareResult::Equal, TargetUnion::Version(1));
    for (compares, expect) in [
        (vec![], true),
        (vec![holds(), holds()], true),
        (vec![holds(), fails()], false),
        (vec![fails(), holds()], false),
    ] {
        let shown = format!("{compares:?}");
        let response = store.txn(&txn(compares, vec![], vec![])).unwrap();
        assert_eq!(response.succeeded, expect, "{shown}");
    }
}

#[test]
fn all_writes_share_one_revision() {
    let store = TestStore::new();
    let request = txn(
        vec![],
        vec![put_op("a", "1"), put_op("b", "2"), delete_op("c", "")],
        vec![],
    );
    let response = store.txn(&request).unwrap();
    assert_eq!(response.header.unwrap().revision, 2);
    assert_eq!(store.get("a", 0).unwrap().mod_revision, 2);
    assert_eq!(store.get("b", 0).unwrap().mod_revision, 2);
}

#[test]
fn transaction_without_a_write_makes_no_revision() {
    let store = TestStore::new();
    store.put("a", "1");
    let request = txn(vec![], vec![range_op("a"), delete_op("absent", "")], vec![]);
    let response = store.txn(&request).unwrap();
    assert_eq!(response.header.unwrap().revision, 2);
    assert_eq!(store.store.current_revision(), 2);
}

#[test]
fn operation_sees_the_writes_before_it() {
    let store = TestStore::new();
    let request = txn(
        vec![],
        vec![
            range_op("a"),
            put_op("a", "1"),
            range_op("a"),
            delete_op("a", "b"),
        ],
        vec![],
    );
    // The duplicate check rejects the put together with the deletion; here only the order matters.
    let response = store.txn(&request).unwrap();
    let counts: Vec<i64> = response
        .responses
        .iter()
        .filter_map(|op| match &op.response {
            Some(Response::ResponseRange(range)) => Some(range.count),
            Some(Response::ResponseDeleteRange(deletion)) => Some(deletion.deleted),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [0, 1, 1]);
}

#[test]
fn nested_comparison_sees_the_state_before_the_transaction() {
    let store = TestStore::new();
    let exists = compare("a", CompareResult::Greater, TargetUnion::Version(0));
    let nested = txn(
        vec![exists],
        vec![put_op("seen", "")],
        vec![put_op("unseen", "")],
    );
    let request = txn(
        vec![],
        vec![put_op("a", "1"), op(Request::RequestTxn(nested))],
        vec![],
    );
    store.txn(&request).unwrap();
    assert!(store.get("seen", 0).is_none());
    assert!(store.get("unseen", 0).is_some());
}

#[test]
fn invalid_operation_in_the_chosen_branch_changes_nothing() {
    let store = TestStore::new();
    let without_key = PutRequest {
        ignore_value: true,
        ..put_request("absent", "")
    };
    let in_future = RangeRequest {
        revision: 99,
        ..range_request("a", "")
    };
    for invalid in [
        Request::RequestPut(without_key),
        Request::RequestRange(in_future),
    ] {
        let shown = format!("{invalid:?}");
        let request = txn(vec![], vec![put_op("a", "1"), op(invalid)], vec![]);
        assert!(store.txn(&request).is_err(), "{shown}");
        assert_eq!(store.store.current_revision(), 1, "{shown}");
        assert!(store.get("a", 0).is_none(), "{shown}");
    }
}

#[test]
fn key_may_be_written_once_per_branch() {
    let nested = |op_in: RequestOp| op(Request::RequestTxn(txn(vec![], vec![op_in], vec![])));
    for (ops, valid) in [
        (vec![put_op("a", ""), put_op("b", "")], true),
        (vec![put_op("a", ""), put_op("a", "")], false),
        (vec![put_op("a", ""), delete_op("a", "")], false),
        (vec![delete_op("a", "c"), put_op("b", "")], false),
        (vec![delete_op("a", "c"), put_op("c", "")], true),
        (vec![delete_op("a", ""), delete_op("a", "")], true),
        (vec![put_op("a", ""), nested(put_op("a", ""))], false),
        (vec![range_op("a"), put_op("a", "")], true),
    ] {
        let shown = format!("{ops:?}");
        let request = Request::RequestTxn(txn(vec![], ops, vec![]));
        let checked = check_request(&request, Limits { max_txn_ops: 128 });
        assert_eq!(checked.is_ok(), valid, "{shown}: {checked:?}");
    }
}

#[test]
fn branches_of_one_transaction_may_write_the_same_key() {
    let request = Request::RequestTxn(txn(vec![], vec![put_op("a", "1")], vec![put_op("a", "2")]));
    assert!(check_request(&request, Limits { max_txn_ops: 1 }).is_ok());
}

#[test]
fn too_many_operations_are_rejected() {
    let ops = |count: usize| vec![range_op("a"); count];
    let holds = compare("a", CompareResult::Equal, TargetUnion::Version(0));
    for (request, valid) in [
        (txn(vec![], ops(3), ops(3)), true),
        (txn(vec![], ops(4), vec![]), false),
        (txn(vec![], vec![], ops(4)), false),
        (txn(vec![holds; 4], vec![], vec![]), false),
    ] {
        let checked = check_request(&Request::RequestTxn(request), Limits { max_txn_ops: 3 });
        assert_eq!(checked.is_ok(), valid, "{checked:?}");
    }
}

#[test]
fn deep_nesting_is_rejected() {
    let nest = |depth: usize| {
        let inner = txn(vec![], vec![], vec![]);
        (0..depth).fold(inner, |inner, _| {
            txn(vec![], vec![op(Request::RequestTxn(inner))], vec![])
        })
    };
    for (depth, valid) in [(64, true), (65, false)] {
        let checked = check_request(&Request::RequestTxn(nest(depth)), Limits { max_txn_ops: 9 });
        assert_eq!(checked.is_ok(), valid, "{depth} levels");
        if !valid {
            assert!(matches!(checked, Err(MvccError::InvalidTxn)));
        }
    }
}
