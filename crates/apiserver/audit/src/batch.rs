//! Sends events in batches.

use crate::backend::Backend;
use crate::event::Event;
use crate::metrics::AuditMetrics;
use crate::throttle::Throttle;
use base_task::CancellationToken;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Sizes and times of batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Batching {
    /// Events that are kept; more are dropped.
    pub buffer: usize,
    /// Events of a batch.
    pub batch: usize,
    /// Time until a batch is sent that is not full.
    pub wait: Duration,
    /// The limit of the rate of batches.
    pub throttle: Option<Rate>,
    /// Batches that are sent at the same time.
    pub concurrent: usize,
}

/// A rate of batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Batches per second.
    pub qps: f64,
    /// Batches at once after a pause.
    pub burst: u32,
}

/// An event that waits for its batch.
pub(crate) struct Kept {
    pub(crate) event: Arc<Event>,
    /// The bytes that the event occupies in the buffer.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// Sends the events of the buffer until `shutdown`, then what is left of it.
pub(crate) async fn run_batches(
    backend: Arc<dyn Backend>,
    batching: Batching,
    mut buffer: mpsc::Receiver<Kept>,
    metrics: Arc<AuditMetrics>,
    shutdown: CancellationToken,
) {
    let now = Instant::now();
    let rate = batching.throttle;
    let mut throttle = rate.map(|rate| Throttle::new(rate.qps, rate.burst, now));
    let mut sending = JoinSet::new();
    let mut is_closed = false;
    loop {
        let batch = collect_batch(&mut buffer, &batching, &shutdown).await;
        if shutdown.is_cancelled() && !is_closed {
            // Later events are rejected, so that the rest has an end.
            buffer.close();
            is_closed = true;
        }
        if batch.is_empty() {
            if is_closed {
                break;
            }
            continue;
        }
        if let Some(throttle) = &mut throttle {
            tokio::time::sleep(throttle.take(Instant::now())).await;
        }
        while sending.len() >= batching.concurrent {
            let _ = sending.join_next().await;
        }
        let (backend, metrics) = (backend.clone(), metrics.clone());
        sending.spawn(async move {
            let events: Vec<Arc<Event>> = batch.iter().map(|kept| kept.event.clone()).collect();
            if let Err(error) = backend.process_events(&events).await {
                metrics.report_failure(backend.name(), events.len(), &error);
            }
            // Not before: the events occupy memory while they are sent.
            drop(batch);
        });
    }
    while sending.join_next().await.is_some() {}
}

/// Waits for a full batch, the end of the time since its first event, or the shutdown.
async fn collect_batch(
    buffer: &mut mpsc::Receiver<Kept>,
    batching: &Batching,
    shutdown: &CancellationToken,
) -> Vec<Kept> {
    let mut batch = Vec::new();
    let first = tokio::select! {
        received = buffer.recv_many(&mut batch, batching.batch) => received,
        () = shutdown.cancelled() => 0,
    };
    if shutdown.is_cancelled() {
        while batch.len() < batching.batch
            && let Ok(event) = buffer.try_recv()
        {
            batch.push(event);
        }
        return batch;
    }
    if first == 0 {
        return batch;
    }
    let end = Instant::now() + batching.wait;
    while batch.len() < batching.batch {
        let missing = batching.batch - batch.len();
        tokio::select! {
            received = buffer.recv_many(&mut batch, missing) => if received == 0 { break },
            () = tokio::time::sleep_until(end) => break,
            () = shutdown.cancelled() => break,
        }
    }
    batch
}
