//! Watch workloads: puts that many watchers receive, with configurable connections, streams and
//! keys.

use crate::figures::Measurement;
use crate::grpc::wire::{Messages, Received, Wire};
use crate::host::server::Cluster;
use crate::workloads::calls::{self, collect_calls};
use anyhow::{Context, Result, bail};
use proto_etcd::etcdserverpb as pb;
use proto_etcd::etcdserverpb::watch_request::RequestUnion;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// Size in bytes of additional large values, below a server's initial flow-control window.
const LARGE: usize = 32 << 10;
/// Number of large puts per second.
const LARGE_PUTS: u32 = 128;
/// Number of keys for large puts, used in turn.
const LARGE_KEYS: u32 = 16;

/// Shape of a watch workload.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Number of connections.
    pub connections: usize,
    /// Number of streams per connection.
    pub streams: usize,
    /// Number of watchers per stream.
    pub watchers: usize,
    /// Number of keys, each with the same number of watchers. Must divide the number of watchers
    /// per connection.
    pub keys: usize,
    /// Puts per second.
    pub puts: u32,
}

impl Shape {
    /// All watchers watch the same key.
    pub const ONE_KEY: Shape = Shape {
        connections: 10,
        streams: 1,
        watchers: 100,
        keys: 1,
        puts: 20,
    };
    /// As many watchers as in a large cluster.
    pub const MANY: Shape = Shape {
        connections: 20,
        streams: 50,
        watchers: 10,
        keys: 100,
        puts: 100,
    };

    fn watchers_per_connection(self) -> usize {
        self.streams * self.watchers
    }

    /// Returns the total number of watchers.
    pub fn total_watchers(self) -> usize {
        self.connections * self.watchers_per_connection()
    }
}

/// Open watches.
pub struct Watchers {
    shape: Shape,
    address: String,
    connections: Vec<Arc<Mutex<WatchConnection>>>,
    start: Instant,
}

/// A connection with streams of watchers.
struct WatchConnection {
    wire: Wire,
    streams: HashMap<u32, Messages>,
    received: Vec<Received>,
}

/// A connection that watches large values and never reads them, until it is dropped.
pub struct StalledWatcher {
    _held: WatchConnection,
}

fn watched_key(key: usize) -> String {
    format!("watched/{key:04}")
}

fn create_request(key: String, range_end: String) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest {
        key: key.into(),
        range_end: range_end.into(),
        ..Default::default()
    };
    pb::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    }
}

impl WatchConnection {
    /// Opens one stream for each list of requests, with a watcher for each request.
    async fn open(address: &str, requests: &[Vec<pb::WatchRequest>]) -> Result<WatchConnection> {
        let mut connection = WatchConnection {
            wire: Wire::connect(address, WATCH).await?,
            streams: HashMap::new(),
            received: Vec::new(),
        };
        for requests in requests {
            let mut requests = requests.iter();
            let stream = connection.wire.start_call(
                requests.next().context("a stream without a watcher")?,
                false,
            );
            for request in requests {
                connection.wire.send_message(stream, request, false);
            }
            connection.streams.insert(stream, Messages::default());
        }
        let mut left: usize = requests.iter().map(Vec::len).sum();
        // Puts may begin only when every watcher exists: a later one would miss deliveries that are
        // counted.
        while left > 0 {
            connection
                .receive_responses(|response| left -= usize::from(response.created))
                .await?;
        }
        Ok(connection)
    }

    /// Waits until messages were received.
    async fn receive_responses(&mut self, mut each: impl FnMut(pb::WatchResponse)) -> Result<()> {
        self.wire.send_and_receive(&mut self.received).await?;
        for received in self.received.drain(..) {
            let Received::Data(stream, data) = received else {
                bail!("the server ends a stream of watchers")
            };
            let messages = self
                .streams
                .get_mut(&stream)
                .context("an answer on no stream")?;
            messages.push(&data);
            while let Some(response) = messages.next::<pb::WatchResponse>()? {
                // A server may cancel slow watchers. Their deliveries would be missing without a
                // sign.
                if response.canceled {
                    bail!("the server ends a watch: {}", response.cancel_reason);
                }
                each(response);
            }
        }
        Ok(())
    }

