//! Tokens that one member issues and the others accept.

use crate::member::{Member, refusal};
use proto_etcd::etcdserverpb::auth_client::AuthClient;
use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::*;
use std::path::Path;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

pub fn with<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        request
            .metadata_mut()
            .insert("token", MetadataValue::try_from(token).unwrap());
    }
    request
}

pub async fn auth(member: &Member) -> AuthClient<tonic::transport::Channel> {
    AuthClient::new(member.channel().await)
}

pub async fn log_in(member: &Member, name: &str) -> Result<String, Status> {
    let request = AuthenticateRequest {
        name: name.into(),
        password: "secret".into(),
    };
    Ok(auth(member)
        .await
        .authenticate(request)
        .await?
        .into_inner()
        .token)
}

async fn put(member: &Member, token: &str) -> Result<(), Status> {
    let request = PutRequest {
        key: "k".into(),
        value: "v".into(),
        ..PutRequest::default()
    };
    KvClient::new(member.channel().await)
        .put(with(token, request))
        .await
        .map(drop)
}

async fn get(member: &Member, token: &str) -> Result<(), Status> {
    let request = RangeRequest {
        key: "k".into(),
        ..RangeRequest::default()
    };
    KvClient::new(member.channel().await)
        .range(with(token, request))
        .await
        .map(drop)
}

pub async fn user(member: &Member, token: &str, name: &str) {
    let mut client = auth(member).await;
    let user = AuthUserAddRequest {
        name: name.into(),
        password: "secret".into(),
        ..AuthUserAddRequest::default()
    };
    client.user_add(with(token, user)).await.unwrap();
    let grant = AuthUserGrantRoleRequest {
        user: name.into(),
        role: "root".into(),
    };
    client.user_grant_role(with(token, grant)).await.unwrap();
}

/// Creates the users `root` and `u` with all permissions and enables auth.
pub async fn enable(member: &Member) {
    let mut client = auth(member).await;
    client
        .role_add(AuthRoleAddRequest {
            name: "root".into(),
        })
        .await
        .unwrap();
    user(member, "", "root").await;
    user(member, "", "u").await;
    client.auth_enable(AuthEnableRequest {}).await.unwrap();
}

#[track_caller]
fn refused(result: Result<(), Status>, code: Code, text: &str) {
    let status = result.expect_err(text);
    assert_eq!((status.code(), status.message()), (code, text));
}

const INVALID: &str = "etcdserver: invalid auth token";

#[tokio::test]
async fn a_simple_token_is_valid_on_every_member_until_its_user_changes() {
    let members = Member::three(&[]).await;
    enable(&members[0]).await;
    for giver in &members {
        // Another member may lag behind the issuing one; it waits.
        let token = log_in(giver, "u").await.unwrap();
        for member in &members {
            get(member, &token).await.unwrap();
            put(member, &token).await.unwrap();
        }
    }
    let (root, token) = (
        log_in(&members[1], "root").await.unwrap(),
        log_in(&members[0], "u").await.unwrap(),
    );
    put(&members[2], &token).await.unwrap();
    let change = AuthUserChangePasswordRequest {
        name: "u".into(),
        password: "other".into(),
        ..Default::default()
    };
    auth(&members[1])
        .await
        .user_change_password(with(&root, change))
        .await
        .unwrap();
    for member in &members {
        // A linearizable read sees everything that was acknowledged before. The token is checked
        // earlier than that.
        get(member, &root).await.unwrap();
        refused(get(member, &token).await, Code::Unauthenticated, INVALID);
    }
    refused(
        log_in(&members[2], "u").await.map(drop),
        Code::InvalidArgument,
        "etcdserver: authentication failed, invalid user ID or password",
    );
    for nonsense in [
        "nonsense",
        "nonsense.1",
        ".",
        "nonsense.18446744073709551616",
    ] {
        refused(
            put(&members[0], nonsense).await,
            Code::Unauthenticated,
            INVALID,
        );
    }
    user(&members[2], &root, "third").await;
    let token = log_in(&members[0], "third").await.unwrap();
    auth(&members[1])
        .await
        .user_delete(with(
            &root,
            AuthUserDeleteRequest {
                name: "third".into(),
            },
        ))
        .await
        .unwrap();
    for member in &members {
        get(member, &root).await.unwrap();
        refused(put(member, &token).await, Code::Unauthenticated, INVALID);
    }
    auth(&members[0])
        .await
        .auth_disable(with(&root, AuthDisableRequest {}))
        .await
        .unwrap();
    auth(&members[0])
        .await
        .auth_enable(AuthEnableRequest {})
        .await
        .unwrap();
    refused(
        put(&members[0], &root).await,
        Code::Unauthenticated,
        INVALID,
    );
    for member in members {
        member.stop().await;
    }
}

#[tokio::test]
async fn simple_token_expires_after_its_ttl() {
    let member = Member::start(&["--auth-token-ttl=0"]).await;
    enable(&member).await;
    let token = log_in(&member, "root").await.unwrap();
    refused(put(&member, &token).await, Code::Unauthenticated, INVALID);
    member.stop().await;
}

