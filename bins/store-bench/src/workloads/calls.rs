//! Workloads of unary calls: each client sends its next request after the last response.

use crate::figures::{Calls, Measurement};
use crate::grpc::unary::{RANGE, call_once};
use crate::grpc::wire::{Received, Wire};
use crate::host::server::{Cluster, own_cpu_seconds};
use crate::random::Random;
use anyhow::{Result, bail};
use bytes::Bytes;
use proto_etcd::etcdserverpb as pb;
use proto_etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::request_op::Request as Op;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Size of a value in bytes.
pub const VALUE: usize = 256;
/// Size of a request in bytes that fits into every server's flow-control window.
const REQUEST: usize = 32 << 10;
/// Number of keys that are read and written; all exist from the start.
pub const KEYS: u64 = 100_000;
/// Maximum number of connections; further clients share them.
const MOST_CONNECTIONS: usize = 100;
/// Path of puts.
pub const PUT: &str = "/etcdserverpb.KV/Put";
/// Path of compactions.
pub const COMPACT: &str = "/etcdserverpb.KV/Compact";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const MOVE: &str = "/etcdserverpb.Maintenance/MoveLeader";
/// Timeout for the first member to become the leader.
const TRANSFER: Duration = Duration::from_secs(10);
const TXN: &str = "/etcdserverpb.KV/Txn";

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Puts a key.
    Put,
    /// Compares, then puts, or gets if the comparison fails.
    Txn,
    /// Reads a key, linearizable.
    Read,
    /// Reads a key, serializable.
    Serializable,
    /// Reads 10,000 keys in order.
    Range,
}

impl Work {
    /// Returns the name in the table.
    pub fn title(self) -> &'static str {
        match self {
            Work::Put => "put",
            Work::Txn => "transaction put",
            Work::Read => "linearizable read",
            Work::Serializable => "serializable read",
            Work::Range => "range of 10,000 keys",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Work::Put => PUT,
            Work::Txn => TXN,
            Work::Read | Work::Serializable | Work::Range => RANGE,
        }
    }

    fn send_request(self, wire: &mut Wire, random: u64) -> u32 {
        let key = format!("{:08}", random % KEYS);
        match self {
            Work::Put => wire.start_call(&put_request(key.into(), VALUE), true),
            Work::Txn => wire.start_call(&guarded_put(key), true),
            Work::Read => wire.start_call(&range_request(key), true),
            Work::Serializable => wire.start_call(
                &pb::RangeRequest {
                    serializable: true,
                    ..range_request(key)
                },
                true,
            ),
            Work::Range => {
                // The range must lie within the keys: a shorter one would be faster and distort the
                // figure.
                let first = random % (KEYS - 10_000);
                let range_end = format!("{:08}", first + 10_000).into();
                wire.start_call(
                    &pb::RangeRequest {
                        range_end,
                        ..range_request(format!("{first:08}"))
                    },
                    true,
                )
            }
        }
    }
}

fn put_request(key: Bytes, size: usize) -> pb::PutRequest {
    // Static, so that the load generator copies nothing per request.
    static VALUES: [u8; REQUEST] = [b'v'; REQUEST];
    pb::PutRequest {
        key,
        value: VALUES.get(..size).unwrap_or_default().into(),
        ..Default::default()
    }
}

fn range_request(key: String) -> pb::RangeRequest {
    pb::RangeRequest {
        key: key.into(),
        ..Default::default()
    }
}

fn request_op(request: Op) -> pb::RequestOp {
    pb::RequestOp {
        request: Some(request),
    }
}

fn guarded_put(key: String) -> pb::TxnRequest {
    let compare = pb::Compare {
        result: CompareResult::Greater.into(),
        target: CompareTarget::Mod.into(),
        key: key.clone().into(),
        // Every key exists from the start, so the comparison holds and each transaction writes.
        target_union: Some(TargetUnion::ModRevision(0)),
        ..Default::default()
    };
    pb::TxnRequest {
        compare: vec![compare],
        success: vec![request_op(Op::RequestPut(put_request(
            key.clone().into(),
            VALUE,
        )))],
        failure: vec![request_op(Op::RequestRange(range_request(key)))],
    }
}

