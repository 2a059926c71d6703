//! The watch on everything under a prefix, as a feed of changes that survives lost connections.
//!
//! Invariants: changes arrive in revision order, those of one revision together. After a lost
//! connection the feed resumes after the last revision it delivered, or reports that this revision
//! is compacted and ends. One watch for all resources (instead of one each) gives every cache the
//! same revision; see docs/adr.

use crate::client::{key_bytes, prefix_end};
use crate::members::{Member, RESPONSE_TIMEOUT, Reason};
use crate::progress::is_ordered;
use crate::wait::Wait;
use crate::{Store, StoreError, StoredValue};
use proto_etcd::MessageStream;
use proto_etcd::etcdserverpb as pb;
use proto_etcd::mvccpb::{Event, event::EventType};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LAST_BACKOFF: Duration = Duration::from_secs(5);
/// The key that is written to learn of progress from old versions of etcd. No resource has its
/// name.
const MARK: &str = "ironclad.progress";

/// One key's change.
#[derive(Clone, Debug)]
pub enum Change {
    /// Written.
    Put(StoredValue),
    /// Deleted at that revision; the value is empty.
    Delete(StoredValue),
}

/// An item of the feed.
#[derive(Debug)]
pub enum WatchItem {
    /// Changes up to a revision; no further change of that revision follows.
    Changes(Vec<Change>, i64),
    /// No change up to this revision.
    Progress(i64),
    /// The connection is lost; the feed reconnects by itself.
    Lost(String),
    /// The connection is back.
    Restored,
    /// The revision is compacted: list everything again. Nothing follows.
    Compacted,
}

/// The receiving end of a watch, and the means to request progress. The watch ends when it is
/// dropped.
pub struct Feed {
    items: mpsc::Receiver<WatchItem>,
    /// Requests progress up to a revision.
    pub progress: ProgressRequests,
    /// The one task that reads the stream.
    reader: JoinSet<()>,
}

/// Requests the progress of a watch up to a revision.
#[derive(Clone)]
pub struct ProgressRequests(watch::Sender<i64>);

impl ProgressRequests {
    /// Requests items up to a revision that the store has had. The feed requests progress until
    /// they are there, at another member if the first one stays behind.
    pub fn request(&self, revision: i64) {
        self.0.send_if_modified(|wanted| {
            let is_later = revision > *wanted;
            *wanted = revision.max(*wanted);
            is_later
        });
    }
}

impl Feed {
    /// Returns the items in order; None after the last.
    ///
    /// # Panics
    /// If the task that reads the stream panicked: its owner must not take that for the end of
    /// history.
    pub async fn next(&mut self) -> Option<WatchItem> {
        if let Some(item) = self.items.recv().await {
            return Some(item);
        }
        if let Some(Err(error)) = self.reader.join_next().await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
        None
    }
}

impl Store {
    /// Watches `prefix` from `after + 1` on, until `stop`.
    pub fn watch_prefix(&self, prefix: &str, after: i64, stop: CancellationToken) -> Feed {
        // Bounded: if the caches are slow, the store's flow control holds events back.
        let (sender, items) = mpsc::channel(256);
        let (progress, wanted) = watch::channel(0);
        let watch = Watch {
            store: self.clone(),
            prefix: prefix.to_owned(),
            after,
            sender,
            wanted,
            pending: Vec::new(),
            is_ordered: false,
        };
        let mut reader = JoinSet::new();
        // A JoinSet and not a bare task: dropping the feed aborts the reader.
        reader.spawn(async move {
            stop.run_until_cancelled(watch.run_watch()).await;
        });
        Feed {
            items,
            progress: ProgressRequests(progress),
            reader,
        }
    }
}

struct Watch {
    store: Store,
    prefix: String,
    after: i64,
    sender: mpsc::Sender<WatchItem>,
    /// The latest revision that a reader waits for. The store has had it.
    wanted: watch::Receiver<i64>,
    /// Parts of a fragmented response.
    pending: Vec<Change>,
    /// Notifications of the member come after the events that they include.
    is_ordered: bool,
}

