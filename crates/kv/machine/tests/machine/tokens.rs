//! Simple tokens, which are issued through the log.

use super::TestMachine;
use kv_machine::{Command, EtcdError, Login, Nothing, Outcome};
use proto_etcd::etcdserverpb as pb;

fn log_in(test: &TestMachine, user: &str) -> Result<u64, EtcdError> {
    let login = Login {
        user: user.to_owned(),
        digest: "digest".to_owned(),
    };
    test.apply(Command::Authenticate(login))
        .map(|outcome| match outcome {
            Outcome::LoggedIn(index) => index,
            other => panic!("{other:?}"),
        })
}

fn with_auth() -> TestMachine {
    let test = TestMachine::new();
    for name in ["root", "u"] {
        let user = pb::AuthUserAddRequest {
            name: name.to_owned(),
            ..pb::AuthUserAddRequest::default()
        };
        test.apply(Command::UserAdd(user)).unwrap();
    }
    let root = pb::AuthUserGrantRoleRequest {
        user: "root".to_owned(),
        role: "root".to_owned(),
    };
    test.apply(Command::UserGrantRole(root)).unwrap();
    test.apply(Command::AuthEnable(Nothing {})).unwrap();
    test
}

#[test]
fn login_needs_auth_and_a_known_user() {
    assert_eq!(
        log_in(&TestMachine::new(), "u"),
        Err(EtcdError::AuthNotEnabled)
    );
    let test = with_auth();
    assert_eq!(log_in(&test, "unknown"), Err(EtcdError::AuthFailed));
    assert!(log_in(&test, "u").is_ok());
}

#[test]
fn token_is_found_by_digest_and_index() {
    let test = with_auth();
    let index = log_in(&test, "u").unwrap();
    for (token, user) in [
        (format!("digest.{index}"), Some("u")),
        (format!("digest.{}", index + 1), None),
        (format!("other.{index}"), None),
        ("digest".to_owned(), None),
    ] {
        assert_eq!(test.machine.token_user(&token).as_deref(), user, "{token}");
    }
}

#[test]
fn changes_of_a_user_invalidate_its_tokens() {
    let delete = Command::UserDelete(pb::AuthUserDeleteRequest {
        name: "u".to_owned(),
    });
    let change = Command::UserChangePassword(pb::AuthUserChangePasswordRequest {
        name: "u".to_owned(),
        ..pb::AuthUserChangePasswordRequest::default()
    });
    let role = Command::RoleAdd(pb::AuthRoleAddRequest {
        name: "r".to_owned(),
    });
    for (command, own, of_root) in [
        (delete, false, true),
        (change, false, true),
        (role, true, true),
        (Command::AuthDisable(Nothing {}), false, false),
    ] {
        let test = with_auth();
        let tokens = ["u", "root"].map(|user| format!("digest.{}", log_in(&test, user).unwrap()));
        let shown = format!("{command:?}");
        test.apply(command).unwrap();
        let valid = tokens.map(|token| test.machine.token_user(&token).is_some());
        assert_eq!(valid, [own, of_root], "{shown}");
    }
}

#[test]
fn tokens_end_with_the_process() {
    let test = with_auth();
    let token = format!("digest.{}", log_in(&test, "u").unwrap());
    assert_eq!(test.reopen().machine.token_user(&token), None);
}
