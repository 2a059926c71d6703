//! Workloads of lease keep-alives.

use crate::ask;
use crate::figures::Seen;
use crate::load::together;
use crate::server::Cluster;
use crate::wire::{Heard, Messages, Wire};
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
const LANES: i64 = 20;
/// Maximum number of grants in progress per connection.
const GRANTS: usize = 50;
/// Time in which all leases are granted and the first ones are renewed.
pub const GRANTED: Duration = Duration::from_secs(15);
/// Number of parts in which a connection renews its leases, evenly over time.
const PARTS: usize = 100;

/// A stream of keep-alives.
struct Stream {
    wire: Wire,
    stream: Option<u32>,
    messages: Messages,
    heard: Vec<Heard>,
}

impl Stream {
    async fn open(address: &str) -> Result<Stream> {
        let wire = Wire::connect(address, KEEP_ALIVE).await?;
        Ok(Stream {
            wire,
            stream: None,
            messages: Messages::default(),
            heard: Vec::new(),
        })
    }

    /// Renews these leases and appends the latency of each, in microseconds.
    async fn renew(
        &mut self,
        ids: impl Iterator<Item = i64>,
        latencies: &mut Vec<u32>,
    ) -> Result<()> {
        let begin = Instant::now();
        let mut left = 0;
        for id in ids {
            let request = pb::LeaseKeepAliveRequest { id };
            match self.stream {
                None => self.stream = Some(self.wire.call(&request, false)),
                Some(stream) => self.wire.message(stream, &request, false),
            }
            left += 1;
        }
        while left > 0 {
            while let Some(answer) = self.messages.next::<pb::LeaseKeepAliveResponse>()? {
                if answer.ttl <= 0 {
                    bail!("a lease that is kept alive is gone");
                }
                latencies.push(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX));
                left -= 1;
            }
            if left > 0 {
                self.hear().await?;
            }
        }
        Ok(())
    }

    async fn hear(&mut self) -> Result<()> {
        self.wire.turn(&mut self.heard).await?;
        for heard in self.heard.drain(..) {
            match heard {
                Heard::Data(_, data) => self.messages.push(&data),
                Heard::End(_) => bail!("the server ends a stream of renewals"),
            }
        }
        Ok(())
    }
}

/// Each client renews its lease continuously, on its own stream.
pub async fn keep_alive(cluster: &Cluster, clients: usize, duration: Duration) -> Result<Seen> {
    let address = cluster.first()?;
    let mut lanes = Vec::new();
    for _ in 0..clients {
        let request = pb::LeaseGrantRequest { ttl: 60, id: 0 };
        let granted: pb::LeaseGrantResponse = ask::ask(&address, GRANT, &request).await?;
        lanes.push((Stream::open(&address).await?, granted.id));
    }
    let end = Instant::now() + duration;
    let mut tasks = JoinSet::new();
    for (mut stream, id) in lanes {
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < end {
                stream.renew([id].into_iter(), &mut latencies).await?;
            }
            Ok(latencies)
        });
    }
    together(cluster, tasks).await
}

/// Grants leases and renews each three times per TTL, in separate tasks, until `end`.
pub async fn keep_many(
    address: &str,
    count: i64,
    begin: Instant,
    end: Instant,
) -> Result<JoinSet<Result<Vec<u32>>>> {
    let mut tasks = JoinSet::new();
    for lane in 0..LANES {
        let ids = lane * count / LANES + 1..(lane + 1) * count / LANES + 1;
        tasks.spawn(keep(address.to_owned(), ids, begin + GRANTED, end));
    }
    sleep_until(begin + GRANTED).await;
    Ok(tasks)
}

/// Returns the number of leases on the server.
pub async fn count(address: &str) -> Result<usize> {
    let answer: pb::LeaseLeasesResponse =
        ask::ask(address, LEASES, &pb::LeaseLeasesRequest {}).await?;
    Ok(answer.leases.len())
}

async fn keep(address: String, ids: Range<i64>, from: Instant, end: Instant) -> Result<Vec<u32>> {
    let mut wire = Wire::connect(&address, GRANT).await?;
    wire.all(
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
    let mut stream = Stream::open(&address).await?;
    let mut ticks = interval(Duration::from_secs_f64(TTL as f64 / 3.0 / PARTS as f64));
    let (mut part, mut latencies) = (0, Vec::new());
    while Instant::now() < end {
        ticks.tick().await;
        if Instant::now() < from {
            latencies.clear();
        }
        stream
            .renew(ids.clone().skip(part).step_by(PARTS), &mut latencies)
            .await?;
        part = (part + 1) % PARTS;
    }
    Ok(latencies)
}
