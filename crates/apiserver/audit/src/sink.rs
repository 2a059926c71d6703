//! A backend with its mode, its buffer and its limits.

use crate::batch::{Batching, run_batches};
use crate::delivery::Delivery;
use crate::event::Event;
use crate::limits::EventLimits;
use crate::metrics::AuditMetrics;
use base_task::Tasks;
use std::sync::Arc;
use tokio::sync::mpsc;

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
    delivery: Arc<dyn Delivery>,
    /// The buffer, in batch mode.
    buffer: Option<mpsc::Sender<Arc<Event>>>,
    rejects: bool,
    limits: Option<EventLimits>,
    metrics: Arc<AuditMetrics>,
    tasks: Tasks,
}

impl Sink {
    /// Creates a sink; in batch mode, its batches are sent by a task of `tasks`.
    pub fn new(
        delivery: Arc<dyn Delivery>,
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
                    delivery.clone(),
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
            delivery,
            buffer,
            rejects,
            limits,
            metrics: metrics.clone(),
            tasks: tasks.clone(),
        }
    }

    /// Records an event as the mode says; returns false if the request must be rejected.
    pub(crate) async fn send(&self, event: &Arc<Event>) -> bool {
        let Some(event) = self.fit(event) else {
            return true;
        };
        if let Some(buffer) = &self.buffer {
            self.keep(buffer, event);
            return true;
        }
        let sent = self.delivery.deliver(&[event]).await;
        if let Err(why) = &sent {
            self.metrics.report_failure(self.delivery.name(), 1, why);
        }
        sent.is_ok() || !self.rejects
    }

    /// Records an event without waiting for it.
    pub(crate) fn send_later(&self, event: &Arc<Event>) {
        let Some(event) = self.fit(event) else {
            return;
        };
        if let Some(buffer) = &self.buffer {
            return self.keep(buffer, event);
        }
        let (delivery, metrics) = (self.delivery.clone(), self.metrics.clone());
        self.tasks.spawn_isolated("audit event", async move {
            if let Err(why) = delivery.deliver(&[event]).await {
                metrics.report_failure(delivery.name(), 1, &why);
            }
        });
    }

    fn fit(&self, event: &Arc<Event>) -> Option<Arc<Event>> {
        let Some(limits) = self.limits else {
            return Some(event.clone());
        };
        let fitting = limits.fit_event(event);
        if fitting.is_none() {
            let why = "event is too large even after truncating";
            self.metrics.report_failure("truncate", 1, why);
        }
        fitting
    }

    fn keep(&self, buffer: &mpsc::Sender<Arc<Event>>, event: Arc<Event>) {
        if buffer.try_send(event).is_err() {
            let why = "audit buffer queue blocked";
            self.metrics.report_failure("buffered", 1, why);
        }
    }
}
