//! Requests of users without permissions, and their streams when permissions change.

use crate::member::Member;
use crate::tokens::{auth, enable, log_in, user, with};
use proto_etcd::MessageStream;
use proto_etcd::authpb::Permission;
use proto_etcd::authpb::permission::Type;
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::cluster_client::ClusterClient;
use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::lease_client::LeaseClient;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::watch_client::WatchClient;
use proto_etcd::etcdserverpb::watch_request::RequestUnion;
use proto_etcd::etcdserverpb::*;
use std::time::Duration;
use tokio_stream::StreamExt;
use tonic::{Code, Status};

const EMPTY: &str = "etcdserver: user name is empty";
const DENIED: &str = "etcdserver: permission denied";

/// Enables auth with a user `v` without roles. Returns the tokens of `root` and `v`.
async fn restricted(member: &Member) -> (String, String) {
    user(member, "", "v").await;
    let revoke = AuthUserRevokeRoleRequest {
        name: "v".into(),
        role: "root".into(),
    };
    let mut client = auth(member).await;
    client.user_revoke_role(revoke).await.unwrap();
    client
        .role_add(AuthRoleAddRequest { name: "r".into() })
        .await
        .unwrap();
    enable(member).await;
    (
        log_in(member, "root").await.unwrap(),
        log_in(member, "v").await.unwrap(),
    )
}

/// Grants user `v` a permission for a key.
async fn grant(member: &Member, root: &str, kind: Type, key: &'static str) {
    let permission = Permission {
        perm_type: kind.into(),
        key: key.into(),
        range_end: "".into(),
    };
    let grant = AuthRoleGrantPermissionRequest {
        name: "r".into(),
        perm: Some(permission),
    };
    let mut client = auth(member).await;
    client
        .role_grant_permission(with(root, grant))
        .await
        .unwrap();
    let grant = AuthUserGrantRoleRequest {
        user: "v".into(),
        role: "r".into(),
    };
    client.user_grant_role(with(root, grant)).await.unwrap();
}

async fn put(member: &Member, token: &str, key: &'static str, lease: i64) {
    let put = PutRequest {
        key: key.into(),
        value: "x".into(),
        lease,
        ..PutRequest::default()
    };
    KvClient::new(member.channel().await)
        .put(with(token, put))
        .await
        .unwrap();
}

#[track_caller]
fn refused<T>(result: Result<T, Status>, text: &str) {
    let Err(status) = result else {
        panic!("not refused: {text}")
    };
    assert_eq!(status.message(), text);
}

#[tokio::test]
async fn members_and_alarms_are_listed_for_users_only() {
    let member = Member::start(&[]).await;
    let (_, user) = restricted(&member).await;
    let mut cluster = ClusterClient::new(member.channel().await);
    let list = MemberListRequest { linearizable: true };
    refused(cluster.member_list(list).await, EMPTY);
    assert_eq!(
        cluster
            .member_list(with(&user, list))
            .await
            .unwrap()
            .into_inner()
            .members
            .len(),
        1
    );
    let mut maintenance = MaintenanceClient::new(member.channel().await);
    let alarm = |action: AlarmAction| AlarmRequest {
        action: action.into(),
        ..AlarmRequest::default()
    };
    refused(maintenance.alarm(alarm(AlarmAction::Get)).await, EMPTY);
    maintenance
        .alarm(with(&user, alarm(AlarmAction::Get)))
        .await
        .unwrap();
    refused(
        maintenance
            .alarm(with(&user, alarm(AlarmAction::Deactivate)))
            .await,
        DENIED,
    );
    member.stop().await;
}

#[tokio::test]
async fn auth_status_is_answered_without_a_login() {
    let member = Member::start(&[]).await;
    let (root, user) = restricted(&member).await;
    let mut client = auth(&member).await;
    let anonymous = client
        .auth_status(AuthStatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(anonymous.enabled);
    for token in [&root, &user] {
        let status = client
            .auth_status(with(token, AuthStatusRequest {}))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (status.enabled, status.auth_revision),
            (true, anonymous.auth_revision)
        );
    }
    let refused = client
        .auth_status(with("no-token", AuthStatusRequest {}))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    member.stop().await;
}

