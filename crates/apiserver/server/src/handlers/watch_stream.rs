//! The stream of a watch: backlog, changes, bookmarks, end.
//!
//! It is the body of the response and not a task of its own: a task for each watch would double the
//! switches between tasks for each event.
//!
//! Invariant: a bookmark's revision is never ahead of a change that is still to be sent. The
//! revision is read first, then queued changes are sent, then the bookmark: the watch cache
//! delivers changes to watchers before its revision moves.

use super::watch_rules::WatchOptions;
use crate::body::{Body, BodyError, stream_body};
use crate::context::Context;
use crate::metrics::{EventCounter, Gauge};
use crate::negotiate::{Format, MediaType, Transform};
use crate::respond;
use crate::server::Server;
use crate::transform;
use api_codec::list::ListMeta;
use api_codec::{envelope, proto, watch};
use api_kinds::Resource;
use api_meta::ApiError;
use api_schema::schema;
use apiserver_cache::{Delivery, Entry, FrameFormat, Selection, Subscription, convert_entries};
use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

// Upstream's interval. It bounds the history that a reconnecting client needs.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Time of the last bookmark before the watch ends.
const BEFORE_END: Duration = Duration::from_secs(2);
/// Existing objects that are converted together: bounds the memory of a watch.
const BACKLOG_PART: usize = 100;
/// Changes that are sent in one part at most.
const TOGETHER: usize = 16;
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Encodes events in one representation.
pub struct Frames {
    resource: Arc<Resource>,
    media_type: MediaType,
    /// `includeObject` of tables.
    include: String,
    columns_sent: std::sync::atomic::AtomicBool,
}

impl Frames {
    /// Creates an encoder for a client.
    pub fn new(context: &Context, resource: Arc<Resource>, media_type: MediaType) -> Self {
        let include = context.query.text("includeObject").to_owned();
        Frames {
            resource,
            media_type,
            include,
            columns_sent: false.into(),
        }
    }

    fn encode_event(&self, delivery: &Delivery) -> Result<Bytes, ApiError> {
        let (name, entry) = (delivery.event.as_str(), &*delivery.entry);
        let is_stored_version = self.resource.is_same_version(&entry.kind().resource);
        match (self.media_type.transform, &delivery.frames) {
            (Transform::None, Some(frames)) if is_stored_version => {
                let format = match self.media_type.format {
                    Format::Protobuf => FrameFormat::Proto,
                    Format::Cbor => FrameFormat::Cbor,
                    Format::Json | Format::Yaml => FrameFormat::Json,
                };
                frames.get_or_encode(delivery.event, format, || self.encode_plain(name, entry))
            }
            (Transform::None, _) => self.encode_plain(name, entry),
            _ => Ok(self.encode_transformed(name, &entry.tree_as(&self.resource)?)),
        }
    }

    fn encode_plain(&self, name: &str, entry: &Entry) -> Result<Bytes, ApiError> {
        let resource = &*self.resource;
        Ok(match self.media_type.format {
            Format::Protobuf => {
                let message = entry.encode_proto(resource)?;
                let object = envelope::wrap(&resource.api_version(), &resource.kind, &message);
                watch::proto_frame(name, &object)
            }
            Format::Cbor => watch::cbor_frame(name, &entry.encode_cbor(resource)?),
            Format::Json | Format::Yaml => watch::json_frame(name, &entry.encode_json(resource)?),
        }
        .into())
    }

    fn encode_transformed(&self, name: &str, tree: &Value) -> Bytes {
        if self.media_type.transform == Transform::Table {
            let first = !self
                .columns_sent
                .swap(true, std::sync::atomic::Ordering::Relaxed);
            let meta = ListMeta {
                resource_version: api_meta::Meta::resource_version(tree).into(),
                ..ListMeta::default()
            };
            let table = transform::table_object(
                &self.include,
                &self.resource,
                std::iter::once(Ok(tree)),
                &meta,
                first,
            );
            return self.untyped_frame(name, &table.unwrap_or_default());
        }
        self.frame_bytes(
            name,
            &transform::encode_partial(
                without_indentation(self.media_type),
                &transform::partial_metadata(tree),
            ),
        )
    }

