//! Members of the cluster.

use super::TestMachine;
use kv_machine::{Command, EtcdError};
use proto_etcd::etcdserverpb::{
    Member, MemberListResponse, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest,
};

fn member(id: u64, is_learner: bool) -> Member {
    Member {
        id,
        peer_ur_ls: vec![format!("http://m{id}:2380")],
        is_learner,
        ..Member::default()
    }
}

fn with_members(voters: &[u64]) -> TestMachine {
    let test = TestMachine::new();
    let members = voters.iter().map(|id| member(*id, false)).collect();
    let list = MemberListResponse {
        members,
        ..MemberListResponse::default()
    };
    test.apply(Command::MembersInit(list)).unwrap();
    test
}

fn ids(test: &TestMachine) -> Vec<u64> {
    test.machine
        .with_members(|members| members.list().iter().map(|member| member.id).collect())
}

#[test]
fn member_is_added_once_with_urls_of_its_own() {
    let test = with_members(&[1, 2]);
    let same_url = Member {
        peer_ur_ls: member(2, false).peer_ur_ls,
        ..member(3, false)
    };
    for (added, expect) in [
        (member(2, false), Err(EtcdError::MemberExists)),
        (same_url, Err(EtcdError::PeerUrlExists)),
        (member(3, false), Ok(())),
    ] {
        let shown = format!("{added:?}");
        assert_eq!(
            test.apply(Command::MemberAdd(added)).map(drop),
            expect,
            "{shown}"
        );
    }
    assert_eq!(ids(&test), [1, 2, 3]);
}

#[test]
fn number_of_learners_is_limited() {
    let test = with_members(&[1]);
    assert!(test.apply(Command::MemberAdd(member(2, true))).is_ok());
    let third = test.apply(Command::MemberAdd(member(3, true))).map(drop);
    assert_eq!(third, Err(EtcdError::TooManyLearners));
    test.apply(Command::MemberPromote(MemberPromoteRequest { id: 2 }))
        .unwrap();
    assert!(test.apply(Command::MemberAdd(member(3, true))).is_ok());
}

#[test]
fn only_a_learner_is_promoted() {
    let test = with_members(&[1]);
    test.apply(Command::MemberAdd(member(2, true))).unwrap();
    for (id, expect) in [
        (9, Err(EtcdError::MemberNotFound)),
        (1, Err(EtcdError::NotLearner)),
        (2, Ok(())),
        (2, Err(EtcdError::NotLearner)),
    ] {
        let done = test.apply(Command::MemberPromote(MemberPromoteRequest { id }));
        assert_eq!(done.map(drop), expect, "member {id}");
    }
}

#[test]
fn removed_id_is_never_added_again() {
    let test = with_members(&[1, 2]);
    test.apply(Command::MemberRemove(MemberRemoveRequest { id: 2 }))
        .unwrap();
    let again = test.apply(Command::MemberAdd(member(2, false))).map(drop);
    assert_eq!(again, Err(EtcdError::MemberExists));
    let test = test.reopen();
    assert_eq!(ids(&test), [1]);
    assert!(test.machine.with_members(|members| members.was_removed(2)));
}

#[test]
fn peer_urls_may_move_but_not_to_those_of_another_member() {
    let test = with_members(&[1, 2]);
    for (id, url, expect) in [
        (2, "http://m1:2380", Err(EtcdError::PeerUrlExists)),
        (2, "http://m2:2380", Ok(())),
        (2, "http://new:2380", Ok(())),
        (9, "http://m9:2380", Err(EtcdError::MemberNotFound)),
    ] {
        let request = MemberUpdateRequest {
            id,
            peer_ur_ls: vec![url.to_owned()],
        };
        let done = test.apply(Command::MemberUpdate(request)).map(drop);
        assert_eq!(done, expect, "member {id} to {url}");
    }
}

#[test]
fn initial_members_are_set_only_once() {
    let test = with_members(&[1, 2]);
    let list = MemberListResponse {
        members: vec![member(3, false)],
        ..MemberListResponse::default()
    };
    test.apply(Command::MembersInit(list)).unwrap();
    assert_eq!(ids(&test), [1, 2]);
}

#[test]
fn force_new_cluster_leaves_one_voter() {
    let test = with_members(&[1, 2, 3]);
    test.apply(Command::MemberAlone(member(2, true))).unwrap();
    let test = test.reopen();
    assert_eq!(ids(&test), [2]);
    test.machine.with_members(|members| {
        assert!(!members.get(2).unwrap().is_learner);
        assert_eq!(members.removed_ids().collect::<Vec<_>>(), [1, 3]);
    });
}
