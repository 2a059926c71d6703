//! Changes of membership.

use crate::member::{Member, free_port};
use proto_etcd::etcdserverpb::cluster_client::ClusterClient;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::*;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn leader_is_removed_by_a_successor_that_was_just_elected() {
    let members = Member::three(&[]).await;
    // As long as etcd wants members to have been up before they change.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut leader = None;
    let mut followers = Vec::new();
    for member in members {
        let status = MaintenanceClient::new(member.channel().await)
            .status(StatusRequest {})
            .await
            .unwrap()
            .into_inner();
        let id = status.header.unwrap().member_id;
        if status.leader == id {
            leader = Some((id, member));
        } else {
            followers.push(member);
        }
    }
    let (id, leader) = leader.expect("one of them leads");
    let mut cluster = ClusterClient::new(followers[0].channel().await);
    let left = cluster
        .member_remove(MemberRemoveRequest { id })
        .await
        .unwrap()
        .into_inner()
        .members;
    assert_eq!(
        (left.len(), left.iter().any(|member| member.id == id)),
        (2, false)
    );
    let reason = leader.end().await;
    assert!(reason.contains("removed from the cluster"), "{reason}");
    for member in followers {
        member.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn learner_is_promoted_as_soon_as_it_serves() {
    let first = Member::start(&[]).await;
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let mut cluster = ClusterClient::new(first.channel().await);
    let add = MemberAddRequest {
        peer_ur_ls: vec![url.clone()],
        is_learner: true,
    };
    let id = cluster
        .member_add(add)
        .await
        .unwrap()
        .into_inner()
        .member
        .unwrap()
        .id;
    let promote = MemberPromoteRequest { id };
    let refused = cluster.member_promote(promote).await.unwrap_err();
    assert!(
        refused.message().contains("in sync with leader"),
        "it has not started: {refused}"
    );
    let second = Member::join(
        "b",
        port,
        &format!("a=http://127.0.0.1:{},b={url}", first.peer),
    )
    .await;
    let members = cluster
        .member_promote(promote)
        .await
        .unwrap()
        .into_inner()
        .members;
    assert_eq!(
        members.iter().filter(|member| !member.is_learner).count(),
        2
    );
    second.stop().await;
    first.stop().await;
}
