//! Authorization on the peer port.

use crate::member::{Member, free_port, refusal};
use crate::tls::{Ca, words};
use bytes::{Bytes, BytesMut};
use kv_machine::{Command, Envelope, encode_into};
use kv_raft::{PeerTls, RaftNode};
use proto_etcd::etcdserverpb::cluster_client::ClusterClient;
use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::*;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// Kind of the RPC that returns the members.
const MEMBERS: u32 = 3;

#[tokio::test]
async fn caller_that_is_no_member_gets_only_the_member_list() {
    let member = Member::start(&[]).await;
    let url = format!("http://127.0.0.1:{}", member.peer);
    let ask =
        |kind| RaftNode::call_peer_url(&url, PeerTls::default(), kind, Bytes::from_static(&[0; 8]));
    assert!(ask(MEMBERS).await.unwrap().is_some());
    for kind in (0..8).filter(|kind| *kind != MEMBERS) {
        let refused = ask(kind).await.expect_err("it is no member").to_string();
        assert!(
            refused.contains("not a call from a member"),
            "{kind}: {refused}"
        );
    }
    member.stop().await;
}

#[tokio::test]
async fn peer_port_without_mutual_tls_is_not_opened() {
    let member = Member::start(&["--allow-insecure-peers=false"]).await;
    let connected = tokio::net::TcpStream::connect(("127.0.0.1", member.peer)).await;
    assert!(
        connected.is_err(),
        "a lone member does not listen for others"
    );
    let add = MemberAddRequest {
        peer_ur_ls: vec!["https://127.0.0.1:9".into()],
        is_learner: true,
    };
    let refused = ClusterClient::new(member.channel().await)
        .member_add(add)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(
        refused
            .message()
            .contains("does not listen for other members"),
        "{refused}"
    );
    member.stop().await;
    let three = "--initial-cluster=a=http://127.0.0.1:1,b=http://127.0.0.1:2,c=http://127.0.0.1:3";
    let said = refusal(&["--allow-insecure-peers=false", three]).await;
    assert!(
        said.contains("--peer-trusted-ca-file") && said.contains("--allow-insecure-peers"),
        "{said}"
    );
}

#[tokio::test]
async fn certificate_of_a_client_does_not_open_the_peer_port() {
    let (ca, peer) = (Ca::new(), free_port());
    let member = Member::start(&words(&ca.peers(peer))).await;
    let url = format!("https://127.0.0.1:{peer}");
    let client = Some(ca.sign_for("kube-apiserver-etcd-client", &[]));
    let refused = RaftNode::call_peer_url(&url, ca.calls(client), MEMBERS, Bytes::new())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("only members of the cluster are answered"),
        "{refused}"
    );
    member.stop().await;
}

#[tokio::test]
async fn plain_text_member_is_not_added_to_a_secure_cluster() {
    let (ca, peer) = (Ca::new(), free_port());
    let member = Member::start(&words(&ca.peers(peer))).await;
    let add = MemberAddRequest {
        peer_ur_ls: vec!["http://127.0.0.1:9".into()],
        is_learner: true,
    };
    let refused = ClusterClient::new(member.channel().await)
        .member_add(add)
        .await
        .unwrap_err();
    assert_eq!(
        refused.message(),
        "etcdserver: given member URLs are invalid"
    );
    member.stop().await;
}

#[tokio::test]
async fn state_is_sent_only_to_a_member_that_proves_to_be_one() {
    let (ca, peer) = (Ca::new(), free_port());
    let member = Member::start(&words(&ca.peers(peer))).await;
    let (url, id) = (format!("https://127.0.0.1:{peer}"), identity(&member).await);
    let spool = tempfile::tempdir().unwrap();
    let fetch = |calls, id| RaftNode::fetch_state(&url, calls, id, 0, spool.path());
    let other = Some(ca.sign_for("member", &["10.9.9.9", "elsewhere.example"]));
    for (identity, certificate) in [
        (id, other),
        (id, Some(ca.sign_for("member", &[]))),
        ((id.0, id.1 + 1), Some(ca.sign("member"))),
    ] {
        let refused = fetch(ca.calls(certificate), identity)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("only members of the cluster are answered"),
            "{refused}"
        );
    }
    assert!(
        fetch(ca.calls(Some(ca.sign("member"))), id)
            .await
            .unwrap()
            .is_some()
    );
    member.stop().await;
}

