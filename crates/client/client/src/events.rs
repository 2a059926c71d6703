//! Events about objects, for people who read `kubectl describe`.
//!
//! Callers are never held up: an event goes into one of several bounded queues, each with a task that writes from it,
//! and is dropped when the queue is full. All events about an object go through the same queue: their order stays, and
//! [`correlator`], which turns repeats into a count and folds a flood of similar events, sees all of them.

mod correlator;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base_task::{CancellationToken, Tasks};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::error::Result;
use crate::params::Patch;
use correlator::{Correlator, Verdict};

/// Events that wait in one queue.
const QUEUE: usize = 1000;
/// Queues, and thereby requests at once: one at a time is a few hundred events a second, less than pods are bound.
const WRITERS: usize = 8;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Information.
    Normal,
    /// Something is amiss.
    Warning,
}

impl EventType {
    /// As in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What a component says about an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) regarding: ObjectReference,
    pub(crate) event_type: EventType,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) at: Timestamp,
}

/// Writes events in a component's name; cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    queues: Arc<[mpsc::Sender<Note>]>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// A recorder for a component on a host (empty if it has none). Needs a running tokio runtime; its tasks
    /// end when the last clone is dropped.
    pub fn new(client: Client, component: impl Into<String>, host: impl Into<String>) -> Self {
        let (component, host) = (component.into(), host.into());
        let tasks = Tasks::new(CancellationToken::new());
        let queues = (0..WRITERS).map(|_| {
            let (notes, queue) = mpsc::channel(QUEUE);
            let (client, component, host) = (client.clone(), component.clone(), host.clone());
            let writer = Writer { client, component, host, correlator: Correlator::default() };
            tasks.spawn_isolated("event-writer", writer.run(queue));
            notes
        });
        Self { queues: queues.collect(), dropped: Arc::default() }
    }

    /// A recorder that drops all events, for tests of decisions.
    pub fn disconnected() -> Self {
        Self { queues: Arc::default(), dropped: Arc::default() }
    }

    /// Says something about an object; never waits.
    pub fn event(&self, regarding: &ObjectReference, event_type: EventType, reason: &str, message: impl Into<String>) {
        let note = Note {
            regarding: regarding.clone(),
            event_type,
            reason: reason.to_owned(),
            message: message.into(),
            at: Timestamp::now(),
        };
        let Some(queue) = correlator::shard(&note, self.queues.len()).and_then(|shard| self.queues.get(shard)) else {
            return;
        };
        if queue.try_send(note).is_err() {
            let total = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            // At 1, 2, 4, ... dropped events: enough to notice, too few to flood the log.
            if total.is_power_of_two() {
                tracing::warn!(total, "events are dropped: they come faster than the API server takes them");
            }
        }
    }

    /// Something worth knowing.
    pub fn normal(&self, regarding: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.event(regarding, EventType::Normal, reason, message);
    }

    /// Something amiss.
    pub fn warning(&self, regarding: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.event(regarding, EventType::Warning, reason, message);
    }
}

struct Writer {
    client: Client,
    component: String,
    host: String,
    correlator: Correlator,
}

impl Writer {
    async fn run(mut self, mut queue: mpsc::Receiver<Note>) {
        while let Some(note) = queue.recv().await {
            if let Err(error) = self.write(note).await {
                tracing::debug!(%error, "an event could not be written");
            }
        }
    }

    async fn write(&mut self, note: Note) -> Result<()> {
        match self.correlator.judge(note, tokio::time::Instant::now()) {
            Verdict::Drop => Ok(()),
            Verdict::Create { key, note } => self.create(key, &note).await,
            Verdict::Repeat { key, note, name, count } => match self.bump(&note, &name, count).await {
                Err(error) if error.is_not_found() => self.create(key, &note).await,
                other => other,
            },
        }
    }

    async fn create(&mut self, key: u64, note: &Note) -> Result<()> {
        let event = event_object(note, &self.component, &self.host);
        let name = event.metadata.name.clone().unwrap_or_default();
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.client.namespaced::<Event>(&namespace).create(&event).await {
                Ok(_) => {
                    self.correlator.written(key, name);
                    return Ok(());
                }
                // The server may just be starting: events are worth a little patience, not more.
                Err(error) if error.is_unavailable() && attempts < 6 => {
                    tokio::time::sleep(std::time::Duration::from_millis(500 << attempts)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn bump(&self, note: &Note, name: &str, count: u32) -> Result<()> {
        let patch = Patch::Merge(json!({
            "count": count,
            "lastTimestamp": Time(whole_seconds(note.at)),
            "message": note.message,
        }));
        let namespace = event_namespace(&note.regarding);
        self.client.namespaced::<Event>(namespace).patch(name, &patch).await.map(drop)
    }
}

fn event_namespace(regarding: &ObjectReference) -> &str {
    regarding.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// The object that is written for a note. Its name is the object's and the time, as everywhere.
fn event_object(note: &Note, component: &str, host: &str) -> Event {
    let object = note.regarding.name.as_deref().unwrap_or_default();
    let nanoseconds = i64::try_from(note.at.as_nanosecond()).unwrap_or_default();
    let time = Some(Time(whole_seconds(note.at)));
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{object}.{nanoseconds:x}")),
            namespace: Some(event_namespace(&note.regarding).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: note.regarding.clone(),
        reason: Some(note.reason.clone()),
        message: Some(note.message.clone()),
        type_: Some(note.event_type.as_str().to_owned()),
        count: Some(1),
        first_timestamp: time.clone(),
        last_timestamp: time,
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: Some(host.to_owned()).filter(|host| !host.is_empty()),
        }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(host.to_owned()),
        ..Event::default()
    }
}
