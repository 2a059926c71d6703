//! Updates to many watchers.

use super::connection::{Call, Connection};
use super::pods::JSON;
use crate::rows::Rows;
use crate::server::Server;
use base_task::{CancellationToken, Tasks};
use http::Method;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Watchers on one connection: servers limit concurrent streams.
const PER_CONNECTION: usize = 100;
const UPDATES: usize = 100;
const INTERVAL: Duration = Duration::from_millis(50);
const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Times at which updates were sent, and delays until they arrived.
#[derive(Default)]
struct Board {
    sent: Mutex<Vec<Instant>>,
    delays: Mutex<Vec<Duration>>,
    opened: AtomicUsize,
    received: AtomicUsize,
}

/// Updates an object that all watchers select.
pub async fn measure(server: &Server, watchers: usize, rows: &mut Rows) -> anyhow::Result<()> {
    let map = json!({"metadata": {"name": "apiserver-bench"}, "data": {"a": "v".repeat(1000)}});
    server.create(PATH, &map).await?;
    let board = Arc::new(Board::default());
    let tasks = Tasks::new(CancellationToken::new());
    let stop = tasks.shutdown().clone();
    let count = watchers.div_ceil(PER_CONNECTION);
    let connections = Connection::open_many(server.config(), count).await?;
    for number in 0..watchers {
        let Some(connection) = connections.get(number / PER_CONNECTION).cloned() else {
            break;
        };
        let (board, stop) = (board.clone(), stop.clone());
        tasks.spawn_isolated("watcher", async move {
            let watch = stop.run_until_cancelled(receive_events(&connection, &board));
            if let Some(Err(error)) = watch.await {
                eprintln!("a watch failed: {error:#}");
            }
        });
    }
    // The existing object is the first event.
    let opened = || board.opened.load(Ordering::Relaxed) == watchers;
    wait_until("not all watches have begun", opened).await?;
    let ((), cost) = server
        .measure(send_updates(server, &board, watchers))
        .await?;
    let events = (UPDATES * watchers).max(1);
    let what = format!("1 update to {watchers} watchers");
    let each = cost.cpu.as_secs_f64() * 1e6 / events as f64;
    rows.add_amount(&format!("{what}: server CPU each"), watchers, "us", each);
    let mut delays = std::mem::take(&mut *board.delays.lock());
    delays.sort();
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let delay = crate::stats::find_percentile(&delays, part);
        rows.add_time(&format!("{what}: delivery, {name}"), watchers, delay);
    }
    stop.cancel();
    server.delete(&format!("{PATH}/apiserver-bench")).await
}

async fn send_updates(server: &Server, board: &Board, watchers: usize) -> anyhow::Result<()> {
    let mut tick = tokio::time::interval(INTERVAL);
    for number in 0..UPDATES {
        tick.tick().await;
        board.sent.lock().push(Instant::now());
        let patch = json!({"data": {"number": number.to_string()}});
        let patch = client::Body {
            content_type: "application/merge-patch+json",
            bytes: patch.to_string().into(),
        };
        let path = format!("{PATH}/apiserver-bench");
        let request = client::Request::new(Method::PATCH, path).with_body(patch);
        server.client().bytes(request).await?;
    }
    let received = || board.received.load(Ordering::Relaxed) >= UPDATES * watchers;
    wait_until("not all events have arrived", received).await
}

async fn receive_events(connection: &Connection, board: &Board) -> anyhow::Result<()> {
    let name = "fieldSelector=metadata.name%3Dapiserver-bench";
    let path = format!("{PATH}?watch=true&{name}&timeoutSeconds=600");
    let mut body = connection.send(Call::get(path, JSON)).await?.into_body();
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let data = frame.data_ref();
        let lines = data.map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
        for _ in 0..lines {
            // Events arrive in the order of the updates; the first is the existing object.
            match seen {
                0 => drop(board.opened.fetch_add(1, Ordering::Relaxed)),
                _ => {
                    let sent = board.sent.lock().get(seen - 1).copied();
                    let delay = sent.map(|sent| sent.elapsed()).unwrap_or_default();
                    board.delays.lock().push(delay);
                    board.received.fetch_add(1, Ordering::Relaxed);
                }
            }
            seen += 1;
        }
    }
    Ok(())
}

/// Waits until the condition holds.
async fn wait_until(what: &str, condition: impl Fn() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !condition() {
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