#[tokio::test]
async fn leases_are_listed_and_kept_alive_only_with_rights_to_their_keys() {
    let member = Member::start(&[]).await;
    let (root, user) = restricted(&member).await;
    let mut leases = LeaseClient::new(member.channel().await);
    let request = LeaseGrantRequest { id: 7, ttl: 600 };
    refused(leases.lease_grant(request).await, EMPTY);
    leases.lease_grant(with(&root, request)).await.unwrap();
    put(&member, &root, "secret", 7).await;
    refused(leases.lease_leases(LeaseLeasesRequest {}).await, EMPTY);
    refused(
        leases
            .lease_leases(with(&user, LeaseLeasesRequest {}))
            .await,
        DENIED,
    );
    refused(renew(&member, &user).await, DENIED);
    assert_eq!(renew(&member, &root).await.unwrap(), 600);
    grant(&member, &root, Type::Read, "secret").await;
    let listed = leases
        .lease_leases(with(&user, LeaseLeasesRequest {}))
        .await
        .unwrap()
        .into_inner()
        .leases;
    assert_eq!(listed.len(), 1);
    refused(renew(&member, &user).await, DENIED);
    grant(&member, &root, Type::Readwrite, "secret").await;
    assert_eq!(renew(&member, &user).await.unwrap(), 600);
    member.stop().await;
}

async fn renew(member: &Member, token: &str) -> Result<i64, Status> {
    let requests = futures::stream::iter([LeaseKeepAliveRequest { id: 7 }]);
    let mut client = LeaseClient::new(member.channel().await);
    let mut answers = client
        .lease_keep_alive(with(token, requests))
        .await?
        .into_inner();
    Ok(answers.message().await?.map_or(0, |answer| answer.ttl))
}

