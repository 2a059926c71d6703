//! The stream of a watch: backlog, changes, bookmarks, end.
//!
//! Invariant: a bookmark's revision is never ahead of a change that is still to be sent. The
//! revision is read first, then queued changes are sent, then the bookmark: the watch cache
//! delivers changes to watchers before its revision moves.

use super::watch_rules::WatchOptions;
use crate::body::{Body, BodyError};
use crate::context::Context;
use crate::negotiate::{Format, MediaType, Transform};
use crate::respond;
use crate::server::Server;
use crate::transform;
use api_codec::list::ListMeta;
use api_codec::{envelope, proto, watch};
use api_kinds::Resource;
use api_meta::ApiError;
use api_schema::schema;
use apiserver_cache::{Delivery, Entry, Selection, Subscription, convert_entries};
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

// Upstream's interval. It bounds the history that a reconnecting client needs.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Time of the last bookmark before the watch ends.
const BEFORE_END: Duration = Duration::from_secs(2);
/// Existing objects that are converted together: bounds the memory of a watch.
const BACKLOG_PART: usize = 100;
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
        match self.media_type.transform {
            Transform::None => self.encode_plain(name, entry),
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
                std::iter::once(tree),
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

/// The task of one watch.
pub struct Stream {
    server: Arc<Server>,
    frames: Frames,
    selection: Selection,
    options: WatchOptions,
    out: mpsc::Sender<Bytes>,
    /// Revision of the last event or bookmark that was sent.
    sent: i64,
}

/// The client has disconnected, or must reconnect.
struct StreamEnd;

impl Stream {
    /// Starts a watch; returns the response body with its events.
    pub fn spawn(
        server: Arc<Server>,
        subscription: Subscription,
        selection: Selection,
        frames: Frames,
        options: WatchOptions,
    ) -> Body {
        // Small: the queue of the subscription is the one that absorbs bursts.
        let (out, receiver) = mpsc::channel(32);
        let stream = Stream {
            server,
            frames,
            selection,
            options,
            out,
            sent: subscription.revision,
        };
        // A panic of one watch must not stop the server.
        let tasks = stream.server.tasks.clone();
        tasks.spawn_isolated("watch", stream.run_stream(subscription));
        // Streamed without a length: the response ends with the task, which drops the sender.
        StreamBody::new(
            ReceiverStream::new(receiver).map(|bytes| Ok::<_, BodyError>(Frame::data(bytes))),
        )
        .boxed_unsync()
    }

    async fn run_stream(mut self, subscription: Subscription) {
        let gauge = self.server.metrics.begin_watch();
        let _ = self.send_events(subscription).await;
        drop(gauge);
    }

    async fn send_events(&mut self, subscription: Subscription) -> Result<(), StreamEnd> {
        // From the start of the stream: the backlog counts, too, or a slow client would never end.
        let ends = Instant::now() + self.options.timeout;
        self.send_backlog(&subscription.backlog).await?;
        // The backlog reaches this revision even if its last event is older.
        self.sent = subscription.revision;
        // Reflectors that stream their lists count as synced only after this bookmark.
        if self.options.initial_events == Some(true) && self.options.bookmarks {
            self.send_bookmark(true).await?;
        }
        let mut changes = subscription.changes;
        let mut next_bookmark = self.first_bookmark(ends);
        let closing = self.server.closing.clone();
        loop {
            tokio::select! {
                // The cache closes the queue of a watcher that is too slow; the client then watches
                // again from its last revision.
                change = changes.recv() => {
                    self.send_events_of(&[change.ok_or(StreamEnd)?]).await?;
                }
                () = tokio::time::sleep_until(next_bookmark), if self.options.bookmarks => {
                    self.catch_up(&mut changes).await?;
                    next_bookmark = self.following_bookmark(ends);
                }
                () = tokio::time::sleep_until(ends) => return Ok(()),
                // Without an event, nothing else would notice that the client disconnected.
                () = self.out.closed() => return Err(StreamEnd),
                () = closing.cancelled() => return Ok(()),
            }
        }
    }

    fn first_bookmark(&self, ends: Instant) -> Instant {
        let before_end = ends.checked_sub(BEFORE_END).unwrap_or(ends);
        (Instant::now() + BOOKMARK_EVERY).min(before_end)
    }

    fn following_bookmark(&self, ends: Instant) -> Instant {
        let next = self.first_bookmark(ends);
        // No further bookmark follows the last one before the end.
        if next <= Instant::now() {
            ends + BOOKMARK_EVERY
        } else {
            next
        }
    }

    /// Sends queued changes, then a bookmark.
    async fn catch_up(&mut self, changes: &mut mpsc::Receiver<Delivery>) -> Result<(), StreamEnd> {
        let revision = self.server.caches.revision();
        while let Ok(change) = changes.try_recv() {
            self.send_events_of(&[change]).await?;
        }
        // Never backwards: an event that arrived meanwhile may be newer than this revision.
        self.sent = self.sent.max(revision);
        self.send_bookmark(false).await
    }

    async fn send_bookmark(&self, initial_end: bool) -> Result<(), StreamEnd> {
        self.out
            .send(self.frames.encode_bookmark(self.sent, initial_end))
            .await
            .map_err(|_| StreamEnd)
    }

    async fn send_event(&mut self, delivery: &Delivery) -> Result<(), StreamEnd> {
        self.sent = self.sent.max(delivery.entry.revision);
        self.server.metrics.watch_event(&self.frames.resource);
        match self.frames.encode_event(delivery) {
            Ok(frame) => self.out.send(frame).await.map_err(|_| StreamEnd),
            Err(error) => Err(self.report_error(&error).await),
        }
    }

    /// Reports an error: skipping the event would leave the client with a stale object.
    async fn report_error(&self, error: &ApiError) -> StreamEnd {
        let _ = self.out.send(self.frames.encode_error(error)).await;
        StreamEnd
    }

    async fn send_backlog(&mut self, backlog: &[Delivery]) -> Result<(), StreamEnd> {
        for part in backlog.chunks(BACKLOG_PART) {
            self.send_events_of(part).await?;
        }
        Ok(())
    }

    /// Sends events, converted together if the kind has a converter.
    async fn send_events_of(&mut self, part: &[Delivery]) -> Result<(), StreamEnd> {
        if self.frames.resource.schema.converter().is_none() {
            for delivery in part {
                self.send_event(delivery).await?;
            }
            return Ok(());
        }
        let states = part
            .iter()
            .flat_map(|delivery| std::iter::once(&delivery.entry).chain(&delivery.previous));
        let states = states.cloned().collect();
        // The task of this watch: a slow webhook delays no other client.
        match convert_entries(&self.frames.resource, states).await {
            Ok(states) => {
                let mut states = states.into_iter();
                for delivery in part {
                    let Some(entry) = states.next() else { break };
                    let converted = Delivery {
                        event: delivery.event,
                        entry,
                        previous: delivery.previous.as_ref().and_then(|_| states.next()),
                    };
                    if let Some(seen) = converted.select_converted(&self.selection) {
                        self.send_event(&seen).await?;
                    }
                }
                Ok(())
            }
            Err(error) => Err(self.report_error(&error).await),
        }
    }
}