enum StreamEnd {
    Compacted,
    ReceiverDropped,
    /// The member has a new connection.
    Replaced,
    Lost(String),
}

impl Watch {
    async fn run_watch(mut self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let before = self.after;
            let member = self.store.members.preferred();
            let why = match self.run_stream(&member).await {
                StreamEnd::ReceiverDropped => return,
                StreamEnd::Compacted => return drop(self.sender.send(WatchItem::Compacted).await),
                StreamEnd::Replaced => {
                    self.pending.clear();
                    continue;
                }
                StreamEnd::Lost(why) => why,
            };
            self.store.members.leave(&member, Reason::Failure);
            // Parts of a revision that was not complete: the next stream sends the revision again.
            self.pending.clear();
            // A stream that made progress was healthy, so that the next attempt need not wait.
            backoff = if self.after > before {
                FIRST_BACKOFF
            } else {
                (backoff * 2).min(LAST_BACKOFF)
            };
            if self.sender.send(WatchItem::Lost(why)).await.is_err() {
                return;
            }
            tokio::time::sleep(backoff).await;
        }
    }

    async fn run_stream(&mut self, member: &Member) -> StreamEnd {
        // A stream on a connection that hangs ends no sooner than the connection.
        let response_timeout = match self.store.members.has_several() {
            true => RESPONSE_TIMEOUT,
            false => Duration::MAX,
        };
        match timeout(response_timeout, self.open_stream(member)).await {
            Ok(Ok((requests, responses))) => {
                self.follow_stream(member, requests, responses, response_timeout)
                    .await
            }
            Ok(Err(e)) => StreamEnd::Lost(e.to_string()),
            Err(_) => StreamEnd::Lost("no response to a watch".into()),
        }
    }

    async fn open_stream(
        &mut self,
        member: &Member,
    ) -> Result<
        (
            mpsc::Sender<pb::WatchRequest>,
            MessageStream<pb::WatchResponse>,
        ),
        StoreError,
    > {
        let mut maintenance =
            pb::maintenance_client::MaintenanceClient::new(member.channel.clone());
        self.is_ordered = match maintenance.status(pb::StatusRequest::default()).await {
            Ok(status) => is_ordered(&status.into_inner().version),
            // The server is a proxy, or the user has rights to the key space only.
            Err(status) if is_denied(status.code()) => false,
            Err(status) => return Err(status.into()),
        };
        let (requests, outgoing) = mpsc::channel(4);
        let create = pb::WatchCreateRequest {
            key: key_bytes(&self.prefix),
            range_end: prefix_end(&self.prefix),
            start_revision: self.after + 1,
            // An idle watch then moves forward every ten minutes, and a reconnect does not start
            // from a compacted revision.
            progress_notify: true,
            // A transaction may change more than fits into one message.
            fragment: true,
            ..Default::default()
        };
        // Can't fail: the channel is new and has room.
        let _ = requests.try_send(watch_request(
            pb::watch_request::RequestUnion::CreateRequest(create),
        ));
        let mut client = pb::watch_client::WatchClient::new(member.channel.clone())
            .max_decoding_message_size(usize::MAX);
        let mut request = Request::new(ReceiverStream::new(outgoing));
        // A member that is cut off from the others then ends the watch instead of being silent.
        let metadata = request.metadata_mut();
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        let responses = client.watch(request).await?;
        Ok((requests, responses.into_inner()))
    }

    async fn follow_stream(
        &mut self,
        member: &Member,
        requests: mpsc::Sender<pb::WatchRequest>,
        mut responses: MessageStream<pb::WatchResponse>,
        response_timeout: Duration,
    ) -> StreamEnd {
        let members = self.store.members.clone();
        let has_several = members.has_several();
        let mut replaced = pin!(members.wait_for_replacement(member));
        let mut wait = Wait::default();
        loop {
            let wanted = *self.wanted.borrow_and_update();
            wait.update(self.after, wanted, Instant::now());
            let hangs = sleep_after(wait.since.filter(|_| has_several), response_timeout);
            tokio::select! {
                biased;
                // No change is lost: the next stream begins after the last delivered revision.
                () = &mut replaced => return StreamEnd::Replaced,
                // Before the others: while the caches were busy, responses have waited here.
                response = responses.message() => match response {
                    Ok(Some(response)) => {
                        if response.created {
                            wait.record_created();
                        }
                        if let Some(end) = self.handle_response(response).await {
                            return end;
                        }
                    }
                    Ok(None) => return StreamEnd::Lost("the store ended the watch".into()),
                    Err(status) => return StreamEnd::Lost(status.message().to_owned()),
                },
                changed = self.wanted.changed() => if changed.is_err() {
                    return StreamEnd::ReceiverDropped;
                },
                () = sleep_after(wait.next_request, Duration::ZERO) => {
                    match self.request_progress(&requests).await {
                        Ok(mark) => wait.record_request(mark, Instant::now()),
                        Err(end) => return end,
                    }
                }
                () = hangs => return StreamEnd::Lost("the member stays behind the store".into()),
            }
        }
    }

    /// Requests progress. Returns the revision of the mark if one was written instead.
    async fn request_progress(
        &mut self,
        requests: &mpsc::Sender<pb::WatchRequest>,
    ) -> Result<Option<i64>, StreamEnd> {
        if !self.is_ordered {
            return Ok(self.write_mark().await);
        }
        let progress =
            pb::watch_request::RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
        // Without waiting: a member that takes no requests would hold up its own end.
        match requests.try_send(watch_request(progress)) {
            Err(mpsc::error::TrySendError::Closed(_)) => {
                Err(StreamEnd::Lost("the watch stream is closed".into()))
            }
            Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => Ok(None),
        }
    }

    /// Writes a key below the prefix, whose event comes after all those before it. Upstream reads
    /// from the store instead, at the cost of a whole list. Returns None if that fails.
    async fn write_mark(&self) -> Option<i64> {
        let key = format!("{}{MARK}", self.prefix);
        timeout(RESPONSE_TIMEOUT, self.store.put_mark(&key))
            .await
            .ok()?
            .ok()
    }

    async fn handle_response(&mut self, response: pb::WatchResponse) -> Option<StreamEnd> {
        // etcd cancels a watch for several reasons. Only this one makes the history useless.
        if response.canceled {
            let compacted = response.compact_revision > 0;
            return Some(if compacted {
                StreamEnd::Compacted
            } else {
                StreamEnd::Lost(response.cancel_reason)
            });
        }
        let revision = response.header.map_or(0, |h| h.revision);
        if response.created {
            return self.send_item(WatchItem::Restored).await;
        }
        if response.events.is_empty() && self.pending.is_empty() {
            // A progress notification: every event up to this revision was delivered.
            self.after = self.after.max(revision);
            return self.send_item(WatchItem::Progress(revision)).await;
        }
        self.pending
            .extend(response.events.into_iter().filter_map(to_change));
        if response.fragment {
            return None;
        }
        let changes = std::mem::take(&mut self.pending);
        // The header's revision may be ahead of events that are still to come; the last event's is
        // not.
        let last = changes.iter().map(revision_of).max().unwrap_or(revision);
        self.after = self.after.max(last);
        self.send_item(WatchItem::Changes(changes, last)).await
    }

    async fn send_item(&mut self, item: WatchItem) -> Option<StreamEnd> {
        self.sender
            .send(item)
            .await
            .is_err()
            .then_some(StreamEnd::ReceiverDropped)
    }
}

