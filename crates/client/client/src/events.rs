//! Event recorder: writes Event objects for `kubectl describe`.
//!
//! Callers never wait: an event goes into one of several bounded queues, each with a task that
//! writes its events. If the queue is full, the event is dropped. All events about an object use
//! the same queue. So they remain in order, and [`correlator`] sees all of them; it turns repeated
//! events into a count and aggregates similar ones.

mod correlator;
mod record;

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
use correlator::{CorrelationResult, Correlator};
use record::EventRecord;
pub use record::EventType;

/// Maximum number of events per queue.
const QUEUE: usize = 1000;
/// Number of queues, and thereby of concurrent requests. A single writer manages a few hundred
/// events a second, fewer than pods are bound.
const WRITERS: usize = 8;

/// Records events in the name of a component. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    queues: Arc<[mpsc::Sender<EventRecord>]>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// Creates a recorder for a component on a host (empty if it has none). Needs a running tokio
    /// runtime. Its tasks end when the last clone is dropped.
    pub fn new(client: Client, component: impl Into<String>, host: impl Into<String>) -> Self {
        Self::with_names(client, component.into(), host.into())
    }

    fn with_names(client: Client, component: String, host: String) -> Self {
        let tasks = Tasks::new(CancellationToken::new());
        let queues = (0..WRITERS).map(|_| {
            let (notes, queue) = mpsc::channel(QUEUE);
            let (client, component, host) = (client.clone(), component.clone(), host.clone());
            let writer = Writer {
                client,
                component,
                host,
                correlator: Correlator::default(),
            };
            // Events are a courtesy: a fault in writing them must not stop the component.
            tasks.spawn_isolated("event-writer", writer.write_events(queue));
            notes
        });
        Self {
            queues: queues.collect(),
            dropped: Arc::default(),
        }
    }

    /// Creates a recorder that drops all events, for tests of decisions.
    pub fn disconnected() -> Self {
        Self {
            queues: Arc::default(),
            dropped: Arc::default(),
        }
    }

    /// Records an event about an object, without waiting.
    pub fn event(
        &self,
        regarding: &ObjectReference,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let record = EventRecord {
            regarding: regarding.clone(),
            event_type,
            reason: reason.to_owned(),
            message: message.into(),
            at: Timestamp::now(),
        };
        let Some(queue) = correlator::shard_for(&record, self.queues.len())
            .and_then(|shard| self.queues.get(shard))
        else {
            return;
        };
        // Dropping is better than waiting: a component that blocks on its events stops working when
        // the API server is slow.
        if queue.try_send(record).is_err() {
            let total = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            // Logged at 1, 2, 4, ... dropped events, which bounds the number of log lines.
            if total.is_power_of_two() {
                tracing::warn!(
                    total,
                    "events are dropped: the API server accepts them too slowly"
                );
            }
        }
    }

    /// Records an event of type `Normal`.
    pub fn normal(&self, regarding: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.event(regarding, EventType::Normal, reason, message);
    }

    /// Records an event of type `Warning`.
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
    async fn write_events(mut self, mut queue: mpsc::Receiver<EventRecord>) {
        while let Some(record) = queue.recv().await {
            if let Err(error) = self.write_event(record).await {
                tracing::debug!(%error, "an event could not be written");
            }
        }
    }

    async fn write_event(&mut self, record: EventRecord) -> Result<()> {
        match self
            .correlator
            .correlate_event(record, tokio::time::Instant::now())
        {
            CorrelationResult::Drop => Ok(()),
            CorrelationResult::Create { key, record } => self.create_event(key, &record).await,
            CorrelationResult::Repeat {
                key,
                record,
                name,
                count,
            } => match self.increment_count(&record, &name, count).await {
                // Events expire after an hour. The series starts again with a new object.
                Err(error) if error.is_not_found() => self.create_event(key, &record).await,
                other => other,
            },
        }
    }

    async fn create_event(&mut self, key: u64, record: &EventRecord) -> Result<()> {
        let event = event_object(record, &self.component, &self.host);
        let name = event.metadata.name.clone().unwrap_or_default();
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self
                .client
                .namespaced::<Event>(&namespace)
                .create(&event)
                .await
            {
                Ok(_) => {
                    self.correlator.record_written(key, name);
                    return Ok(());
                }
                // The server may be starting: a few retries are worthwhile for events.
                Err(error) if error.is_unavailable() && attempts < 6 => {
                    tokio::time::sleep(std::time::Duration::from_millis(500 << attempts)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn increment_count(&self, record: &EventRecord, name: &str, count: u32) -> Result<()> {
        // A patch, not an update: it needs no read and cannot conflict.
        let patch = Patch::Merge(json!({
            "count": count,
            "lastTimestamp": Time(whole_seconds(record.at)),
            "message": record.message,
        }));
        let namespace = event_namespace(&record.regarding);
        self.client
            .namespaced::<Event>(namespace)
            .patch(name, &patch)
            .await
            .map(drop)
    }
}

fn event_namespace(regarding: &ObjectReference) -> &str {
    regarding
        .namespace
        .as_deref()
        .filter(|namespace| !namespace.is_empty())
        // Events on cluster-scoped objects live in `default`, by convention.
        .unwrap_or("default")
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    // `metav1.Time` is written without a fraction.
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Returns the Event object. Its name consists of the object's name and the time, like upstream.
fn event_object(record: &EventRecord, component: &str, host: &str) -> Event {
    let object = record.regarding.name.as_deref().unwrap_or_default();
    // Unique enough without a random part, and events of one object sort by time.
    let nanoseconds = i64::try_from(record.at.as_nanosecond()).unwrap_or_default();
    let time = Some(Time(whole_seconds(record.at)));
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{object}.{nanoseconds:x}")),
            namespace: Some(event_namespace(&record.regarding).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: record.regarding.clone(),
        reason: Some(record.reason.clone()),
        message: Some(record.message.clone()),
        type_: Some(record.event_type.as_str().to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn record(object: ObjectReference) -> EventRecord {
        EventRecord {
            regarding: object,
            event_type: EventType::Warning,
            reason: "Failed".into(),
            message: "m".into(),
            at: Timestamp::UNIX_EPOCH + std::time::Duration::from_nanos(1_500_000_000),
        }
    }

    #[test]
    fn event_is_named_after_its_object_and_the_time() {
        let object = ObjectReference {
            name: Some("p".into()),
            namespace: Some("n".into()),
            ..ObjectReference::default()
        };
        let event = event_object(&record(object), "kubelet", "node-1");
        assert_eq!(event.metadata.name.as_deref(), Some("p.59682f00"));
        assert_eq!(event.metadata.namespace.as_deref(), Some("n"));
        assert_eq!(
            (event.type_.as_deref(), event.count),
            (Some("Warning"), Some(1))
        );
        let source = event.source.unwrap_or_default();
        assert_eq!(
            (source.component.as_deref(), source.host.as_deref()),
            (Some("kubelet"), Some("node-1"))
        );
        // Whole seconds, as of `metav1.Time`.
        let seconds = event.last_timestamp.map(|time| time.0.as_nanosecond());
        assert_eq!(seconds, Some(1_000_000_000));
    }

    #[test]
    fn event_of_a_cluster_scoped_object_is_in_the_default_namespace() {
        let node = ObjectReference {
            name: Some("n1".into()),
            ..ObjectReference::default()
        };
        let event = event_object(&record(node), "scheduler", "");
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(event.source.unwrap_or_default().host, None);
    }
}
