//! Leases in the log: grant, revocation and checkpoints.

use super::{TestMachine, put, put_with_lease};
use kv_machine::{Command, EtcdError, Outcome};
use proto_etcd::etcdserverpb::{
    LeaseCheckpoint, LeaseCheckpointRequest, LeaseGrantRequest, LeaseRevokeRequest,
};
use std::time::{Duration, Instant};

fn grant(id: i64, ttl: i64) -> Command {
    Command::LeaseGrant(LeaseGrantRequest { id, ttl })
}

fn revoke(id: i64) -> Command {
    Command::LeaseRevoke(LeaseRevokeRequest { id })
}

fn checkpoint(id: i64, remaining_ttl: i64) -> Command {
    Command::LeaseCheckpoint(LeaseCheckpointRequest {
        checkpoints: vec![LeaseCheckpoint { id, remaining_ttl }],
    })
}

/// Returns the time in seconds that a new leader leaves the lease.
fn left_for_a_new_leader(test: &TestMachine, id: i64) -> Option<i64> {
    let now = Instant::now();
    test.machine.with_leases(|leases| {
        leases.become_leader(now, Duration::ZERO);
        let left = leases.lease_info(id, now).and_then(|info| info.left);
        leases.become_follower();
        left
    })
}

#[test]
fn grant_rejects_existing_ids_and_too_large_ttls() {
    let test = TestMachine::new();
    for (id, ttl, expect) in [
        (1, 10, Ok(())),
        (1, 20, Err(EtcdError::LeaseExists)),
        (2, 9_000_000_000, Ok(())),
        (3, 9_000_000_001, Err(EtcdError::LeaseTtlTooLarge)),
    ] {
        let done = test.apply(grant(id, ttl));
        if let Ok(Outcome::LeaseGrant {
            id: granted,
            ttl: with,
        }) = &done
        {
            assert_eq!((*granted, *with), (id, ttl));
        }
        assert_eq!(done.map(drop), expect, "lease {id} of {ttl} s");
    }
}

#[test]
fn revocation_deletes_the_keys_in_one_revision() {
    let test = TestMachine::new();
    test.apply(grant(1, 10)).unwrap();
    for key in ["a", "b"] {
        test.apply(put_with_lease(key, 1)).unwrap();
    }
    test.apply(put("c")).unwrap();
    let before = test.machine.store().current_revision();
    test.apply(revoke(1)).unwrap();
    assert_eq!(test.machine.store().current_revision(), before + 1);
    assert_eq!(test.count_keys("a", "z"), 1);
    assert_eq!(
        test.apply(revoke(1)).map(drop),
        Err(EtcdError::LeaseNotFound)
    );
}

#[test]
fn lease_without_keys_is_revoked_without_a_revision() {
    let test = TestMachine::new();
    test.apply(grant(1, 10)).unwrap();
    test.apply(revoke(1)).unwrap();
    assert_eq!(test.machine.store().current_revision(), 1);
}

#[test]
fn put_on_an_unknown_lease_is_rejected() {
    let test = TestMachine::new();
    let done = test.apply(put_with_lease("a", 9)).map(drop);
    assert_eq!(done, Err(EtcdError::LeaseNotFound));
    assert_eq!(test.count_keys("a", ""), 0);
}

#[test]
fn leases_keys_and_checkpoints_survive_a_restart() {
    let test = TestMachine::new();
    test.apply(grant(1, 1_000)).unwrap();
    test.apply(grant(2, 1_000)).unwrap();
    test.apply(grant(3, 1_000)).unwrap();
    test.apply(put_with_lease("a", 1)).unwrap();
    test.apply(checkpoint(1, 400)).unwrap();
    test.apply(revoke(2)).unwrap();
    let test = test.reopen();
    assert_eq!(left_for_a_new_leader(&test, 1), Some(400));
    assert_eq!(left_for_a_new_leader(&test, 2), None);
    assert_eq!(left_for_a_new_leader(&test, 3), Some(1_000));
    let keys = test.machine.with_leases(|leases| leases.attached_keys(1));
    assert_eq!(keys, ["a"]);
}

#[test]
fn checkpoint_of_zero_clears_the_former_one() {
    let test = TestMachine::new();
    test.apply(grant(1, 1_000)).unwrap();
    test.apply(checkpoint(1, 400)).unwrap();
    test.apply(checkpoint(1, 0)).unwrap();
    test.apply(checkpoint(7, 5)).unwrap();
    assert_eq!(left_for_a_new_leader(&test, 1), Some(1_000));
    assert_eq!(left_for_a_new_leader(&test.reopen(), 1), Some(1_000));
}
