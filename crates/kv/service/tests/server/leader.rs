//! Leadership transfer between members, and calls that require a leader.

use crate::member::Member;
use proto_etcd::MessageStream;
use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::watch_client::WatchClient;
use proto_etcd::etcdserverpb::{
    MoveLeaderRequest, RangeRequest, StatusRequest, StatusResponse, WatchCreateRequest,
    WatchRequest, WatchResponse, watch_request,
};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
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

/// Sleep of the task that counts the time of a stop.
const TICK: Duration = Duration::from_millis(10);

/// Stops the member that leads. Returns how many ticks that takes, and the others. On a busy
/// machine, ticks are late as well, so that they measure waiting and not the load.
async fn stop_leader(mut members: Vec<Member>) -> (u32, Vec<Member>) {
    loop {
        for at in 0..members.len() {
            let now = status(&mut MaintenanceClient::new(members[at].channel().await)).await;
            if now
                .header
                .is_some_and(|header| header.member_id == now.leader)
            {
                let (mut ticks, mut stop) = (0, pin!(members.remove(at).stop()));
                while tokio::time::timeout(TICK, &mut stop).await.is_err() {
                    ticks += 1;
                }
                return (ticks, members);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_leader_waits_for_no_deadline() {
    // 1.4 s: shorter than the deadlines. A slow disk may take longer once.
    const SHORT: u32 = 140;
    let mut longest = Vec::new();
    for _ in 0..5 {
        let members = Member::cluster(&["a", "b", "c", "d", "e"], &[]).await;
        let (first, members) = stop_leader(members).await;
        let (second, members) = stop_leader(members).await;
        for member in members {
            member.stop().await;
        }
        longest.push(first.max(second));
        let short = longest.iter().filter(|ticks| **ticks < SHORT).count();
        assert!(short + 1 >= longest.len(), "{longest:?}");
    }
}

fn requiring_leader<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let value = tonic::metadata::MetadataValue::from_static("true");
    request.metadata_mut().insert("hasleader", value);
    request
}

/// Watches a key. Returns the stream of responses and the sender that keeps the watch open.
async fn watch(
    channel: Channel,
    wrap: fn(ReceiverStream<WatchRequest>) -> tonic::Request<ReceiverStream<WatchRequest>>,
) -> (MessageStream<WatchResponse>, mpsc::Sender<WatchRequest>) {
    let (sender, requests) = mpsc::channel(1);
    let create = WatchCreateRequest {
        key: b"key".to_vec().into(),
        ..WatchCreateRequest::default()
    };
    let union = Some(watch_request::RequestUnion::CreateRequest(create));
    sender
        .send(WatchRequest {
            request_union: union,
        })
        .await
        .unwrap();
    let mut line = WatchClient::new(channel);
    let answer = line.watch(wrap(ReceiverStream::new(requests))).await;
    let mut stream = answer.unwrap().into_inner();
    assert!(stream.message().await.unwrap().unwrap().created);
    (stream, sender)
}

fn assert_no_leader(status: &tonic::Status) {
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(status.message(), "etcdserver: no leader");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_require_a_leader_fail_without_one() {
    // A busy machine may hold up heartbeats, and the leader has to stay until the members stop.
    let mut members = Member::three(&["--election-timeout=3000"]).await;
    let last = members.pop().unwrap();
    let channel = last.channel().await;
    let local = RangeRequest {
        key: b"key".to_vec().into(),
        serializable: true,
        ..RangeRequest::default()
    };
    let mut reads = KvClient::new(channel.clone());
    led(&mut MaintenanceClient::new(channel.clone())).await;
    reads.range(requiring_leader(local.clone())).await.unwrap();
    let (mut watched, _open) = watch(channel.clone(), requiring_leader).await;
    let (mut patient, _also_open) = watch(channel.clone(), tonic::Request::new).await;
    for member in members {
        member.stop().await;
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), watched.message()).await;
    assert_no_leader(&ended.unwrap().unwrap_err());
    let refused = reads.range(requiring_leader(local.clone())).await;
    assert_no_leader(&refused.unwrap_err());
    let mut line = WatchClient::new(channel.clone());
    let refused = line.watch(requiring_leader(tokio_stream::empty())).await;
    assert_no_leader(&refused.unwrap_err());
    let now = status(&mut MaintenanceClient::new(channel)).await;
    assert_eq!(
        (now.leader, now.errors),
        (0, vec!["etcdserver: no leader".to_owned()])
    );
    // Without the header, a member serves what it has.
    reads.range(local).await.unwrap();
    let next = tokio::time::timeout(Duration::from_millis(100), patient.message()).await;
    assert!(next.is_err(), "{next:?}");
    last.stop().await;
}
