//! Leadership transfer between members.

use crate::member::Member;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::{MoveLeaderRequest, StatusRequest, StatusResponse};
use std::time::Duration;
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
async fn five_members_hand_leadership_on_and_on() {
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
        lines[at].move_leader(MoveLeaderRequest { target_id }).await.unwrap();
        let now = status(&mut lines[at]).await;
        assert_eq!(now.leader, target_id, "turn {turn}");
        // A voter that has not heard from the leader yet rejects the transferee's vote, which can
        // take a second election.
        let elections = now.raft_term - first.raft_term;
        assert!(elections <= 2 * (turn + 1), "turn {turn}: {elections} elections");
        leader = now.leader;
    }
    for member in members {
        member.stop().await;
    }
}