#[tokio::test]
async fn forwarded_commands_never_have_the_stores_own_rights() {
    let (ca, peer) = (Ca::new(), free_port());
    let member = Member::start(&words(&ca.peers(peer))).await;
    let id = identity(&member).await;
    let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{peer}")).unwrap();
    let channel = endpoint
        .tls_config(ca.client(ca.sign("member")))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let put = |origin, internal| {
        let put = PutRequest {
            key: "stolen".into(),
            value: "x".into(),
            ..PutRequest::default()
        };
        let mut bytes = BytesMut::new();
        let command = Some(Command::Put(put));
        encode_into(
            &mut bytes,
            &Envelope {
                origin,
                internal,
                command,
                ..Envelope::default()
            },
        );
        bytes.freeze()
    };
    for command in [
        put(id.1, true),
        put(id.1 + 1, false),
        Bytes::from_static(b"\xff\xff"),
    ] {
        let refused = forward(channel.clone(), id, command).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(
            refused.message().contains("its clients' commands only"),
            "{refused}"
        );
    }
    let get = RangeRequest {
        key: "stolen".into(),
        ..RangeRequest::default()
    };
    assert_eq!(
        KvClient::new(member.channel().await)
            .range(get)
            .await
            .unwrap()
            .into_inner()
            .count,
        0
    );
    assert!(
        forward(channel, id, put(id.1, false))
            .await
            .unwrap()
            .committed
    );
    member.stop().await;
}

/// Returns the IDs of cluster and member.
async fn identity(member: &Member) -> (u64, u64) {
    let status = MaintenanceClient::new(member.channel().await)
        .status(StatusRequest {})
        .await
        .unwrap();
    let header = status.into_inner().header.unwrap();
    (header.cluster_id, header.member_id)
}

#[derive(Clone, PartialEq, prost::Message)]
struct ForwardRequest {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    commands: Vec<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ForwardResponse {
    #[prost(bool, tag = "1")]
    accepted: bool,
    #[prost(bool, tag = "2")]
    committed: bool,
}

/// Forwards a command in the name of this member.
async fn forward(
    channel: Channel,
    (cluster, member): (u64, u64),
    command: Bytes,
) -> Result<ForwardResponse, Status> {
    let mut request = Request::new(ForwardRequest {
        commands: vec![command],
    });
    for (key, value) in [
        ("kvstore-cluster", cluster),
        ("kvstore-from", member),
        ("kvstore-to", member),
    ] {
        request
            .metadata_mut()
            .insert(key, MetadataValue::try_from(format!("{value:x}")).unwrap());
    }
    let method = proto_grpc::MethodName::new(
        "kvstore.peer.v1.Peer",
        "ForwardProposals",
        "/kvstore.peer.v1.Peer/ForwardProposals",
    );
    let mut client = proto_grpc::GrpcClient::new(channel);
    let response = client.call_unary::<ForwardRequest, ForwardResponse>(method, request);
    Ok(response.await?.into_inner())
}

#[tokio::test]
async fn members_change_at_once_without_the_check_of_reconfigurations() {
    let mut members = Member::three(&["--strict-reconfig-check=false"]).await;
    let mut cluster = ClusterClient::new(members[0].channel().await);
    // One voter has stopped, and two that never started are added: the check would reject each of
    // these changes.
    let gone = members.pop().unwrap();
    let id = identity(&gone).await.1;
    gone.stop().await;
    for port in [1, 2] {
        let add = MemberAddRequest {
            peer_ur_ls: vec![format!("http://127.0.0.1:{port}")],
            is_learner: false,
        };
        cluster.member_add(add).await.unwrap();
    }
    let left = cluster
        .member_remove(MemberRemoveRequest { id })
        .await
        .unwrap()
        .into_inner()
        .members;
    assert_eq!(left.len(), 4);
    for member in members {
        member.stop().await;
    }
    let alone = Member::start(&["--strict-reconfig-check=false"]).await;
    let id = identity(&alone).await.1;
    let refused = ClusterClient::new(alone.channel().await)
        .member_remove(MemberRemoveRequest { id })
        .await
        .unwrap_err();
    assert!(
        refused.message().contains("not enough started members"),
        "{refused}"
    );
    alone.stop().await;
}

#[tokio::test]
async fn members_with_mutual_tls_forward_read_and_transfer_leadership() {
    let ca = Ca::new();
    let mut members = Member::three(&words(&ca.mutual())).await;
    for (number, member) in members.iter().enumerate() {
        let put = PutRequest {
            key: format!("k{number}").into(),
            value: "x".into(),
            ..PutRequest::default()
        };
        KvClient::new(member.channel().await)
            .put(put)
            .await
            .unwrap();
        let get = RangeRequest {
            key: "k".into(),
            range_end: "l".into(),
            ..RangeRequest::default()
        };
        let found = KvClient::new(member.channel().await)
            .range(get)
            .await
            .unwrap()
            .into_inner()
            .count;
        assert_eq!(found, number as i64 + 1);
    }
    // The stopped member may be the leader: the others must continue at once.
    members.remove(0).stop().await;
    let put = PutRequest {
        key: "after".into(),
        value: "x".into(),
        ..PutRequest::default()
    };
    KvClient::new(members[0].channel().await)
        .put(put)
        .await
        .unwrap();
    for member in members {
        member.stop().await;
    }
}
