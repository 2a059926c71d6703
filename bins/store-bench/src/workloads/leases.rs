//! Workloads of lease keep-alives.

use crate::figures::Measurement;
use crate::grpc::unary;
use crate::grpc::wire::{Messages, Received, Wire};
use crate::host::server::Cluster;
use crate::workloads::calls::collect_calls;
use anyhow::{Result, bail};
use proto_etcd::etcdserverpb as pb;
use std::ops::Range;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const LEASES: &str = "/etcdserverpb.Lease/LeaseLeases";
/// TTL of each of many leases, in seconds.
const TTL: i64 = 10;
/// Number of connections for many leases.
const CONNECTIONS: i64 = 20;
/// Maximum number of grants in progress per connection.
const GRANTS: usize = 50;
/// Time in which all leases are granted and the first ones are renewed.
pub const GRANTED: Duration = Duration::from_secs(15);
/// Number of parts in which a connection renews its leases, evenly over time.
const PARTS: usize = 100;

/// A stream of keep-alives.
struct KeepAliveStream {
    wire: Wire,
    stream: Option<u32>,
    messages: Messages,
    received: Vec<Received>,
}

impl KeepAliveStream {
    async fn open(address: &str) -> Result<KeepAliveStream> {
        let wire = Wire::connect(address, KEEP_ALIVE).await?;
        Ok(KeepAliveStream {
            wire,
            stream: None,
            messages: Messages::default(),
            received: Vec::new(),
        })
    }

    /// Renews these leases and appends the latency of each, in microseconds.
    async fn renew_leases(
        &mut self,
        ids: impl Iterator<Item = i64>,
        latencies: &mut Vec<u32>,
    ) -> Result<()> {
        let begin = Instant::now();
        let mut left = 0;
        for id in ids {
            let request = pb::LeaseKeepAliveRequest { id };
            match self.stream {
                None => self.stream = Some(self.wire.start_call(&request, false)),
                Some(stream) => self.wire.send_message(stream, &request, false),
            }
            left += 1;
        }
        while left > 0 {
            while let Some(response) = self.messages.next::<pb::LeaseKeepAliveResponse>()? {
                // etcd responds with TTL 0 for a lease that does not exist.
                if response.ttl <= 0 {
                    bail!("a lease that is kept alive is gone");
                }
                latencies.push(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX));
                left -= 1;
            }
            if left > 0 {
                self.receive_responses().await?;
            }
        }
        Ok(())
    }

    async fn receive_responses(&mut self) -> Result<()> {
        self.wire.send_and_receive(&mut self.received).await?;
        for received in self.received.drain(..) {
            match received {
                Received::Data(_, data) => self.messages.push(&data),
                Received::End(_) => bail!("the server ends a stream of renewals"),
            }
        }
        Ok(())
    }
}

/// Each client renews its lease continuously, on its own stream.
pub async fn keep_alive(
    cluster: &Cluster,
    clients: usize,
    duration: Duration,
) -> Result<Measurement> {
    let address = cluster.first_address()?;
    let mut streams = Vec::new();
    for _ in 0..clients {
        // Long enough that no lease expires before its client begins to renew it.
        let request = pb::LeaseGrantRequest { ttl: 60, id: 0 };
        let granted: pb::LeaseGrantResponse = unary::call_once(&address, GRANT, &request).await?;
        streams.push((KeepAliveStream::open(&address).await?, granted.id));
    }
    let end = Instant::now() + duration;
    let mut tasks = JoinSet::new();
    for (mut stream, id) in streams {
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < end {
                stream
                    .renew_leases([id].into_iter(), &mut latencies)
                    .await?;
            }
            Ok(latencies)
        });
    }
    collect_calls(cluster, tasks).await
}

/// Grants leases and renews each three times per TTL, in separate tasks, until `end`.
pub async fn start_keep_alives(
    address: &str,
    count: i64,
    begin: Instant,
    end: Instant,
) -> Result<JoinSet<Result<Vec<u32>>>> {
    let mut tasks = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let ids = connection * count / CONNECTIONS + 1..(connection + 1) * count / CONNECTIONS + 1;
        tasks.spawn(keep_alive_range(
            address.to_owned(),
            ids,
            begin + GRANTED,
            end,
        ));
    }
    sleep_until(begin + GRANTED).await;
    Ok(tasks)
}

/// Returns the number of leases on the server.
pub async fn count_leases(address: &str) -> Result<usize> {
    let response: pb::LeaseLeasesResponse =
        unary::call_once(address, LEASES, &pb::LeaseLeasesRequest {}).await?;
    Ok(response.leases.len())
}

async fn keep_alive_range(
    address: String,
    ids: Range<i64>,
    from: Instant,
    end: Instant,
) -> Result<Vec<u32>> {
    let mut wire = Wire::connect(&address, GRANT).await?;
    wire.call_many(
        GRANTS,
        ids.clone().map(|id| pb::LeaseGrantRequest { ttl: TTL, id }),
    )
    .await?;
    if Instant::now() > from {
        bail!(
            "{} leases were not granted in {} s",
            ids.count(),
            GRANTED.as_secs()
        );
    }
    let mut stream = KeepAliveStream::open(&address).await?;
    // Like etcd's client, three renewals per TTL. In parts, so that the load is even.
    let mut ticks = interval(Duration::from_secs_f64(TTL as f64 / 3.0 / PARTS as f64));
    let (mut part, mut latencies) = (0, Vec::new());
    while Instant::now() < end {
        ticks.tick().await;
        // The first renewals overlap with the grants and do not count.
        if Instant::now() < from {
            latencies.clear();
        }
        stream
            .renew_leases(ids.clone().skip(part).step_by(PARTS), &mut latencies)
            .await?;
        part = (part + 1) % PARTS;
    }
    Ok(latencies)
}