/// Waits until `pause` after a time, or for ever without one.
async fn sleep_after(time: Option<Instant>, pause: Duration) {
    match time {
        Some(time) => sleep_until(time + pause).await,
        None => std::future::pending().await,
    }
}

fn is_denied(code: Code) -> bool {
    matches!(code, Code::Unimplemented | Code::PermissionDenied)
}

fn watch_request(union: pb::watch_request::RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest {
        request_union: Some(union),
    }
}

fn to_change(event: Event) -> Option<Change> {
    // A deletion has a key and a revision, but no value.
    let deleted = event.r#type == i32::from(EventType::Delete);
    let stored = StoredValue::from(event.kv?);
    Some(if deleted {
        Change::Delete(stored)
    } else {
        Change::Put(stored)
    })
}

fn revision_of(change: &Change) -> i64 {
    match change {
        Change::Put(stored) | Change::Delete(stored) => stored.revision,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::StoreConfig;
    use proto_etcd::mvccpb::KeyValue;

    fn new_watch(after: i64) -> (Watch, mpsc::Receiver<WatchItem>) {
        let config = StoreConfig {
            servers: vec!["http://127.0.0.1:1".to_owned()],
            ..StoreConfig::default()
        };
        let (sender, items) = mpsc::channel(16);
        let watch = Watch {
            store: Store::new(&config).unwrap(),
            prefix: "/a/".to_owned(),
            after,
            sender,
            wanted: watch::channel(0).1,
            pending: Vec::new(),
            is_ordered: true,
        };
        (watch, items)
    }

    fn response(header: i64, revisions: &[i64], fragment: bool) -> pb::WatchResponse {
        let event = |revision: &i64| Event {
            kv: Some(KeyValue {
                mod_revision: *revision,
                ..Default::default()
            }),
            ..Default::default()
        };
        pb::WatchResponse {
            header: Some(pb::ResponseHeader {
                revision: header,
                ..Default::default()
            }),
            events: revisions.iter().map(event).collect(),
            fragment,
            ..Default::default()
        }
    }

    #[tokio::test]
    async fn fragments_of_a_response_are_delivered_together() {
        let (mut watch, mut items) = new_watch(4);
        assert!(
            watch
                .handle_response(response(5, &[5], true))
                .await
                .is_none()
        );
        assert!(items.try_recv().is_err(), "revision 5 is not complete");
        assert_eq!(watch.after, 4, "a reconnect must read revision 5 again");
        watch.handle_response(response(5, &[5], false)).await;
        let item = items.try_recv().unwrap();
        assert!(
            matches!(&item, WatchItem::Changes(changes, 5) if changes.len() == 2),
            "{item:?}"
        );
    }

    #[tokio::test]
    async fn watch_resumes_after_its_last_event_and_not_after_the_header() {
        let (mut watch, _items) = new_watch(1);
        watch.handle_response(response(9, &[5, 6], false)).await;
        assert_eq!(watch.after, 6, "events 7 to 9 may follow");
        watch.handle_response(response(9, &[], false)).await;
        assert_eq!(
            watch.after, 9,
            "an empty response is a progress notification"
        );
        watch.handle_response(response(3, &[], false)).await;
        assert_eq!(watch.after, 9, "progress never goes back");
    }

    #[tokio::test]
    async fn canceled_watch_reconnects_unless_its_revision_is_compacted() {
        let (mut watch, _items) = new_watch(1);
        let canceled = |compact_revision| pb::WatchResponse {
            canceled: true,
            compact_revision,
            cancel_reason: "etcdserver: no leader".to_owned(),
            ..Default::default()
        };
        let end = watch.handle_response(canceled(0)).await;
        assert!(matches!(end, Some(StreamEnd::Lost(why)) if why.contains("no leader")));
        let end = watch.handle_response(canceled(7)).await;
        assert!(matches!(end, Some(StreamEnd::Compacted)));
    }
}