    fn encode_bookmark(&self, revision: i64, initial_end: bool) -> Bytes {
        let mut metadata =
            json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            // The annotation distinguishes the end of the initial events from periodic bookmarks.
            metadata["annotations"] = json!({INITIAL_END: "true"});
        }
        let object = json!({"kind": &*self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata});
        match (self.media_type.transform, self.media_type.format) {
            (Transform::None, Format::Protobuf) => watch::proto_frame(
                "BOOKMARK",
                &respond::encode_tree(self.media_type, &self.resource.schema, &object),
            )
            .into(),
            (Transform::None, _) => self.untyped_frame("BOOKMARK", &object),
            _ => self.encode_transformed("BOOKMARK", &object),
        }
    }

    /// Encodes an ERROR event.
    pub fn encode_error(&self, error: &ApiError) -> Bytes {
        let status = serde_json::to_value(error.status()).unwrap_or_default();
        match schema().message("k8s.io.apimachinery.pkg.apis.meta.v1.Status") {
            Some(message) if self.media_type.format == Format::Protobuf => {
                watch::proto_frame("ERROR", &proto::encode_object(message, &status)).into()
            }
            _ => self.untyped_frame("ERROR", &status),
        }
    }

    /// Encodes an event with an object without a schema, which has no protobuf form.
    fn untyped_frame(&self, name: &str, object: &Value) -> Bytes {
        let media_type = without_indentation(self.media_type);
        self.frame_bytes(name, &respond::encode_untyped(media_type, object))
    }

    fn frame_bytes(&self, name: &str, object: &[u8]) -> Bytes {
        match self.media_type.format {
            Format::Protobuf => watch::proto_frame(name, object).into(),
            Format::Cbor => watch::cbor_frame(name, object).into(),
            Format::Json | Format::Yaml => watch::json_frame(name, object).into(),
        }
    }
}

fn without_indentation(media_type: MediaType) -> MediaType {
    // An indented frame spans lines, but some clients (Python's) read a watch line by line.
    MediaType {
        pretty: false,
        ..media_type
    }
}

/// The body of one watch: frames are encoded when the connection asks for them.
pub struct Stream {
    server: Arc<Server>,
    frames: Frames,
    selection: Selection,
    options: WatchOptions,
    /// Existing objects or missed changes that are not sent yet.
    backlog: std::vec::IntoIter<Delivery>,
    phase: Phase,
    changes: mpsc::Receiver<Delivery>,
    /// Encoded frames that are not sent yet.
    part: Vec<Bytes>,
    /// Revision of the last event or bookmark that was sent.
    sent: i64,
    /// Revision at which the backlog ends.
    backlog_end: i64,
    next_bookmark: Instant,
    ends: Instant,
    /// Expires at the next bookmark, or at the end.
    timer: Pin<Box<Sleep>>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    counter: EventCounter,
    _gauge: Gauge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Backlog,
    Live,
    Ended,
}

/// The client must reconnect.
struct StreamEnd;

impl Stream {
    /// Creates the response body of a watch.
    pub fn create_body(
        server: &Arc<Server>,
        subscription: Subscription,
        selection: Selection,
        frames: Frames,
        options: WatchOptions,
    ) -> Body {
        // From the start of the stream: the backlog counts, too, or a slow client would never end.
        let ends = Instant::now() + options.timeout;
        let next_bookmark = first_bookmark(ends);
        let stream = Stream {
            backlog: subscription.backlog.into_iter(),
            phase: Phase::Backlog,
            changes: subscription.changes,
            part: Vec::new(),
            sent: 0,
            backlog_end: subscription.revision,
            next_bookmark,
            ends,
            timer: Box::pin(tokio::time::sleep_until(ends)),
            closing: Box::pin(server.closing.clone().cancelled_owned()),
            counter: server.metrics.count_events(&frames.resource),
            _gauge: server.metrics.begin_watch(),
            server: server.clone(),
            frames,
            selection,
            options,
        };
        let parts = futures::stream::unfold(stream, |mut stream| async move {
            let part = stream.next_part().await?;
            Some((Ok::<_, BodyError>(Frame::data(part)), stream))
        });
        // Streamed without a length. If the client disconnects, hyper drops the body, and with it
        // the subscription.
        stream_body(StreamBody::new(parts), 0)
    }

    /// Returns the frames to send next; `None` at the end.
    async fn next_part(&mut self) -> Option<Bytes> {
        while self.part.is_empty() {
            let step = match self.phase {
                Phase::Backlog => self.send_backlog().await,
                Phase::Live => self.send_change().await,
                Phase::Ended => return None,
            };
            if let Err(StreamEnd) = step {
                self.phase = Phase::Ended;
            }
        }
        let part = std::mem::take(&mut self.part);
        Some(match <[Bytes; 1]>::try_from(part) {
            // Without a copy: the usual case, in which all watchers share the bytes.
            Ok([frame]) => frame,
            Err(frames) => frames.concat().into(),
        })
    }

