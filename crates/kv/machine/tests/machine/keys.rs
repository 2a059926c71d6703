//! Entries, envelopes and replies.

use super::{MEMBER, TestMachine, options, put};
use bytes::Bytes;
use kv_machine::{Code, Command, Envelope, EtcdError, Machine, Outcome};
use kv_mvcc::MvccError;
use proto_etcd::etcdserverpb::{CompactionRequest, DeleteRangeRequest, PutRequest};
use std::time::Duration;

fn envelope(command: Command) -> Envelope {
    Envelope {
        origin: MEMBER,
        internal: true,
        command: Some(command),
        ..Envelope::default()
    }
}

#[test]
fn each_command_of_an_entry_has_its_own_revision_and_reply() {
    let test = TestMachine::new();
    let missing = Command::Put(PutRequest {
        key: "absent".into(),
        ignore_value: true,
        ..PutRequest::default()
    });
    let entry = [put("a"), missing, put("b")].map(envelope).into();
    let replies: Vec<_> = test.apply_entry(entry).into_iter().flatten().collect();
    let revisions: Vec<_> = replies.iter().map(|reply| reply.revision).collect();
    assert_eq!(revisions, [2, 2, 3], "a rejected command makes no revision");
    assert!(matches!(replies[0].result, Ok(Outcome::Put(_))));
    assert!(matches!(replies[1].result, Err(EtcdError::KeyNotFound)));
}

#[test]
fn only_the_member_that_proposed_a_command_replies() {
    let test = TestMachine::new();
    let foreign = Envelope {
        origin: MEMBER + 1,
        ..envelope(put("a"))
    };
    let replies = test.apply_entry(vec![foreign, envelope(put("b"))]);
    assert_eq!([replies[0].is_some(), replies[1].is_some()], [false, true]);
    assert_eq!(test.count_keys("a", "c"), 2, "both are applied");
}

#[test]
fn cancelled_request_gets_no_reply_and_is_applied() {
    let test = TestMachine::new();
    let (request, mut receiver) = test.machine.register_request();
    test.machine.cancel_request(request);
    test.apply(put("a")).unwrap();
    assert!(receiver.try_recv().is_err());
    assert_eq!(test.count_keys("a", ""), 1);
}

#[test]
fn entry_that_can_not_be_decoded_is_skipped() {
    let test = TestMachine::new();
    test.machine
        .apply(1, Bytes::new(), None, Some(Bytes::from_static(b"\xff\xff")));
    assert_eq!(test.machine.applied_index(), 1);
    assert_eq!(test.machine.store().current_revision(), 1);
}

#[test]
fn position_and_membership_are_stored_with_the_state() {
    let test = TestMachine::new();
    let position = Bytes::from_static(b"\0\0\0\0\0\0\0\x07 and more");
    let membership = Bytes::from_static(b"members");
    test.machine
        .apply(7, position.clone(), Some(membership.clone()), None);
    let test = test.reopen();
    assert_eq!(test.machine.applied_index(), 7);
    let found = test.machine.applied_position();
    assert_eq!((found.position, found.membership), (position, membership));
}

#[test]
fn membership_stays_when_an_entry_does_not_change_it() {
    let test = TestMachine::new();
    let membership = Bytes::from_static(b"members");
    test.machine
        .apply(1, Bytes::new(), Some(membership.clone()), None);
    test.apply(put("a")).unwrap();
    assert_eq!(test.machine.applied_position().membership, membership);
}

#[test]
fn engine_that_lags_behind_is_completed_by_applying_the_log_again() {
    let test = TestMachine::new();
    test.apply(put("a")).unwrap();
    while test.machine.drain_queue() {}
    test.apply(put("b")).unwrap();
    // The process stops before the second entry reaches the engine.
    let again = TestMachine::open(test.engine.clone(), options());
    assert_eq!(again.machine.applied_index(), 1);
    again.apply(put("b")).unwrap();
    assert_eq!(again.machine.store().current_revision(), 3);
    let hashes = [&test, &again].map(|test| test.machine.store().hash_history(0).unwrap().0);
    assert_eq!(hashes[0], hashes[1]);
}

#[test]
fn compaction_is_rejected_like_in_etcd() {
    let test = TestMachine::new();
    test.apply(put("a")).unwrap();
    for (revision, expect) in [
        (3, Err(EtcdError::Future)),
        (2, Ok(())),
        (2, Err(EtcdError::Compacted)),
    ] {
        let request = CompactionRequest {
            revision,
            physical: false,
        };
        let done = test.apply(Command::Compact(request)).map(drop);
        assert_eq!(done, expect, "revision {revision}");
    }
}

#[test]
fn deletion_counts_its_keys() {
    let test = TestMachine::new();
    for key in ["a", "b", "c"] {
        test.apply(put(key)).unwrap();
    }
    let request = DeleteRangeRequest {
        key: "a".into(),
        range_end: "c".into(),
        ..DeleteRangeRequest::default()
    };
    match test.apply(Command::DeleteRange(request)) {
        Ok(Outcome::DeleteRange(response)) => assert_eq!(response.deleted, 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn slow_commands_are_counted() {
    for (slow_apply, count) in [(Duration::MAX, 0), (Duration::ZERO, 1)] {
        let mut options = options();
        options.slow_apply = slow_apply;
        let test = TestMachine::open(TestMachine::new().engine, options);
        test.apply(put("a")).unwrap();
        assert_eq!(test.machine.slow_applies(), count, "above {slow_apply:?}");
    }
}

#[test]
fn errors_of_the_store_have_the_codes_of_etcd() {
    for (error, code) in [
        (MvccError::Compacted, Code::OutOfRange),
        (MvccError::Future, Code::OutOfRange),
        (MvccError::LeaseNotFound, Code::NotFound),
        (MvccError::EmptyKey, Code::InvalidArgument),
        (MvccError::DuplicateKey, Code::InvalidArgument),
        (MvccError::TooManyOps, Code::InvalidArgument),
        (MvccError::Damaged(3), Code::DataLoss),
        (MvccError::Replaced, Code::Unavailable),
    ] {
        let shown = error.to_string();
        assert_eq!(EtcdError::from(error).grpc_code(), code, "{shown}");
    }
}

#[test]
fn damaged_record_stops_the_start() {
    use kv_engine::{Batch, Engine, Table};
    let test = TestMachine::new();
    test.apply(put("a")).unwrap();
    while test.machine.drain_queue() {}
    let mut batch = Batch::default();
    let key = kv_mvcc::Mark::new(2, 0, false).engine_key();
    batch.put(Table::Revisions, key, b"\xff\xff".to_vec());
    test.engine.write_batch(batch).unwrap();
    let error = Machine::open(test.engine, options()).err().unwrap();
    assert!(error.is_damage(), "{error}");
}