/// Puts numbered keys over several connections, a hundred per transaction or as many as fit into a
/// request.
pub async fn fill_keys(
    cluster: &Cluster,
    count: u64,
    key: fn(u64) -> String,
    size: usize,
) -> Result<()> {
    const CONNECTIONS: u64 = 8;
    // etcd rejects transactions with more than 128 operations.
    let each = (REQUEST / (size + 1)).clamp(1, 100) as u64;
    let addresses = cluster.addresses();
    let mut tasks = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let address = addresses.first().cloned().unwrap_or_default();
        tasks.spawn(async move {
            let mut wire = Wire::connect(&address, TXN).await?;
            let mut from = connection * each;
            while from < count {
                let puts = (from..(from + each).min(count))
                    .map(|n| request_op(Op::RequestPut(put_request(key(n).into(), size))));
                let request = pb::TxnRequest {
                    success: puts.collect(),
                    ..Default::default()
                };
                wire.call_unary::<pb::TxnResponse>(&request).await?;
                from += CONNECTIONS * each;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Makes the first member of a cluster started here the leader, because single clients, watchers
/// and leases use it. Otherwise the leader is random, and a follower forwards requests.
async fn make_first_member_leader(cluster: &Cluster) -> Result<()> {
    // The leader of a cluster that others use is not moved.
    if !cluster.is_ours() {
        return Ok(());
    }
    let begin = Instant::now();
    while begin.elapsed() < TRANSFER {
        let asked = call_once::<pb::StatusResponse>(
            &cluster.first_address()?,
            STATUS,
            &pb::StatusRequest {},
        )
        .await;
        if let Ok(pb::StatusResponse {
            header: Some(header),
            leader,
            ..
        }) = asked
        {
            let first = header.member_id;
            if leader == first {
                return Ok(());
            }
            // The response names the leader by its ID only, not by its address.
            for address in cluster.addresses() {
                // Only the leader executes this.
                let _ = call_once::<pb::MoveLeaderResponse>(
                    &address,
                    MOVE,
                    &pb::MoveLeaderRequest { target_id: first },
                )
                .await;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!(
        "{}: the first member does not become the leader",
        cluster.name
    )
}

/// Sends a few puts with pauses, so that a server finishes its earlier work. etcd 3.4, for
/// instance, copies the buffer of its last burst of writes for every read until two more writes.
pub async fn settle_cluster(cluster: &Cluster) -> Result<()> {
    make_first_member_leader(cluster).await?;
    let mut wire = Wire::connect(&cluster.first_address()?, Work::Put.path()).await?;
    for _ in 0..4 {
        wire.call_unary::<pb::PutResponse>(&put_request("settle".into(), 1))
            .await?;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    Ok(())
}

/// Runs one round of a workload.
pub async fn measure_work(
    cluster: &Cluster,
    work: Work,
    clients: usize,
    duration: Duration,
) -> Result<Measurement> {
    let addresses = cluster.addresses();
    let connections = clients.min(MOST_CONNECTIONS);
    let mut wires = Vec::new();
    // In turn over all members, as clients of a cluster with several endpoints.
    for number in 0..connections {
        let address = addresses
            .get(number % addresses.len().max(1))
            .cloned()
            .unwrap_or_default();
        wires.push(Wire::connect(&address, work.path()).await?);
    }
    let end = Instant::now() + duration;
    // As in a real client, many calls share a connection.
    let share = |number: usize| clients / connections + usize::from(number < clients % connections);
    let mut tasks = JoinSet::new();
    for (number, wire) in wires.into_iter().enumerate() {
        tasks.spawn(run_clients(
            wire,
            work,
            share(number),
            number as u64 + 1,
            end,
        ));
    }
    collect_calls(cluster, tasks).await
}

/// Waits for tasks and sums up their calls.
pub async fn collect_calls<C: Into<Calls> + 'static>(
    cluster: &Cluster,
    mut tasks: JoinSet<Result<C>>,
) -> Result<Measurement> {
    // After the set-up, so that opening connections does not count as load.
    let (server_cpu, client_cpu, begin) =
        (cluster.cpu_seconds(), own_cpu_seconds(), Instant::now());
    let mut seen = Measurement::default();
    while let Some(done) = tasks.join_next().await {
        let calls: Calls = done??.into();
        seen.latencies.extend(calls.latencies);
        seen.long.extend(calls.long);
    }
    seen.seconds = begin.elapsed().as_secs_f64();
    (seen.server_cpu, seen.client_cpu) = (
        cluster.cpu_seconds() - server_cpu,
        own_cpu_seconds() - client_cpu,
    );
    Ok(seen)
}

/// Runs the clients of a connection.
async fn run_clients(
    mut wire: Wire,
    work: Work,
    clients: usize,
    seed: u64,
    end: Instant,
) -> Result<Calls> {
    let mut random = Random::new(seed);
    let mut calls = Calls::default();
    // Stream, start time, and whether a message was received.
    let mut open: Vec<(u32, Instant, bool)> = Vec::new();
    for _ in 0..clients {
        open.push((
            work.send_request(&mut wire, random.next_number()),
            Instant::now(),
            false,
        ));
    }
    let mut received = Vec::new();
    while !open.is_empty() {
        wire.send_and_receive(&mut received).await?;
        for received in received.drain(..) {
            match received {
                Received::Data(stream, _) => {
                    if let Some(call) = open.iter_mut().find(|call| call.0 == stream) {
                        call.2 = true;
                    }
                }
                Received::End(stream) => {
                    let Some(at) = open.iter().position(|call| call.0 == stream) else {
                        continue;
                    };
                    let (_, begin, has_message) = open.swap_remove(at);
                    // The status is in compressed headers, which are not decoded. A successful
                    // unary call always has a message.
                    if !has_message {
                        bail!("the server refuses a {}", work.title());
                    }
                    let now = Instant::now();
                    calls.record_call(begin, now);
                    // Calls in flight at the end are awaited, so that none is counted as failed.
                    if now < end {
                        open.push((
                            work.send_request(&mut wire, random.next_number()),
                            now,
                            false,
                        ));
                    }
                }
            }
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_put_puts_an_existing_key_and_reads_an_absent_one() {
        let txn = guarded_put("k".to_owned());
        let [compare] = &txn.compare[..] else {
            panic!("{txn:?}")
        };
        assert_eq!(compare.target_union, Some(TargetUnion::ModRevision(0)));
        assert_eq!(compare.result(), CompareResult::Greater);
        assert!(matches!(&txn.success[0].request, Some(Op::RequestPut(put)) if put.key == "k"));
        assert!(
            matches!(&txn.failure[0].request, Some(Op::RequestRange(range)) if range.key == "k")
        );
    }

    #[test]
    fn values_have_the_requested_size() {
        for size in [0, VALUE, REQUEST] {
            assert_eq!(put_request("k".into(), size).value.len(), size);
        }
    }
}
