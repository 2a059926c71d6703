//! Alarms: what they block, which members may raise them, and their end.

use super::{TestMachine, put};
use kv_machine::{Command, EtcdError, Outcome};
use proto_etcd::etcdserverpb as pb;
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::{AlarmRequest, AlarmType, Member, MemberRemoveRequest};

fn alarm(action: AlarmAction, member_id: u64, alarm: AlarmType) -> Command {
    Command::Alarm(AlarmRequest {
        action: action.into(),
        member_id,
        alarm: alarm.into(),
    })
}

fn raise_no_space(member_id: u64) -> Command {
    alarm(AlarmAction::Activate, member_id, AlarmType::Nospace)
}

fn raised_by(test: &TestMachine) -> Vec<u64> {
    let alarms = test.machine.list_alarms();
    alarms.iter().map(|alarm| alarm.member_id).collect()
}

/// Returns a write of each kind, its name, and whether it grows the data.
fn writes() -> Vec<(&'static str, Command, bool)> {
    let op = |request| pb::RequestOp {
        request: Some(request),
    };
    let put_op = op(Request::RequestPut(pb::PutRequest {
        key: "t".into(),
        ..pb::PutRequest::default()
    }));
    let delete = pb::DeleteRangeRequest {
        key: "a".into(),
        ..pb::DeleteRangeRequest::default()
    };
    let deleting = pb::TxnRequest {
        success: vec![op(Request::RequestDeleteRange(delete.clone()))],
        ..pb::TxnRequest::default()
    };
    let putting = pb::TxnRequest {
        failure: vec![put_op],
        ..pb::TxnRequest::default()
    };
    let compaction = pb::CompactionRequest {
        revision: 2,
        physical: false,
    };
    vec![
        ("put", put("b"), true),
        ("deletion", Command::DeleteRange(delete), false),
        ("transaction without a put", Command::Txn(deleting), false),
        (
            "transaction with a put in the other branch",
            Command::Txn(putting),
            true,
        ),
        ("compaction", Command::Compact(compaction), false),
        (
            "grant",
            Command::LeaseGrant(pb::LeaseGrantRequest { id: 2, ttl: 9 }),
            true,
        ),
        (
            "revocation",
            Command::LeaseRevoke(pb::LeaseRevokeRequest { id: 1 }),
            false,
        ),
    ]
}

fn with_a_key_and_a_lease() -> TestMachine {
    let test = TestMachine::new();
    test.apply(put("a")).unwrap();
    test.apply(Command::LeaseGrant(pb::LeaseGrantRequest { id: 1, ttl: 9 }))
        .unwrap();
    test
}

#[test]
fn no_space_blocks_what_grows_the_data() {
    let test = with_a_key_and_a_lease();
    test.apply(raise_no_space(1)).unwrap();
    for (name, command, grows) in writes() {
        let done = test.apply(command).map(drop);
        let expect = if grows {
            Err(EtcdError::NoSpace)
        } else {
            Ok(())
        };
        assert_eq!(done, expect, "{name}");
    }
}

#[test]
fn corruption_blocks_every_write() {
    let test = with_a_key_and_a_lease();
    test.apply(alarm(AlarmAction::Activate, 1, AlarmType::Corrupt))
        .unwrap();
    for (name, command, _) in writes() {
        let done = test.apply(command).map(drop);
        assert_eq!(done, Err(EtcdError::Corrupt), "{name}");
    }
}

#[test]
fn deactivation_selects_by_member_and_kind() {
    use AlarmType::{Corrupt, None as Any, Nospace};
    for (member, kind, lowered, left) in [
        (1, Nospace, 1, 2),
        (1, Any, 2, 1),
        (0, Nospace, 2, 1),
        (0, Any, 3, 0),
        (2, Corrupt, 0, 3),
    ] {
        let test = TestMachine::new();
        for (member, kind) in [(1, Nospace), (1, Corrupt), (2, Nospace)] {
            test.apply(alarm(AlarmAction::Activate, member, kind))
                .unwrap();
        }
        let shown = format!("{kind:?} of {member}");
        match test.apply(alarm(AlarmAction::Deactivate, member, kind)) {
            Ok(Outcome::Alarms(alarms)) => assert_eq!(alarms.len(), lowered, "{shown}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(test.machine.list_alarms().len(), left, "{shown}");
        assert_eq!(test.reopen().machine.list_alarms().len(), left, "{shown}");
    }
}

#[test]
fn alarms_of_a_removed_member_end_and_are_not_raised_again() {
    let test = TestMachine::new();
    for id in [1, 2] {
        let member = Member {
            id,
            peer_ur_ls: vec![format!("http://{id}:1")],
            ..Member::default()
        };
        test.apply(Command::MemberAdd(member)).unwrap();
        test.apply(raise_no_space(id)).unwrap();
    }
    assert_eq!(raised_by(&test), [1, 2]);
    test.apply(Command::MemberRemove(MemberRemoveRequest { id: 2 }))
        .unwrap();
    assert_eq!(raised_by(&test), [1]);
    test.apply(raise_no_space(2)).unwrap();
    assert_eq!(raised_by(&test), [1], "it was proposed before the removal");
    assert_eq!(raised_by(&test.reopen()), [1], "after a restart");
}
