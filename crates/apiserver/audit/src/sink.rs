//! A backend with its mode, its buffer and its limits.

use crate::backend::Backend;
use crate::batch::{Batching, Kept, run_batches};
use crate::event::Event;
use crate::limits::EventLimits;
use crate::metrics::AuditMetrics;
use base_task::Tasks;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Events that a blocking backend records at the same time. Further requests wait for their turn.
const BLOCKING_EVENTS: usize = 4096;
/// Bytes of events that wait in a buffer, in units of [`UNIT`].
const BUFFER_UNITS: usize = 256 * 1024;
const UNIT: usize = 1024;

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
    recorder: Arc<Recorder>,
    /// The buffer, in batch mode.
    buffer: Option<Buffer>,
    rejects: bool,
    limits: Option<EventLimits>,
}

/// Records events one by one, in tasks of their own.
struct Recorder {
    backend: Arc<dyn Backend>,
    metrics: Arc<AuditMetrics>,
    tasks: Tasks,
    turns: Arc<Semaphore>,
}

/// Events that wait for a batch, limited in number and in bytes.
struct Buffer {
    sender: mpsc::Sender<Kept>,
    units: Arc<Semaphore>,
}

impl Buffer {
    /// Keeps an event; returns false if there is no room.
    fn keep(&self, event: Arc<Event>) -> bool {
        let units = 1 + event.bodies_length() / UNIT;
        // The largest event fits in an empty buffer.
        let units = u32::try_from(units.min(BUFFER_UNITS)).unwrap_or(u32::MAX);
        let Ok(room) = self.units.clone().try_acquire_many_owned(units) else {
            return false;
        };
        self.sender.try_send(Kept { event, _room: room }).is_ok()
    }
}

/// An event that a blocking sink is recording.
pub(crate) struct Pending {
    state: State,
    recorder: Arc<Recorder>,
    rejects: bool,
}

enum State {
    Recording(oneshot::Receiver<bool>),
    /// Too many events are being recorded.
    Waiting(Arc<Event>),
    Done,
}

impl Pending {
    /// Waits for the recording; returns false if the request must be rejected.
    pub(crate) async fn wait(mut self) -> bool {
        if let State::Waiting(event) = &self.state {
            // An error means that the server stops: the semaphore is never closed.
            if let Ok(turn) = self.recorder.turns.clone().acquire_owned().await {
                self.state = State::Recording(self.recorder.record(event.clone(), turn));
            }
        }
        let is_recorded = match &mut self.state {
            State::Recording(recorded) => recorded.await.unwrap_or(false),
            State::Waiting(_) | State::Done => false,
        };
        self.state = State::Done;
        is_recorded || !self.rejects
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let State::Waiting(_) = self.state {
            let why = "too many events wait for the backend";
            self.recorder.metrics.report_failure("buffered", 1, &why);
        }
    }
}

impl Recorder {
    /// Records an event in a task, because the future of a request is dropped when its client
    /// leaves.
    fn record(&self, event: Arc<Event>, turn: OwnedSemaphorePermit) -> oneshot::Receiver<bool> {
        let (backend, metrics) = (self.backend.clone(), self.metrics.clone());
        let (done, recorded) = oneshot::channel();
        self.tasks.spawn_isolated("audit event", async move {
            let outcome = backend.process_events(&[event]).await;
            if let Err(error) = &outcome {
                metrics.report_failure(backend.name(), 1, error);
            }
            drop(turn);
            // The request may have ended meanwhile.
            let _ = done.send(outcome.is_ok());
        });
        recorded
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
                let units = Arc::new(Semaphore::new(BUFFER_UNITS));
                Some(Buffer { sender, units })
            }
            Mode::Blocking | Mode::BlockingStrict => None,
        };
        let recorder = Arc::new(Recorder {
            backend,
            metrics: metrics.clone(),
            tasks: tasks.clone(),
            turns: Arc::new(Semaphore::new(BLOCKING_EVENTS)),
        });
        Sink {
            recorder,
            buffer,
            rejects,
            limits,
        }
    }

    /// Records an event as the mode says.
    pub(crate) fn send(&self, event: &Arc<Event>) -> Option<Pending> {
        let event = self.fit(event)?;
        let recorder = &self.recorder;
        if let Some(buffer) = &self.buffer {
            if !buffer.keep(event) {
                let why = "audit buffer queue blocked";
                recorder.metrics.report_failure("buffered", 1, &why);
            }
            return None;
        }
        let state = match recorder.turns.clone().try_acquire_owned() {
            Ok(turn) => State::Recording(recorder.record(event, turn)),
            Err(_) => State::Waiting(event),
        };
        Some(Pending {
            state,
            recorder: recorder.clone(),
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
            self.recorder.metrics.report_failure("truncate", 1, &why);
        }
        fitting
    }
}
