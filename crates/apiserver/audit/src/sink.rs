//! A backend with its mode, its buffer and its limits.

use crate::backend::Backend;
use crate::batch::{Batching, run_batches};
use crate::event::Event;
use crate::limits::EventLimits;
use crate::metrics::AuditMetrics;
use base_task::Tasks;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The relation between a request and the recording of its events.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Events are recorded later.
    Batch(Batching),
    /// A response waits for the recording.
    Blocking,
    /// A request is rejected if its arrival can't be recorded.
    BlockingStrict,
}

/// A backend with its mode.
pub struct Sink {
    backend: Arc<dyn Backend>,
    /// The buffer, in batch mode.
    buffer: Option<mpsc::Sender<Arc<Event>>>,
    rejects: bool,
    limits: Option<EventLimits>,
    metrics: Arc<AuditMetrics>,
    tasks: Tasks,
}

/// An event that a sink is recording.
pub(crate) struct Pending {
    recorded: oneshot::Receiver<bool>,
    rejects: bool,
}

impl Pending {
    /// Waits for the recording; returns false if the request must be rejected.
    pub(crate) async fn wait(self) -> bool {
        let is_recorded = self.recorded.await.unwrap_or(false);
        is_recorded || !self.rejects
    }
}

impl Sink {
    /// Creates a sink; in batch mode, its batches are sent by a task of `tasks`.
    pub fn new(
        backend: Arc<dyn Backend>,
        mode: Mode,
        limits: Option<EventLimits>,
        metrics: &Arc<AuditMetrics>,
        tasks: &Tasks,
    ) -> Self {
        let rejects = mode == Mode::BlockingStrict;
        let buffer = match mode {
            Mode::Batch(batching) => {
                let (sender, receiver) = mpsc::channel(batching.buffer);
                let work = run_batches(
                    backend.clone(),
                    batching,
                    receiver,
                    metrics.clone(),
                    tasks.shutdown().clone(),
                );
                tasks.spawn("audit batches", work);
                Some(sender)
            }
            Mode::Blocking | Mode::BlockingStrict => None,
        };
        Sink {
            backend,
            buffer,
            rejects,
            limits,
            metrics: metrics.clone(),
            tasks: tasks.clone(),
        }
    }

    /// Records an event as the mode says. A task of its own does that, because the future of a
    /// request is dropped when its client leaves.
    pub(crate) fn send(&self, event: &Arc<Event>) -> Option<Pending> {
        let event = self.fit(event)?;
        if let Some(buffer) = &self.buffer {
            if buffer.try_send(event).is_err() {
                self.metrics
                    .report_failure("buffered", 1, &"audit buffer queue blocked");
            }
            return None;
        }
        let (backend, metrics) = (self.backend.clone(), self.metrics.clone());
        let (done, recorded) = oneshot::channel();
        self.tasks.spawn_isolated("audit event", async move {
            let outcome = backend.process_events(&[event]).await;
            if let Err(error) = &outcome {
                metrics.report_failure(backend.name(), 1, error);
            }
            // The request may have ended meanwhile.
            let _ = done.send(outcome.is_ok());
        });
        Some(Pending {
            recorded,
            rejects: self.rejects,
        })
    }

    fn fit(&self, event: &Arc<Event>) -> Option<Arc<Event>> {
        let Some(limits) = self.limits else {
            return Some(event.clone());
        };
        let fitting = limits.fit_event(event);
        if fitting.is_none() {
            let why = "event is too large even after truncating";
            self.metrics.report_failure("truncate", 1, &why);
        }
        fitting
    }
}