fn openssl(folder: &Path, words: &str) {
    let done = std::process::Command::new("openssl")
        .args(words.split(' '))
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{words}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Creates the files `NAME.key` and `NAME.pub`. Returns the options of the flag that name them.
fn keys(folder: &Path, name: &str, algorithm: &str) -> (String, String) {
    openssl(folder, &format!("genpkey {algorithm} -out {name}.key"));
    openssl(
        folder,
        &format!("pkey -in {name}.key -pubout -out {name}.pub"),
    );
    let path = |end| folder.join(format!("{name}.{end}")).display().to_string();
    (
        format!("priv-key={}", path("key")),
        format!("pub-key={}", path("pub")),
    )
}

const ELLIPTIC: &str = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256";

#[tokio::test]
async fn a_signed_token_is_valid_on_every_member_until_users_or_roles_change() {
    let folder = tempfile::tempdir().unwrap();
    let (private, public) = keys(folder.path(), "ec", ELLIPTIC);
    let members = Member::three(&[&format!(
        "--auth-token=jwt,sign-method=ES256,{private},{public},ttl=10m"
    )])
    .await;
    enable(&members[0]).await;
    let token = log_in(&members[0], "u").await.unwrap();
    assert_eq!(token.split('.').count(), 3, "{token}");
    for member in &members {
        put(member, &token).await.unwrap();
        get(member, &token).await.unwrap();
    }
    refused(
        put(&members[1], &format!("{token}x")).await,
        Code::Unauthenticated,
        INVALID,
    );
    refused(
        put(&members[1], "a.b.c").await,
        Code::Unauthenticated,
        INVALID,
    );
    user(
        &members[0],
        &log_in(&members[1], "root").await.unwrap(),
        "third",
    )
    .await;
    for member in &members {
        let root = log_in(member, "root").await.unwrap();
        put(member, &root).await.unwrap();
        let old = "etcdserver: revision of auth store is old";
        refused(put(member, &token).await, Code::InvalidArgument, old);
        refused(get(member, &token).await, Code::InvalidArgument, old);
    }
    for member in members {
        member.stop().await;
    }
}

#[tokio::test]
async fn token_keys_of_each_kind_work_and_a_public_key_only_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let rsa = "-algorithm RSA -pkeyopt rsa_keygen_bits:2048";
    for (name, method, algorithm) in [
        ("rsa", "RS256", rsa),
        ("pss", "PS256", rsa),
        ("ed", "EdDSA", "-algorithm ed25519"),
    ] {
        let (private, _) = keys(folder.path(), name, algorithm);
        let member =
            Member::start(&[&format!("--auth-token=jwt,sign-method={method},{private}")]).await;
        enable(&member).await;
        let token = log_in(&member, "root").await.unwrap();
        put(&member, &token)
            .await
            .unwrap_or_else(|refused| panic!("{method}: {refused}"));
        member.stop().await;
    }
    let (private, public) = keys(folder.path(), "ec", ELLIPTIC);
    let member = Member::start(&[&format!("--auth-token=jwt,sign-method=ES256,{public}")]).await;
    enable(&member).await;
    let text = "auth: token signing attempted with verify-only key";
    refused(
        log_in(&member, "root").await.map(drop),
        Code::FailedPrecondition,
        text,
    );
    member.stop().await;
    let (_, another) = keys(folder.path(), "another", ELLIPTIC);
    let said = refusal(&[&format!(
        "--auth-token=jwt,sign-method=ES256,{private},{another}"
    )])
    .await;
    assert!(said.contains("pub-key and priv-key"), "{said}");
    let said = refusal(&[&format!("--auth-token=jwt,sign-method=RS256,{private}")]).await;
    assert!(
        said.contains("ec.key") && said.contains("private key"),
        "{said}"
    );
}

#[tokio::test]
async fn signed_token_of_the_revision_before_auth_was_enabled_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let (private, _) = keys(folder.path(), "ec", ELLIPTIC);
    let member = Member::start(&[&format!("--auth-token=jwt,sign-method=ES256,{private}")]).await;
    let revision = async |token: &str| {
        auth(&member)
            .await
            .auth_status(with(token, AuthStatusRequest {}))
            .await
            .unwrap()
            .into_inner()
            .auth_revision
    };
    assert_eq!(revision("").await, 1, "as etcd counts");
    enable(&member).await;
    let token = log_in(&member, "root").await.unwrap();
    // A role, two users, and their roles.
    assert_eq!(revision(&token).await, 6);
    member.stop().await;
}

#[tokio::test]
async fn log_keeps_no_token_that_could_be_used() {
    let member = Member::start(&[]).await;
    enable(&member).await;
    let token = log_in(&member, "root").await.unwrap();
    put(&member, &token).await.unwrap();
    let (secret, index) = token.split_once('.').unwrap();
    let mut digests = 0;
    for file in std::fs::read_dir(member.folder.path().join("data/member/wal")).unwrap() {
        let content = std::fs::read(file.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&content);
        assert!(!text.contains(secret), "the token's secret is in the log");
        digests += text.matches("root").count();
    }
    assert!(digests > 0, "the login is in the log");
    refused(
        put(&member, &format!("{}.{index}", "0".repeat(64))).await,
        Code::Unauthenticated,
        INVALID,
    );
    member.stop().await;
}