    /// Returns the latencies of `count` deliveries.
    async fn collect_latencies(&mut self, start: Instant, count: usize) -> Result<Vec<u32>> {
        let mut latencies = Vec::with_capacity(count);
        while latencies.len() < count {
            self.receive_responses(|response| {
                let now = start.elapsed().as_micros();
                for kv in response.events.into_iter().filter_map(|event| event.kv) {
                    let put: Option<u128> = std::str::from_utf8(&kv.value)
                        .ok()
                        .and_then(|value| value.parse().ok());
                    // The value is the time of the put on the same clock, so no table of puts in
                    // flight is needed.
                    let latency = now.saturating_sub(put.unwrap_or_default());
                    latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
                }
            })
            .await?;
        }
        Ok(latencies)
    }
}

impl Watchers {
    /// Opens the watches.
    pub async fn open(cluster: &Cluster, shape: Shape) -> Result<Watchers> {
        let address = cluster.first_address()?;
        let request =
            |number: usize| create_request(watched_key(number % shape.keys), String::new());
        let of_stream = |stream: usize| {
            (stream * shape.watchers..(stream + 1) * shape.watchers)
                .map(request)
                .collect()
        };
        let requests: Vec<Vec<_>> = (0..shape.streams).map(of_stream).collect();
        let mut connections = Vec::new();
        for _ in 0..shape.connections {
            connections.push(Arc::new(Mutex::new(
                WatchConnection::open(&address, &requests).await?,
            )));
        }
        Ok(Watchers {
            shape,
            address,
            connections,
            start: Instant::now(),
        })
    }

    /// Measures the latency of puts until each watcher has received them. `beside` adds large puts
    /// that none of them watches.
    pub async fn measure_deliveries(
        &self,
        cluster: &Cluster,
        duration: Duration,
        beside: bool,
    ) -> Result<Measurement> {
        let puts = (duration.as_secs_f64() * f64::from(self.shape.puts)) as usize;
        // A put reaches only the watchers of its key, of which every connection has equally many.
        let deliveries = puts * self.shape.watchers_per_connection() / self.shape.keys;
        let mut tasks = JoinSet::new();
        for connection in self.connections.clone() {
            let start = self.start;
            tasks.spawn(async move {
                connection
                    .lock()
                    .await
                    .collect_latencies(start, deliveries)
                    .await
            });
        }
        tasks.spawn(put_timestamps(
            self.address.clone(),
            self.shape,
            self.start,
            puts,
        ));
        if beside {
            tasks.spawn(put_large(self.address.clone(), duration));
        }
        // A slow server may deliver late. One that loses an event must not block the benchmark for
        // ever.
        let patience = duration * 3 + Duration::from_secs(30);
        let seen = tokio::time::timeout(patience, collect_calls(cluster, tasks)).await;
        seen.context("watchers have not been told of every put")?
    }

    /// Opens a watcher of the large values, on its own connection, that never reads.
    pub async fn open_stalled(&self) -> Result<StalledWatcher> {
        let requests = [vec![create_request(large_key(0), large_key(LARGE_KEYS))]];
        Ok(StalledWatcher {
            _held: WatchConnection::open(&self.address, &requests).await?,
        })
    }
}

/// Puts values that contain their start time, in microseconds since `start`.
async fn put_timestamps(
    address: String,
    shape: Shape,
    start: Instant,
    count: usize,
) -> Result<Vec<u32>> {
    let mut wire = Wire::connect(&address, calls::PUT).await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / shape.puts);
    for number in 0..count {
        // At fixed times and not after each response, so that a slow server gets the same load.
        ticks.tick().await;
        let (key, value) = (
            watched_key(number % shape.keys),
            start.elapsed().as_micros().to_string(),
        );
        let request = pb::PutRequest {
            key: key.into(),
            value: value.into(),
            ..Default::default()
        };
        wire.call_unary::<pb::PutResponse>(&request).await?;
    }
    Ok(Vec::new())
}

fn large_key(number: u32) -> String {
    format!("large/{number:04}")
}

async fn put_large(address: String, duration: Duration) -> Result<Vec<u32>> {
    let mut wire = Wire::connect(&address, calls::PUT).await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / LARGE_PUTS);
    for number in 0..LARGE_PUTS * duration.as_secs() as u32 {
        ticks.tick().await;
        let key = large_key(number % LARGE_KEYS).into();
        wire.call_unary::<pb::PutResponse>(&pb::PutRequest {
            key,
            value: vec![b'v'; LARGE].into(),
            ..Default::default()
        })
        .await?;
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_of_a_shape_are_spread_evenly_over_its_keys() {
        for (shape, total) in [(Shape::ONE_KEY, 1_000), (Shape::MANY, 10_000)] {
            assert_eq!(shape.total_watchers(), total);
            assert_eq!(shape.watchers_per_connection() % shape.keys, 0);
        }
    }
}
