//! Permissions, checked when a command is applied.

use super::{MEMBER, TestMachine, put, put_with_lease};
use kv_auth::Access;
use kv_machine::{Caller, Command, Envelope, EtcdError, Nothing};
use proto_etcd::authpb::Permission;
use proto_etcd::authpb::permission::Type;
use proto_etcd::etcdserverpb as pb;
use proto_etcd::etcdserverpb::request_op::Request;

/// Returns a machine with auth. User `u` may read `a` to `m` and write `a` to `f`.
fn with_auth() -> TestMachine {
    let test = TestMachine::new();
    let user = |name: &str| {
        Command::UserAdd(pb::AuthUserAddRequest {
            name: name.to_owned(),
            ..pb::AuthUserAddRequest::default()
        })
    };
    let grant = |user: &str, role: &str| {
        Command::UserGrantRole(pb::AuthUserGrantRoleRequest {
            user: user.to_owned(),
            role: role.to_owned(),
        })
    };
    let permit = |kind: Type, end: &'static str| {
        Command::RoleGrantPermission(pb::AuthRoleGrantPermissionRequest {
            name: "r".to_owned(),
            perm: Some(Permission {
                perm_type: kind.into(),
                key: "a".into(),
                range_end: end.into(),
            }),
        })
    };
    let role = Command::RoleAdd(pb::AuthRoleAddRequest {
        name: "r".to_owned(),
    });
    for command in [
        user("root"),
        user("u"),
        user("other"),
        grant("root", "root"),
        role,
        grant("u", "r"),
        permit(Type::Read, "m"),
        permit(Type::Readwrite, "f"),
        Command::AuthEnable(Nothing {}),
    ] {
        test.apply(command).unwrap();
    }
    test
}

fn range_op(key: &'static str) -> pb::RequestOp {
    let request = pb::RangeRequest {
        key: key.into(),
        ..pb::RangeRequest::default()
    };
    pb::RequestOp {
        request: Some(Request::RequestRange(request)),
    }
}

fn put_op(key: &'static str) -> pb::RequestOp {
    let request = pb::PutRequest {
        key: key.into(),
        ..pb::PutRequest::default()
    };
    pb::RequestOp {
        request: Some(Request::RequestPut(request)),
    }
}

fn compare(key: &'static str, range_end: &'static str) -> pb::Compare {
    pb::Compare {
        key: key.into(),
        range_end: range_end.into(),
        ..pb::Compare::default()
    }
}

#[test]
fn put_needs_write_permission_for_its_key() {
    let test = with_auth();
    for (user, key, expect) in [
        ("u", "b", Ok(())),
        ("u", "f", Err(EtcdError::Denied)),
        ("u", "z", Err(EtcdError::Denied)),
        ("other", "b", Err(EtcdError::Denied)),
        ("unknown", "b", Err(EtcdError::Denied)),
        ("", "b", Err(EtcdError::UserEmpty)),
        ("root", "z", Ok(())),
    ] {
        assert_eq!(
            test.apply_as(user, put(key)).map(drop),
            expect,
            "{user:?}: {key}"
        );
    }
}

#[test]
fn previous_pairs_need_read_permission() {
    let test = TestMachine::new();
    let write_only = Permission {
        perm_type: Type::Write.into(),
        key: "a".into(),
        ..Permission::default()
    };
    for command in [
        Command::UserAdd(pb::AuthUserAddRequest {
            name: "root".to_owned(),
            ..pb::AuthUserAddRequest::default()
        }),
        Command::UserGrantRole(pb::AuthUserGrantRoleRequest {
            user: "root".to_owned(),
            role: "root".to_owned(),
        }),
        Command::UserAdd(pb::AuthUserAddRequest {
            name: "w".to_owned(),
            ..pb::AuthUserAddRequest::default()
        }),
        Command::RoleAdd(pb::AuthRoleAddRequest {
            name: "w".to_owned(),
        }),
        Command::RoleGrantPermission(pb::AuthRoleGrantPermissionRequest {
            name: "w".to_owned(),
            perm: Some(write_only),
        }),
        Command::UserGrantRole(pb::AuthUserGrantRoleRequest {
            user: "w".to_owned(),
            role: "w".to_owned(),
        }),
        Command::AuthEnable(Nothing {}),
    ] {
        test.apply(command).unwrap();
    }
    for (prev_kv, expect) in [(false, Ok(())), (true, Err(EtcdError::Denied))] {
        let put = pb::PutRequest {
            key: "a".into(),
            prev_kv,
            ..pb::PutRequest::default()
        };
        let delete = pb::DeleteRangeRequest {
            key: "a".into(),
            prev_kv,
            ..pb::DeleteRangeRequest::default()
        };
        for command in [Command::Put(put), Command::DeleteRange(delete)] {
            let shown = format!("{command:?}");
            assert_eq!(test.apply_as("w", command).map(drop), expect, "{shown}");
        }
    }
}

