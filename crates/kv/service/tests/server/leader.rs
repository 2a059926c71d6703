//! Leadership transfer between members.

use crate::member::Member;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::{MoveLeaderRequest, StatusRequest, StatusResponse};
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::Channel;

async fn status(line: &mut MaintenanceClient<Channel>) -> StatusResponse {
    line.status(StatusRequest {}).await.unwrap().into_inner()
}

async fn led(line: &mut MaintenanceClient<Channel>) -> StatusResponse {
    loop {
        let now = status(line).await;
        if now.leader != 0 {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Every leader has just been elected and heard by all others: openraft alone would reject the
/// votes.
#[tokio::test(flavor = "multi_thread")]
async fn five_members_transfer_leadership_repeatedly() {
    let members = Member::cluster(&["a", "b", "c", "d", "e"], &["--election-timeout=2000"]).await;
    let mut lines = Vec::new();
    for member in &members {
        lines.push(MaintenanceClient::new(member.channel().await));
    }
    let mut ids = Vec::new();
    for line in &mut lines {
        ids.push(status(line).await.header.unwrap().member_id);
    }
    let first = led(&mut lines[0]).await;
    let mut leader = first.leader;
    for turn in 0..8_u64 {
        let at = ids.iter().position(|id| *id == leader).unwrap();
        let target_id = ids[(at + 1 + usize::try_from(turn % 3).unwrap()) % ids.len()];
        lines[at]
            .move_leader(MoveLeaderRequest { target_id })
            .await
            .unwrap();
        let now = status(&mut lines[at]).await;
        assert_eq!(now.leader, target_id, "turn {turn}");
        // A voter that has not heard from the leader yet rejects the transferee's vote, which can
        // take a second election.
        let elections = now.raft_term - first.raft_term;
        assert!(
            elections <= 2 * (turn + 1),
            "turn {turn}: {elections} elections"
        );
        leader = now.leader;
    }
    for member in members {
        member.stop().await;
    }
}

/// Stops the member that leads. Returns how long that takes, and the others.
async fn stop_leader(mut members: Vec<Member>) -> (Duration, Vec<Member>) {
    loop {
        for at in 0..members.len() {
            let now = status(&mut MaintenanceClient::new(members[at].channel().await)).await;
            if now
                .header
                .is_some_and(|header| header.member_id == now.leader)
            {
                let began = Instant::now();
                members.remove(at).stop().await;
                return (began.elapsed(), members);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_leader_waits_for_no_deadline() {
    let members = Member::cluster(&["a", "b", "c", "d", "e"], &[]).await;
    let (first, members) = stop_leader(members).await;
    let (second, members) = stop_leader(members).await;
    // As long as etcd takes to close idle connections.
    assert!(
        first.max(second) < Duration::from_millis(1_500),
        "{first:?}, {second:?}"
    );
    for member in members {
        member.stop().await;
    }
}
