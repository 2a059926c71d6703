//! Snapshots: what they contain, and reads while one is installed.

use super::{TestMachine, options, put, put_with_lease};
use bytes::Bytes;
use kv_engine::MemoryEngine;
use kv_machine::{Command, Login, MachineError, Nothing, SnapshotReader};
use kv_mvcc::MvccError;
use proto_etcd::etcdserverpb as pb;
use proto_etcd::etcdserverpb::RangeRequest;
use std::sync::Arc;

fn open_threaded(engine: Arc<MemoryEngine>) -> TestMachine {
    let mut options = options();
    options.own_thread = true;
    TestMachine::open(engine, options)
}

/// Returns a machine with a key whose value is only in the engine.
async fn with_a_key() -> TestMachine {
    let before = open_threaded(Arc::new(MemoryEngine::default()));
    before.apply(put("k")).unwrap();
    before.machine.flush().await.unwrap();
    // A reopened machine has the key index in memory, but the value only in the engine.
    open_threaded(before.engine)
}

async fn install(member: &TestMachine, mut snapshot: SnapshotReader) {
    let rows = || Ok(snapshot.next_rows()?);
    member.machine.install_snapshot(rows).await.unwrap();
}

#[tokio::test]
async fn reads_that_need_the_engine_are_rejected_during_an_installation() {
    let (member, leader) = (with_a_key().await, with_a_key().await);
    let mut snapshot = leader.machine.start_snapshot().await.unwrap();
    let request = RangeRequest {
        key: Bytes::from_static(b"k"),
        ..RangeRequest::default()
    };
    let store = member.machine.store();
    let mut chunks = 0;
    let rows = || {
        chunks += 1;
        if chunks == 1 {
            assert!(matches!(store.range(&request), Err(MvccError::Replaced)));
            assert!(
                matches!(store.read_history(2, 10), Err(MvccError::Replaced)),
                "a watcher would miss events"
            );
        }
        Ok(snapshot.next_rows()?)
    };
    member.machine.install_snapshot(rows).await.unwrap();
    assert!(chunks > 1);
    assert_eq!(store.range(&request).unwrap().0.kvs.len(), 1);
    assert_eq!(store.read_history(2, 10).unwrap().0.len(), 1);
}

#[tokio::test]
async fn installed_state_equals_that_of_the_leader() {
    let leader = with_a_key().await;
    let user = pb::AuthUserAddRequest {
        name: "u".to_owned(),
        ..pb::AuthUserAddRequest::default()
    };
    let member = pb::Member {
        id: 7,
        ..pb::Member::default()
    };
    for command in [
        Command::LeaseGrant(pb::LeaseGrantRequest { id: 1, ttl: 10 }),
        put_with_lease("leased", 1),
        Command::UserAdd(user),
        Command::MemberAdd(member),
        put("last"),
    ] {
        leader.apply(command).unwrap();
    }
    let follower = with_a_key().await;
    follower.apply(put("only here")).unwrap();
    install(&follower, leader.machine.start_snapshot().await.unwrap()).await;

    for test in [&follower, &open_threaded(follower.engine.clone())] {
        let machine = &test.machine;
        assert_eq!(
            machine.applied_position(),
            leader.machine.applied_position()
        );
        assert_eq!(machine.applied_index(), leader.machine.applied_index());
        assert_eq!(
            machine.store().hash_history(0).unwrap(),
            leader.machine.store().hash_history(0).unwrap()
        );
        assert_eq!(test.count_keys("only here", ""), 0);
        assert_eq!(
            machine.with_leases(|leases| leases.attached_keys(1)),
            ["leased"]
        );
        assert_eq!(machine.with_auth(|auth| auth.users().count()), 1);
        assert!(machine.with_members(|members| members.get(7).is_some()));
    }
}

#[tokio::test]
async fn snapshot_is_the_state_of_the_moment_at_which_it_was_started() {
    let leader = with_a_key().await;
    leader
        .apply(Command::LeaseGrant(pb::LeaseGrantRequest {
            id: 1,
            ttl: 10,
        }))
        .unwrap();
    let snapshot = leader.machine.start_snapshot().await.unwrap();
    let revision = snapshot.revision();
    leader.apply(put("later")).unwrap();
    leader
        .apply(Command::LeaseRevoke(pb::LeaseRevokeRequest { id: 1 }))
        .unwrap();
    leader.machine.flush().await.unwrap();
    let follower = with_a_key().await;
    install(&follower, snapshot).await;
    assert_eq!(follower.machine.store().current_revision(), revision);
    assert_eq!(follower.count_keys("later", ""), 0);
    assert!(follower.machine.with_leases(|leases| leases.contains(1)));
}

#[tokio::test]
async fn compacted_history_stays_readable_for_a_snapshot() {
    let leader = with_a_key().await;
    leader.apply(put("k")).unwrap();
    leader.apply(put("k")).unwrap();
    let snapshot = leader.machine.start_snapshot().await.unwrap();
    let compaction = pb::CompactionRequest {
        revision: 4,
        physical: false,
    };
    leader.apply(Command::Compact(compaction)).unwrap();
    let store = leader.machine.store().clone();
    let compacting = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        ended = store.run_compactor() => panic!("{ended:?}"),
        () = compacting => {}
    }
    let follower = with_a_key().await;
    install(&follower, snapshot).await;
    let (found, _) = follower.machine.store().read_history(2, 10).unwrap();
    assert_eq!(found.len(), 3);
}

#[tokio::test]
async fn interrupted_installation_leaves_an_empty_state() {
    let (member, leader) = (with_a_key().await, with_a_key().await);
    let mut snapshot = leader.machine.start_snapshot().await.unwrap();
    let mut chunks = 0;
    let rows = || {
        chunks += 1;
        if chunks == 2 {
            return Err(MachineError::Damaged("rows"));
        }
        Ok(snapshot.next_rows()?)
    };
    assert!(member.machine.install_snapshot(rows).await.is_err());
    let engine = member.engine.clone();
    drop(member);
    let member = open_threaded(engine);
    assert!(member.machine.is_incomplete());
    assert_eq!(member.machine.applied_index(), 0);
    assert_eq!(member.count_keys("\0", "\0"), 0);

    install(&member, leader.machine.start_snapshot().await.unwrap()).await;
    assert!(!open_threaded(member.engine.clone()).machine.is_incomplete());
    assert_eq!(member.count_keys("k", ""), 1);
}

#[tokio::test]
async fn installation_invalidates_tokens_and_notifies_watchers_of_permissions() {
    let (member, leader) = (with_a_key().await, with_a_key().await);
    for name in ["root", "u"] {
        let user = pb::AuthUserAddRequest {
            name: name.to_owned(),
            ..pb::AuthUserAddRequest::default()
        };
        member.apply(Command::UserAdd(user)).unwrap();
    }
    let root = pb::AuthUserGrantRoleRequest {
        user: "root".to_owned(),
        role: "root".to_owned(),
    };
    member.apply(Command::UserGrantRole(root)).unwrap();
    member.apply(Command::AuthEnable(Nothing {})).unwrap();
    let login = Login {
        user: "u".to_owned(),
        digest: "d".to_owned(),
    };
    member.apply(Command::Authenticate(login)).unwrap();
    let token = format!("d.{}", member.machine.applied_index());
    assert!(member.machine.token_user(&token).is_some());
    let mut changed = member.machine.rights_changed();
    changed.borrow_and_update();
    install(&member, leader.machine.start_snapshot().await.unwrap()).await;
    assert!(member.machine.token_user(&token).is_none());
    assert!(changed.has_changed().unwrap());
}