    /// Adds the next part of the backlog.
    async fn send_backlog(&mut self) -> Result<(), StreamEnd> {
        let part: Vec<Delivery> = self.backlog.by_ref().take(BACKLOG_PART).collect();
        if !part.is_empty() {
            return self.add_events(&part).await;
        }
        self.phase = Phase::Live;
        // The backlog reaches this revision even if its last event is older.
        self.sent = self.backlog_end;
        // Reflectors that stream their lists count as synced only after this bookmark.
        if self.options.initial_events == Some(true) && self.options.bookmarks {
            self.add_bookmark(true);
        }
        self.set_timer();
        Ok(())
    }

    /// Waits for changes, the next bookmark, or the end.
    async fn send_change(&mut self) -> Result<(), StreamEnd> {
        tokio::select! {
            // The cache closes the queue of a watcher that is too slow; the client then watches
            // again from its last revision.
            change = self.changes.recv() => {
                self.add_events(&[change.ok_or(StreamEnd)?]).await?;
                // Those that have arrived meanwhile are sent in the same part.
                while self.part.len() < TOGETHER && let Ok(change) = self.changes.try_recv() {
                    self.add_events(&[change]).await?;
                }
                Ok(())
            }
            () = &mut self.timer => {
                let now = Instant::now();
                if now >= self.ends {
                    return Err(StreamEnd);
                }
                if self.options.bookmarks && now >= self.next_bookmark {
                    self.catch_up().await?;
                    self.next_bookmark = following_bookmark(self.ends);
                }
                self.set_timer();
                Ok(())
            }
            () = &mut self.closing => Err(StreamEnd),
        }
    }

    /// Sets the timer to the next bookmark or the end.
    fn set_timer(&mut self) {
        let next = match self.options.bookmarks {
            true => self.next_bookmark.min(self.ends),
            false => self.ends,
        };
        self.timer.as_mut().reset(next);
    }

    /// Adds queued changes, then a bookmark.
    async fn catch_up(&mut self) -> Result<(), StreamEnd> {
        let revision = self.server.caches.revision();
        while let Ok(change) = self.changes.try_recv() {
            self.add_events(&[change]).await?;
        }
        // Never backwards: an event that arrived meanwhile may be newer than this revision.
        self.sent = self.sent.max(revision);
        self.add_bookmark(false);
        Ok(())
    }

    fn add_bookmark(&mut self, initial_end: bool) {
        let bookmark = self.frames.encode_bookmark(self.sent, initial_end);
        self.part.push(bookmark);
    }

    fn add_event(&mut self, delivery: &Delivery) -> Result<(), StreamEnd> {
        self.sent = self.sent.max(delivery.entry.revision);
        self.counter.count_event();
        match self.frames.encode_event(delivery) {
            Ok(frame) => {
                self.part.push(frame);
                Ok(())
            }
            Err(error) => Err(self.report_error(&error)),
        }
    }

    /// Reports an error: skipping the event would leave the client with a stale object.
    fn report_error(&mut self, error: &ApiError) -> StreamEnd {
        let frame = self.frames.encode_error(error);
        self.part.push(frame);
        StreamEnd
    }

    /// Adds events, converted together if the kind has a converter.
    async fn add_events(&mut self, part: &[Delivery]) -> Result<(), StreamEnd> {
        if self.frames.resource.schema.converter().is_none() {
            return part
                .iter()
                .try_for_each(|delivery| self.add_event(delivery));
        }
        let states = part
            .iter()
            .flat_map(|delivery| std::iter::once(&delivery.entry).chain(&delivery.previous));
        let states = states.cloned().collect();
        // In the body of this watch: a slow webhook delays no other client.
        let states = match convert_entries(&self.frames.resource, states).await {
            Ok(states) => states,
            Err(error) => return Err(self.report_error(&error)),
        };
        let mut states = states.into_iter();
        for delivery in part {
            let Some(entry) = states.next() else { break };
            let converted = Delivery {
                event: delivery.event,
                entry,
                previous: delivery.previous.as_ref().and_then(|_| states.next()),
                frames: None,
            };
            if let Some(seen) = converted.select_converted(&self.selection) {
                self.add_event(&seen)?;
            }
        }
        Ok(())
    }
}

fn first_bookmark(ends: Instant) -> Instant {
    let before_end = ends.checked_sub(BEFORE_END).unwrap_or(ends);
    (Instant::now() + BOOKMARK_EVERY).min(before_end)
}

fn following_bookmark(ends: Instant) -> Instant {
    let next = first_bookmark(ends);
    // No further bookmark follows the last one before the end.
    if next <= Instant::now() {
        ends + BOOKMARK_EVERY
    } else {
        next
    }
}