#[tokio::test]
async fn disarmed_space_alarm_comes_back_only_with_the_next_write() {
    let member = Member::start(&["--quota-backend-bytes=5120"]).await;
    let mut maintenance = MaintenanceClient::new(member.channel().await);
    let alarm = |action: AlarmAction| AlarmRequest {
        action: action.into(),
        ..AlarmRequest::default()
    };
    let raised = async |client: &mut MaintenanceClient<_>, wanted: usize| {
        for _ in 0..3000 {
            if client
                .alarm(alarm(AlarmAction::Get))
                .await
                .unwrap()
                .into_inner()
                .alarms
                .len()
                == wanted
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never {wanted} alarms");
    };
    raised(&mut maintenance, 1).await;
    let disarm = AlarmRequest {
        alarm: AlarmType::Nospace.into(),
        ..alarm(AlarmAction::Deactivate)
    };
    assert_eq!(
        maintenance
            .alarm(disarm)
            .await
            .unwrap()
            .into_inner()
            .alarms
            .len(),
        1
    );
    for _ in 0..10 {
        raised(&mut maintenance, 0).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    put(&member, "", "k", 0).await;
    raised(&mut maintenance, 1).await;
    member.stop().await;
}

/// Creates a watcher of a key and waits for the response.
async fn watch(member: &Member, token: &str, key: &'static str) -> MessageStream<WatchResponse> {
    let create = WatchCreateRequest {
        key: key.into(),
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let requests = futures::stream::iter([request]).chain(futures::stream::pending());
    let mut client = WatchClient::new(member.channel().await);
    let mut answers = client
        .watch(with(token, requests))
        .await
        .unwrap()
        .into_inner();
    let created = next(&mut answers).await;
    assert!(created.created && !created.canceled, "{created:?}");
    answers
}

async fn next(answers: &mut MessageStream<WatchResponse>) -> WatchResponse {
    let answer = tokio::time::timeout(Duration::from_secs(60), answers.message()).await;
    answer
        .expect("an answer comes")
        .unwrap()
        .expect("the stream goes on")
}

#[tokio::test]
async fn watch_ends_when_the_right_to_read_is_revoked() {
    let member = Member::start(&[]).await;
    let (root, user) = restricted(&member).await;
    grant(&member, &root, Type::Read, "k").await;
    let (mut of_user, mut of_root) = (
        watch(&member, &user, "k").await,
        watch(&member, &root, "k").await,
    );
    put(&member, &root, "k", 0).await;
    assert_eq!(next(&mut of_user).await.events.len(), 1);
    let revoke = AuthRoleRevokePermissionRequest {
        role: "r".into(),
        key: "k".into(),
        range_end: "".into(),
    };
    auth(&member)
        .await
        .role_revoke_permission(with(&root, revoke))
        .await
        .unwrap();
    put(&member, &root, "k", 0).await;
    let last = next(&mut of_user).await;
    assert!(
        last.canceled && last.events.is_empty() && last.cancel_reason.contains(DENIED),
        "{last:?}"
    );
    for _ in 0..2 {
        assert_eq!(next(&mut of_root).await.events.len(), 1, "others go on");
    }
    member.stop().await;
}

#[tokio::test]
async fn watch_without_a_user_ends_when_auth_is_enabled() {
    let member = Member::start(&[]).await;
    let mut answers = watch(&member, "", "k").await;
    let (root, _) = restricted(&member).await;
    put(&member, &root, "k", 0).await;
    let last = next(&mut answers).await;
    assert!(
        last.canceled && last.events.is_empty() && last.cancel_reason.contains(EMPTY),
        "{last:?}"
    );
    member.stop().await;
}

fn range(key: &'static str, end: &'static str) -> RangeRequest {
    RangeRequest {
        key: key.into(),
        range_end: end.into(),
        ..RangeRequest::default()
    }
}

fn branch(request: request_op::Request) -> Vec<RequestOp> {
    vec![RequestOp {
        request: Some(request),
    }]
}

/// Returns a transaction with a nested one in the branch that is not executed.
fn nested(inner: TxnRequest) -> TxnRequest {
    let failure = branch(request_op::Request::RequestTxn(inner));
    TxnRequest {
        failure,
        ..TxnRequest::default()
    }
}

#[tokio::test]
async fn permissions_are_checked_in_every_branch_and_for_the_whole_range() {
    use request_op::Request::{RequestDeleteRange, RequestPut, RequestRange};
    let member = Member::start(&[]).await;
    let (root, user) = restricted(&member).await;
    grant(&member, &root, Type::Readwrite, "mine").await;
    let mut kv = KvClient::new(member.channel().await);
    let mine = nested(TxnRequest {
        success: branch(RequestRange(range("mine", ""))),
        ..TxnRequest::default()
    });
    kv.txn(with(&user, mine)).await.unwrap();
    let put = PutRequest {
        key: "other".into(),
        ..PutRequest::default()
    };
    let delete = DeleteRangeRequest {
        key: "mine".into(),
        range_end: "\0".into(),
        ..DeleteRangeRequest::default()
    };
    let compare = Compare {
        key: "mine".into(),
        range_end: "\0".into(),
        ..Compare::default()
    };
    for inner in [
        TxnRequest {
            failure: branch(RequestPut(put)),
            ..TxnRequest::default()
        },
        TxnRequest {
            success: branch(RequestDeleteRange(delete.clone())),
            ..TxnRequest::default()
        },
        TxnRequest {
            failure: branch(RequestRange(range("mine", "\0"))),
            ..TxnRequest::default()
        },
        TxnRequest {
            compare: vec![compare],
            ..TxnRequest::default()
        },
    ] {
        let shown = format!("{inner:?}");
        let refused = kv
            .txn(with(&user, nested(nested(inner))))
            .await
            .expect_err(&shown);
        assert_eq!(refused.message(), DENIED, "{shown}");
    }
    for end in ["\0", "minf", "zzz"] {
        refused(kv.range(with(&user, range("mine", end))).await, DENIED);
    }
    refused(kv.delete_range(with(&user, delete)).await, DENIED);
    let create = WatchCreateRequest {
        key: "mine".into(),
        range_end: "\0".into(),
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let requests = futures::stream::iter([request]).chain(futures::stream::pending());
    let mut watches = WatchClient::new(member.channel().await);
    let mut answers = watches
        .watch(with(&user, requests))
        .await
        .unwrap()
        .into_inner();
    let answer = next(&mut answers).await;
    assert!(
        answer.canceled && answer.cancel_reason.contains(DENIED),
        "{answer:?}"
    );
    member.stop().await;
}

#[tokio::test]
async fn logins_beyond_the_hashing_queue_are_rejected() {
    let member = Member::start(&["--bcrypt-cost=11"]).await;
    enable(&member).await;
    let channel = member.channel().await;
    let attempts = (0..400).map(|number| {
        let name = if number % 2 == 0 { "root" } else { "nobody" };
        let request = AuthenticateRequest {
            name: name.into(),
            password: "wrong".into(),
        };
        let mut client = client(channel.clone());
        async move { client.authenticate(request).await.map(drop).unwrap_err() }
    });
    let mut ends = attempts.collect::<futures::stream::FuturesUnordered<_>>();
    // Refusals do not wait: one of them comes before the first hash.
    let first = ends.next().await.unwrap();
    assert_eq!(
        (first.code(), first.message()),
        (Code::ResourceExhausted, "etcdserver: too many requests")
    );
    drop(ends);
    member.stop().await;
}

fn client(
    channel: tonic::transport::Channel,
) -> auth_client::AuthClient<tonic::transport::Channel> {
    auth_client::AuthClient::new(channel)
}
