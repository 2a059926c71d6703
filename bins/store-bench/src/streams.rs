//! Works of long calls: watches and leases kept alive.

use crate::figures::Seen;
use crate::load;
use crate::server::{Cluster, own_cpu};
use crate::wire::{Heard, Messages, Wire};
use anyhow::{Result, bail};
use proto_etcd::etcdserverpb as pb;
use proto_etcd::etcdserverpb::watch_request::RequestUnion;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const WATCHED: &str = "watched";
const STREAMS: usize = 10;
const WATCHERS: usize = 100;
/// Puts a second while watchers are measured.
const PUTS: u32 = 20;

/// Each client renews its lease again and again, on a stream of its own.
pub async fn keep_alive(cluster: &Cluster, clients: usize, duration: Duration) -> Result<Seen> {
    let address = cluster.addresses().first().cloned().unwrap_or_default();
    let mut lanes = Vec::new();
    for _ in 0..clients {
        let id = grant(&address).await?;
        lanes.push((Wire::connect(&address, KEEP_ALIVE).await?, id));
    }
    let (server_cpu, client_cpu, begin) = (cluster.cpu(), own_cpu(), Instant::now());
    let mut tasks = JoinSet::new();
    for (wire, id) in lanes {
        tasks.spawn(renew(wire, id, begin + duration));
    }
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done??);
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Seen { latencies, seconds, server_cpu: cluster.cpu() - server_cpu, client_cpu: own_cpu() - client_cpu })
}

async fn grant(address: &str) -> Result<i64> {
    let request = pb::LeaseGrantRequest { ttl: 60, id: 0 };
    load::ask::<pb::LeaseGrantResponse>(address, GRANT, &request).await.map(|answer| answer.id)
}

/// The next message on a connection with one call.
async fn next<M: prost::Message + Default>(wire: &mut Wire, messages: &mut Messages) -> Result<M> {
    let mut heard = Vec::new();
    loop {
        if let Some(message) = messages.next()? {
            return Ok(message);
        }
        wire.turn(&mut heard).await?;
        for heard in heard.drain(..) {
            match heard {
                Heard::Data(_, data) => messages.push(&data),
                Heard::End(_) => {}
            }
        }
    }
}

async fn renew(mut wire: Wire, id: i64, end: Instant) -> Result<Vec<u32>> {
    let request = pb::LeaseKeepAliveRequest { id };
    let mut messages = Messages::default();
    let mut latencies = Vec::new();
    let mut stream = None;
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok(latencies);
        }
        match stream {
            None => stream = Some(wire.call(&request, false)),
            Some(stream) => wire.message(stream, &request, false),
        }
        let answer: pb::LeaseKeepAliveResponse = next(&mut wire, &mut messages).await?;
        if answer.ttl <= 0 {
            bail!("a lease that is kept alive is gone");
        }
        latencies.push(u32::try_from(now.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
}

/// Puts of one key, a few a second, each seen by 1,000 watchers on 10 streams; a latency for each delivery.
pub async fn watch(cluster: &Cluster, duration: Duration) -> Result<Seen> {
    let address = cluster.addresses().first().cloned().unwrap_or_default();
    let start = Instant::now();
    let puts = (duration.as_secs_f64() * f64::from(PUTS)) as usize;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(open_stream(&address).await?);
    }
    let (server_cpu, client_cpu, begin) = (cluster.cpu(), own_cpu(), Instant::now());
    let mut tasks = JoinSet::new();
    for (wire, messages) in streams {
        tasks.spawn(follow(wire, messages, start, puts * WATCHERS));
    }
    let putter = tokio::spawn(put_times(address, start, puts));
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done??);
    }
    putter.await??;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Seen { latencies, seconds, server_cpu: cluster.cpu() - server_cpu, client_cpu: own_cpu() - client_cpu })
}

async fn open_stream(address: &str) -> Result<(Wire, Messages)> {
    let mut wire = Wire::connect(address, WATCH).await?;
    let create = pb::WatchCreateRequest { key: WATCHED.into(), ..Default::default() };
    let request = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let mut messages = Messages::default();
    let mut stream = None;
    for _ in 0..WATCHERS {
        match stream {
            None => stream = Some(wire.call(&request, false)),
            Some(stream) => wire.message(stream, &request, false),
        }
        let answer: pb::WatchResponse = next(&mut wire, &mut messages).await?;
        if !answer.created || answer.canceled {
            bail!("the server refuses a watch");
        }
    }
    Ok((wire, messages))
}

/// Each value says when it was put, in microseconds since `start`.
async fn put_times(address: String, start: Instant, count: usize) -> Result<()> {
    let mut wire = Wire::connect(&address, load::PUT).await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / PUTS);
    for _ in 0..count {
        ticks.tick().await;
        let value = start.elapsed().as_micros().to_string();
        let request = pb::PutRequest { key: WATCHED.into(), value: value.into(), ..Default::default() };
        wire.ask::<pb::PutResponse>(&request).await?;
    }
    Ok(())
}

async fn follow(mut wire: Wire, mut messages: Messages, start: Instant, count: usize) -> Result<Vec<u32>> {
    let mut latencies = Vec::with_capacity(count);
    while latencies.len() < count {
        let answer: pb::WatchResponse = next(&mut wire, &mut messages).await?;
        let now = start.elapsed().as_micros();
        for kv in answer.events.into_iter().filter_map(|event| event.kv) {
            let put: u128 = std::str::from_utf8(&kv.value)?.parse()?;
            latencies.push(u32::try_from(now.saturating_sub(put)).unwrap_or(u32::MAX));
        }
    }
    Ok(latencies)
}
