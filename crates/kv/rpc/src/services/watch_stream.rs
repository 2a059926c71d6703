//! One watch stream.
//!
//! A watcher is either synced (it receives events from the hub) or unsynced (it still reads
//! history). All messages of a watcher pass through this task in order, so that no event is
//! duplicated, lost or reordered.

mod cancel_reason;
mod encode;

use crate::context::{ServerContext, to_status};
use crate::stream_caller::StreamCaller;
use bytes::{Bytes, BytesMut};
use cancel_reason::cancel_reason;
use encode::{HEADER, ID, encode_event, encoded_id, put_field, split_events};
use kv_machine::{Caller, EtcdError};
use kv_mvcc::{Event, HubHandle, HubMessage, MvccError, WatchFilter, Watcher};
use kv_transport::{PREFIX, RequestBody, Requests, ResponseSender, frame_into, put_prefix};
use prost::Message;
use proto_etcd::etcdserverpb::watch_create_request::FilterType;
use proto_etcd::etcdserverpb::watch_request::RequestUnion;
use proto_etcd::etcdserverpb::{RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use proto_etcd::mvccpb;
use proto_etcd::mvccpb::event::EventType;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

/// Watch ID of a response that concerns no particular watcher.
const NONE: i64 = -1;
/// Maximum number of revisions per read of history.
const BATCH: usize = 500;
/// Size in bytes at which a chunk is sent.
const CHUNK: usize = 64 << 10;
/// Maximum number of hub messages whose responses are sent together.
const TOGETHER: usize = 64;
struct Watching {
    watcher: Watcher,
    /// The watcher has received all events before this revision.
    next: i64,
    prev_kv: bool,
    fragment: bool,
}

/// State of a watch stream.
pub(crate) struct WatchStream {
    core: Arc<ServerContext>,
    caller: StreamCaller,
    /// Receives changes of users, roles and the auth status.
    rights: tokio::sync::watch::Receiver<u64>,
    hub: HubHandle,
    answers: ResponseSender,
    /// Encoded responses that are not sent yet. Always empty while the stream waits.
    out: BytesMut,
    watchers: BTreeMap<i64, Watching>,
    /// Unsynced watchers.
    behind: BTreeSet<i64>,
    /// Watchers that requested progress notifications.
    wants_progress: BTreeSet<i64>,
    next_id: i64,
    progress_asked: bool,
    next_progress: Instant,
}

/// An error ends the stream.
type Step = Result<(), Status>;

impl WatchStream {
    pub fn new(core: Arc<ServerContext>, caller: StreamCaller, answers: ResponseSender) -> Self {
        let rights = core.machine.rights_changed();
        let hub = core.hub.connect_stream();
        let next_progress = Instant::now() + core.bounds.progress_interval;
        WatchStream {
            core,
            caller,
            rights,
            hub,
            answers,
            out: BytesMut::new(),
            watchers: BTreeMap::new(),
            behind: BTreeSet::new(),
            wants_progress: BTreeSet::new(),
            next_id: 0,
            progress_asked: false,
            next_progress,
        }
    }

    pub async fn run<B: RequestBody>(mut self, mut requests: Requests<WatchRequest, B>) {
        let core = self.core.clone();
        let mut end = pin!(core.shutdown.cancelled());
        loop {
            self.hub.set_watcher_count(self.watchers.len());
            let step = tokio::select! {
                request = requests.message() => match request {
                    Ok(Some(request)) => self.handle_request(request).await,
                    Ok(None) => return,
                    Err(refused) => Err(refused),
                },
                inbound = self.hub.next() => {
                    let Some(inbound) = inbound else { return };
                    self.handle_hub_messages(inbound).await;
                    Ok(())
                }
                Ok(()) = self.rights.changed() => {
                    self.recheck_permissions().await;
                    Ok(())
                }
                // Always ready, so `select!` picks it at random among the others: history is read
                // as fast as the client takes it, and requests and events are not starved.
                () = std::future::ready(()), if !self.behind.is_empty() => self.read_history().await,
                () = sleep_until(self.next_progress), if !self.wants_progress.is_empty() => {
                    self.periodic_progress().await;
                    Ok(())
                }
                // The client reconnects to another member.
                () = &mut end => Err(to_status(EtcdError::Stopped)),
            };
            // After every step, because the step may have synced the last watcher that the request
            // waits for.
            if self.progress_asked && step.is_ok() {
                self.answer_progress().await;
            }
            self.flush().await;
            if let Err(refusal) = step {
                return self.answers.send(Err(refusal)).await;
            }
        }
    }

    async fn send_response(&mut self, response: WatchResponse) {
        frame_into(&mut self.out, &response);
        self.flush_if_full().await;
    }

    async fn flush_if_full(&mut self) {
        if self.out.len() >= CHUNK {
            self.flush().await;
        }
    }

    async fn flush(&mut self) {
        if !self.out.is_empty() {
            let chunk = self.out.split().freeze();
            self.answers.send(Ok(chunk)).await;
        }
    }

    /// Handles a message of the hub and those queued behind it. Their responses are sent together.
    async fn handle_hub_messages(&mut self, first: HubMessage) {
        self.handle_hub_message(first).await;
        for _ in 1..TOGETHER {
            let Some(next) = self.hub.try_next() else {
                break;
            };
            self.handle_hub_message(next).await;
        }
    }

    async fn handle_request(&mut self, request: WatchRequest) -> Step {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create_watcher(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => {
                self.cancel_watcher(cancel.watch_id).await;
                Ok(())
            }
            Some(RequestUnion::ProgressRequest(_)) => {
                self.progress_asked = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create_watcher(&mut self, create: WatchCreateRequest) -> Step {
        let key = if create.key.is_empty() {
            Bytes::from_static(&[0])
        } else {
            create.key
        };
        // The login is checked for a new watcher only. Those that exist need the permission, not
        // the login.
        let may = self
            .caller
            .current(&self.core)
            .and_then(|caller| self.check_watch(&caller, &key, &create.range_end));
        if let Err(refusal) = may {
            self.reject_watcher(cancel_reason(refusal)).await;
            return Ok(());
        }
        let Some(id) = self.choose_watch_id(create.watch_id) else {
            self.reject_watcher("mvcc: duplicate watch ID provided on the WatchStream".to_owned())
                .await;
            return Ok(());
        };
        let has = |kind: FilterType| create.filters.contains(&kind.into());
        let filter = WatchFilter {
            no_put: has(FilterType::Noput),
            no_delete: has(FilterType::Nodelete),
        };
        // Read once: a client expects all events after the revision in the response, so the watcher
        // starts right behind it.
        let present = self.core.store().current_revision();
        let next = if create.start_revision > 0 {
            create.start_revision
        } else {
            present + 1
        };
        let watching = Watching {
            watcher: Watcher {
                key,
                end: create.range_end,
                filter,
            },
            next,
            prev_kv: create.prev_kv,
            fragment: create.fragment,
        };
        self.watchers.insert(id, watching);
        // Every watcher starts unsynced. `advance` below syncs it at once if it needs no history.
        self.behind.insert(id);
        if create.progress_notify {
            self.wants_progress.insert(id);
        }
        let header = self.core.header_at(present);
        self.send_response(WatchResponse {
            header,
            watch_id: id,
            created: true,
            ..WatchResponse::default()
        })
        .await;
        self.advance_watcher(id).await
    }

    fn check_watch(&self, caller: &Caller, key: &Bytes, end: &Bytes) -> Result<(), EtcdError> {
        let range = RangeRequest {
            key: key.clone(),
            range_end: end.clone(),
            ..RangeRequest::default()
        };
        self.core.machine.check_range(caller, &range)
    }

    /// Cancels watchers whose keys the user may no longer read.
    async fn recheck_permissions(&mut self) {
        // Before the check: a change during it is seen as new by the next check.
        self.rights.mark_unchanged();
        let user = self.caller.user();
        let judged = self.watchers.iter().map(|(id, watching)| {
            let watcher = &watching.watcher;
            (*id, self.check_watch(&user, &watcher.key, &watcher.end))
        });
        let ended: Vec<(i64, EtcdError)> = judged
            .filter_map(|(id, may)| Some((id, may.err()?)))
            .collect();
        for (id, refusal) in ended {
            self.remove_watcher(id);
            self.hub.remove_watcher(id);
            let (header, cancel_reason) = (self.core.header(), cancel_reason(refusal));
            let response = WatchResponse {
                header,
                watch_id: id,
                canceled: true,
                cancel_reason,
                ..WatchResponse::default()
            };
            self.send_response(response).await;
        }
    }

    /// Checks permissions again before events are sent: a change of permissions applies to all
    /// later events.
    async fn recheck_if_changed(&mut self) {
        if self.rights.has_changed().unwrap_or(false) {
            self.recheck_permissions().await;
        }
    }

    async fn reject_watcher(&mut self, cancel_reason: String) {
        let header = self.core.header();
        let (watch_id, created, canceled) = (NONE, true, true);
        self.send_response(WatchResponse {
            header,
            watch_id,
            created,
            canceled,
            cancel_reason,
            ..WatchResponse::default()
        })
        .await;
    }

    fn choose_watch_id(&mut self, requested: i64) -> Option<i64> {
        if requested != 0 {
            return (!self.watchers.contains_key(&requested)).then_some(requested);
        }
        // A client may have chosen this ID itself.
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Some(self.next_id - 1)
    }

    async fn cancel_watcher(&mut self, id: i64) {
        if !self.remove_watcher(id) {
            return;
        }
        self.hub.remove_watcher(id);
        let header = self.core.header();
        self.send_response(WatchResponse {
            header,
            watch_id: id,
            canceled: true,
            ..WatchResponse::default()
        })
        .await;
    }

    /// Removes a watcher. Returns whether it existed.
    fn remove_watcher(&mut self, id: i64) -> bool {
        self.behind.remove(&id);
        self.wants_progress.remove(&id);
        self.watchers.remove(&id).is_some()
    }

    async fn handle_hub_message(&mut self, inbound: HubMessage) {
        self.recheck_if_changed().await;
        match inbound {
            HubMessage::Events {
                watches,
                revision,
                events,
            } => self.send_shared_events(&watches, revision, &events).await,
            HubMessage::Unsynced { watch, from } => {
                if let Some(watching) = self.watchers.get_mut(&watch) {
                    watching.next = watching.next.max(from);
                    self.behind.insert(watch);
                }
            }
        }
    }

    /// Sends events to watchers. The part that is equal for all of them is encoded once.
    async fn send_shared_events(&mut self, watches: &[i64], revision: i64, events: &[Arc<Event>]) {
        let mut head = BytesMut::new();
        put_field(
            &mut head,
            HEADER,
            self.core
                .header_at(revision)
                .unwrap_or_default()
                .encode_to_vec()
                .as_slice(),
        );
        let mut tail = BytesMut::new();
        for event in events {
            encode_event(&mut tail, event);
        }
        self.out
            .reserve((watches.len() * (PREFIX + head.len() + ID + tail.len())).min(CHUNK));
        for watch in watches {
            let Some(watching) = self.watchers.get_mut(watch) else {
                continue;
            };
            // A watcher that starts at a future revision skips earlier events.
            if revision < watching.next {
                continue;
            }
            watching.next = revision + 1;
            // These differ from watcher to watcher, so they are encoded one by one.
            let (prev_kv, fragment) = (watching.prev_kv, watching.fragment);
            if prev_kv || fragment {
                self.send_own_events(*watch, revision, events, prev_kv, fragment)
                    .await;
                continue;
            }
            // Header, ID, events: only the ID differs between these watchers.
            let mut id = [0; ID];
            let id = encoded_id(&mut id, *watch);
            put_prefix(&mut self.out, head.len() + id.len() + tail.len());
            self.out.extend_from_slice(&head);
            self.out.extend_from_slice(id);
            self.out.extend_from_slice(&tail);
            self.flush_if_full().await;
        }
    }

    /// Reads one batch of history for each unsynced watcher.
    async fn read_history(&mut self) -> Step {
        self.recheck_if_changed().await;
        for id in self.behind.clone() {
            self.advance_watcher(id).await?;
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Marks a watcher as synced and joins it to the hub, or sends it a batch of history.
    async fn advance_watcher(&mut self, id: i64) -> Step {
        let Some(watching) = self.watchers.get_mut(&id) else {
            return Ok(());
        };
        // etcd cancels such a watcher with the compacted revision, so that the client lists again.
        if watching.next < self.core.store().compacted_revision() {
            self.cancel_compacted(id).await;
            return Ok(());
        }
        // The hub accepts a watcher only if it has not sent `next` yet; checked under its lock, so
        // no event falls between history and hub.
        if self.hub.add_watcher(id, &watching.watcher, watching.next) {
            self.behind.remove(&id);
            return Ok(());
        }
        match self.core.store().read_history(watching.next, BATCH) {
            Ok((revisions, next)) => {
                let selected: Vec<Arc<Event>> = revisions
                    .iter()
                    .flat_map(|events| watching.watcher.select_events(events))
                    .collect();
                // Also if no event matched: the revisions up to `next` are done.
                watching.next = next;
                let (prev_kv, fragment) = (watching.prev_kv, watching.fragment);
                if !selected.is_empty() {
                    self.send_own_events(id, next - 1, &selected, prev_kv, fragment)
                        .await;
                }
            }
            Err(MvccError::Compacted) => self.cancel_compacted(id).await,
            Err(error) => return Err(to_status(error.into())),
        }
        Ok(())
    }

    async fn cancel_compacted(&mut self, id: i64) {
        self.remove_watcher(id);
        let compact_revision = self.core.store().compacted_revision();
        let header = self.core.header();
        let cancel_reason = EtcdError::Compacted.to_string();
        let canceled = true;
        self.send_response(WatchResponse {
            header,
            watch_id: id,
            canceled,
            compact_revision,
            cancel_reason,
            ..WatchResponse::default()
        })
        .await;
    }

    async fn send_own_events(
        &mut self,
        watch_id: i64,
        revision: i64,
        events: &[Arc<Event>],
        prev_kv: bool,
        fragment: bool,
    ) {
        let events: Vec<mvccpb::Event> = events
            .iter()
            .map(|event| self.event_message(event, prev_kv))
            .collect();
        let header = self.core.header_at(revision);
        let response = WatchResponse {
            header,
            watch_id,
            events,
            ..WatchResponse::default()
        };
        if fragment {
            self.send_fragments(response).await
        } else {
            self.send_response(response).await
        }
    }

    fn event_message(&self, event: &Event, prev_kv: bool) -> mvccpb::Event {
        let kind = if event.mark.is_tombstone() {
            EventType::Delete
        } else {
            EventType::Put
        };
        let previous = if prev_kv {
            self.core.store().previous_pair(event).ok().flatten()
        } else {
            None
        };
        mvccpb::Event {
            r#type: kind.into(),
            kv: Some(event.kv.clone()),
            prev_kv: previous,
        }
    }

    /// Sends a response in fragments of at most the maximum request size.
    async fn send_fragments(&mut self, response: WatchResponse) {
        let (header, watch_id) = (response.header, response.watch_id);
        let mut parts = split_events(response.events, self.core.bounds.max_request)
            .into_iter()
            .peekable();
        while let Some(events) = parts.next() {
            let fragment = parts.peek().is_some();
            self.send_response(WatchResponse {
                header,
                watch_id,
                events,
                fragment,
                ..WatchResponse::default()
            })
            .await;
        }
    }

    async fn periodic_progress(&mut self) {
        self.next_progress = Instant::now() + self.core.bounds.progress_interval;
        let sent = self.drain_hub().await;
        // An unsynced watcher has not received everything up to this revision, so the notification
        // would be false.
        let quiet: Vec<i64> = self
            .wants_progress
            .difference(&self.behind)
            .copied()
            .collect();
        for watch_id in quiet {
            let header = self.core.header_at(sent);
            self.send_response(WatchResponse {
                header,
                watch_id,
                ..WatchResponse::default()
            })
            .await;
        }
    }

    /// Sends a progress notification for the whole stream, once all watchers are synced.
    async fn answer_progress(&mut self) {
        if !self.behind.is_empty() {
            return;
        }
        // Queued events are sent first: the notification says that all events up to its revision
        // were sent.
        let sent = self.drain_hub().await;
        if !self.behind.is_empty() {
            return;
        }
        self.progress_asked = false;
        let header = self.core.header_at(sent);
        self.send_response(WatchResponse {
            header,
            watch_id: NONE,
            ..WatchResponse::default()
        })
        .await;
    }

    /// Handles queued messages. Returns the revision up to which synced watchers have received all
    /// events.
    async fn drain_hub(&mut self) -> i64 {
        // Read before the queue is emptied: an event that is queued later may have a revision above
        // it.
        let sent = self.hub.sent_revision();
        while let Some(inbound) = self.hub.try_next() {
            self.handle_hub_message(inbound).await;
        }
        sent
    }
}