#[test]
fn transaction_needs_permission_for_every_key_of_every_branch() {
    let test = with_auth();
    let nested = pb::RequestOp {
        request: Some(Request::RequestTxn(pb::TxnRequest {
            failure: vec![put_op("z")],
            ..pb::TxnRequest::default()
        })),
    };
    for (compare, success, failure, allowed) in [
        (
            vec![compare("b", "")],
            vec![put_op("b")],
            vec![range_op("g")],
            true,
        ),
        (vec![compare("z", "")], vec![], vec![], false),
        (vec![compare("a", "z")], vec![], vec![], false),
        (vec![], vec![range_op("z")], vec![], false),
        (vec![], vec![], vec![put_op("g")], false),
        (vec![], vec![nested], vec![], false),
    ] {
        let request = pb::TxnRequest {
            compare,
            success,
            failure,
        };
        let shown = format!("{request:?}");
        let done = test.apply_as("u", Command::Txn(request)).map(drop);
        let expect = if allowed {
            Ok(())
        } else {
            Err(EtcdError::Denied)
        };
        assert_eq!(done, expect, "{shown}");
    }
}

#[test]
fn permission_is_that_of_the_time_of_applying() {
    let test = with_auth();
    let caller = Caller {
        user: "u".to_owned(),
        ..Caller::default()
    };
    assert!(test.machine.check_command(&caller, &put("b")).is_ok());
    let revoke = pb::AuthUserRevokeRoleRequest {
        name: "u".to_owned(),
        role: "r".to_owned(),
    };
    test.apply(Command::UserRevokeRole(revoke)).unwrap();
    assert_eq!(
        test.apply_as("u", put("b")).map(drop),
        Err(EtcdError::Denied)
    );
}

#[test]
fn caller_that_was_authenticated_before_a_change_is_rejected() {
    let test = with_auth();
    let revision = test.machine.with_auth(|auth| auth.revision);
    for (auth_revision, expect) in [
        (0, Ok(())),
        (revision, Ok(())),
        (revision - 1, Err(EtcdError::OldAuthRevision)),
    ] {
        let envelope = Envelope {
            origin: MEMBER,
            user: "u".to_owned(),
            auth_revision,
            command: Some(put("b")),
            ..Envelope::default()
        };
        let done = test.apply_envelope(envelope).map(drop);
        assert_eq!(done, expect, "auth revision {auth_revision} of {revision}");
    }
}

#[test]
fn lease_belongs_to_those_who_may_write_all_of_its_keys() {
    let test = with_auth();
    test.apply(Command::LeaseGrant(pb::LeaseGrantRequest {
        id: 1,
        ttl: 10,
    }))
    .unwrap();
    test.apply(put_with_lease("b", 1)).unwrap();
    assert!(test.apply_as("u", put_with_lease("c", 1)).is_ok());
    test.apply(put_with_lease("z", 1)).unwrap();
    let revoke = Command::LeaseRevoke(pb::LeaseRevokeRequest { id: 1 });
    for command in [put_with_lease("d", 1), revoke.clone()] {
        let shown = format!("{command:?}");
        assert_eq!(
            test.apply_as("u", command).map(drop),
            Err(EtcdError::Denied),
            "{shown}"
        );
    }
    let caller = Caller {
        user: "u".to_owned(),
        ..Caller::default()
    };
    let listed = test.machine.check_leases(&caller);
    assert_eq!(listed, Err(EtcdError::Denied), "it may not read z");
    assert!(
        test.machine.check_lease(&caller, 2, Access::Write).is_ok(),
        "no keys"
    );
    assert!(test.apply_as("root", revoke).is_ok());
}

#[test]
fn management_needs_the_root_role() {
    let test = with_auth();
    for command in [
        Command::AuthDisable(Nothing {}),
        Command::RoleAdd(pb::AuthRoleAddRequest {
            name: "x".to_owned(),
        }),
        Command::Compact(pb::CompactionRequest::default()),
        Command::MemberRemove(pb::MemberRemoveRequest { id: 1 }),
    ] {
        let shown = format!("{command:?}");
        assert_eq!(
            test.apply_as("u", command).map(drop),
            Err(EtcdError::Denied),
            "{shown}"
        );
    }
    assert!(
        test.apply_as("root", Command::AuthDisable(Nothing {}))
            .is_ok()
    );
    assert!(test.apply_as("", put("z")).is_ok(), "auth is disabled");
}

#[test]
fn users_roles_and_permissions_survive_a_restart() {
    let test = with_auth();
    let before = test.machine.with_auth(|auth| auth.revision);
    let test = test.reopen();
    assert_eq!(
        test.machine.with_auth(|auth| (auth.enabled, auth.revision)),
        (true, before)
    );
    assert!(test.apply_as("u", put("b")).is_ok());
    assert_eq!(
        test.apply_as("u", put("z")).map(drop),
        Err(EtcdError::Denied)
    );
}
