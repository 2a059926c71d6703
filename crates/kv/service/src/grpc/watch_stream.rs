//! One stream of watches.
//!
//! A watcher is joined to the hub, or behind and read on from history here. Everything for a watcher passes through this
//! task in order, so that nothing is repeated, left out or out of place.

use crate::core::{Core, status};
use crate::streams::{RequestBody, Requests, Sender};
use crate::unary;
use bytes::{BufMut, Bytes, BytesMut};
use kv_machine::{Caller, Refusal};
use kv_mvcc::{Event, HubHandle, Inbound, MvccError, WatchFilter, Watcher};
use prost::{Message, encoding};
use proto_etcd::etcdserverpb::watch_create_request::FilterType;
use proto_etcd::etcdserverpb::watch_request::RequestUnion;
use proto_etcd::etcdserverpb::{RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use proto_etcd::mvccpb;
use proto_etcd::mvccpb::event::EventType;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};

/// Identifier of no watcher in particular.
const NONE: i64 = -1;
/// Revisions read from history at once.
const BATCH: usize = 500;
/// A chunk is sent at this size.
const CHUNK: usize = 64 << 10;
/// Messages of the hub whose answers go out together.
const TOGETHER: usize = 64;
/// Numbers of fields in a `WatchResponse`, an `Event`.
const HEADER: u32 = 1;
const WATCH_ID: u32 = 2;
const EVENTS: u32 = 11;
const TYPE: u32 = 1;
const KV: u32 = 2;

struct Watching {
    watcher: Watcher,
    /// It has been told everything before this revision.
    next: i64,
    joined: bool,
    prev_kv: bool,
    progress: bool,
    fragment: bool,
}

/// A stream of watches.
pub(crate) struct WatchStream {
    core: Arc<Core>,
    caller: Caller,
    token: Option<String>,
    hub: HubHandle,
    sender: Sender,
    /// Messages that are not sent yet; never any while this task waits for something else.
    out: BytesMut,
    watchers: BTreeMap<i64, Watching>,
    next_id: i64,
    progress_asked: bool,
    next_progress: Instant,
}

/// The client is gone, or the stream is over.
struct Over;

type Step = Result<(), Over>;

impl WatchStream {
    pub fn new(core: Arc<Core>, caller: Caller, token: Option<String>, sender: Sender) -> Self {
        let hub = core.hub.connect();
        let next_progress = Instant::now() + core.bounds.progress_interval;
        let watchers = BTreeMap::new();
        let out = BytesMut::new();
        WatchStream {
            core,
            caller,
            token,
            hub,
            sender,
            out,
            watchers,
            next_id: 0,
            progress_asked: false,
            next_progress,
        }
    }

    pub async fn run<B: RequestBody>(mut self, mut requests: Requests<WatchRequest, B>) {
        let core = self.core.clone();
        loop {
            self.hub.has_watchers(self.watchers.len());
            let behind = self.watchers.values().any(|watching| !watching.joined);
            let wants_progress = self.watchers.values().any(|watching| watching.progress);
            let step = tokio::select! {
                request = requests.message() => match request {
                    Ok(Some(request)) => self.requested(request).await,
                    Ok(None) => Err(Over),
                    Err(refused) => {
                        // Whoever does not take answers is not told.
                        let _ = self.sender.try_send(Err(refused));
                        Err(Over)
                    }
                },
                inbound = self.hub.next() => match inbound {
                    Some(inbound) => self.inbound_and_more(inbound).await,
                    None => Err(Over),
                },
                () = std::future::ready(()), if behind => self.catch_up().await,
                () = sleep_until(self.next_progress), if wants_progress => self.periodic_progress().await,
                () = self.sender.closed() => Err(Over),
                () = core.shutdown.cancelled() => {
                    // Clients go on with another member.
                    let _ = self.sender.try_send(Err(status(Refusal::Stopped)));
                    Err(Over)
                }
            };
            let Ok(()) = step else { return };
            if self.progress_asked && self.answer_progress().await.is_err() {
                return;
            }
            if self.flush().await.is_err() {
                return;
            }
        }
    }

    async fn send(&mut self, response: WatchResponse) -> Step {
        unary::frame_into(&mut self.out, &response);
        self.flush_if_full().await
    }

    async fn flush_if_full(&mut self) -> Step {
        if self.out.len() < CHUNK { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Step {
        if self.out.is_empty() {
            return Ok(());
        }
        let chunk = self.out.split().freeze();
        self.sender.send(Ok(chunk)).await.map_err(|_| Over)
    }

    /// Handles a message of the hub and those that wait behind it, which go out together.
    async fn inbound_and_more(&mut self, first: Inbound) -> Step {
        self.inbound(first).await?;
        for _ in 1..TOGETHER {
            let Some(next) = self.hub.try_next() else { break };
            self.inbound(next).await?;
        }
        Ok(())
    }

    async fn requested(&mut self, request: WatchRequest) -> Step {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => self.cancel(cancel.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => {
                self.progress_asked = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, create: WatchCreateRequest) -> Step {
        let key = if create.key.is_empty() { Bytes::from_static(&[0]) } else { create.key };
        let range = RangeRequest { key: key.clone(), range_end: create.range_end.clone(), ..RangeRequest::default() };
        if let Err(refusal) = self.may_watch(&range) {
            let status = status(refusal);
            let reason = format!("rpc error: code = {} desc = {}", go_code(status.code()), status.message());
            return self.refuse(reason).await;
        }
        let Some(id) = self.identifier(create.watch_id) else {
            return self.refuse("mvcc: duplicate watch ID provided on the WatchStream".to_owned()).await;
        };
        let has = |kind: FilterType| create.filters.contains(&kind.into());
        let filter = WatchFilter { no_put: has(FilterType::Noput), no_delete: has(FilterType::Nodelete) };
        let present = self.core.store().revision();
        let next = if create.start_revision > 0 { create.start_revision } else { present + 1 };
        let watching = Watching {
            watcher: Watcher { key, end: create.range_end, filter },
            next,
            joined: false,
            prev_kv: create.prev_kv,
            progress: create.progress_notify,
            fragment: create.fragment,
        };
        self.watchers.insert(id, watching);
        let header = self.core.header_at(present);
        self.send(WatchResponse { header, watch_id: id, created: true, ..WatchResponse::default() }).await?;
        self.advance(id).await
    }

    /// Whether the login still holds, and the rights are there.
    fn may_watch(&self, range: &RangeRequest) -> Result<(), Refusal> {
        let enabled = self.core.machine.auth(|auth| auth.enabled);
        if enabled && self.token.as_ref().is_some_and(|token| self.core.logged_in(token).is_none()) {
            return Err(Refusal::InvalidToken);
        }
        self.core.machine.check_range(&self.caller, range)
    }

    async fn refuse(&mut self, cancel_reason: String) -> Step {
        let header = self.core.header();
        let (watch_id, created, canceled) = (NONE, true, true);
        self.send(WatchResponse { header, watch_id, created, canceled, cancel_reason, ..WatchResponse::default() })
            .await
    }

    fn identifier(&mut self, wanted: i64) -> Option<i64> {
        if wanted != 0 {
            return (!self.watchers.contains_key(&wanted)).then_some(wanted);
        }
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Some(self.next_id - 1)
    }

    async fn cancel(&mut self, id: i64) -> Step {
        if self.watchers.remove(&id).is_none() {
            return Ok(());
        }
        self.hub.leave(id);
        let header = self.core.header();
        self.send(WatchResponse { header, watch_id: id, canceled: true, ..WatchResponse::default() }).await
    }

    async fn inbound(&mut self, inbound: Inbound) -> Step {
        match inbound {
            Inbound::Events { watches, revision, events } => self.events(&watches, revision, &events).await,
            Inbound::SetAside { watch, from } => {
                if let Some(watching) = self.watchers.get_mut(&watch) {
                    watching.joined = false;
                    watching.next = watching.next.max(from);
                }
                Ok(())
            }
        }
    }

    /// Tells watchers of the same events; what is the same for all of them is encoded once.
    async fn events(&mut self, watches: &[i64], revision: i64, events: &[Arc<Event>]) -> Step {
        let mut head = BytesMut::new();
        field(&mut head, HEADER, self.core.header_at(revision).unwrap_or_default().encode_to_vec().as_slice());
        let mut tail = BytesMut::new();
        for event in events {
            encode_event(&mut tail, event);
        }
        for watch in watches {
            let Some(watching) = self.watchers.get_mut(watch) else { continue };
            // A watcher from the future leaves out what comes before it.
            if revision < watching.next {
                continue;
            }
            watching.next = revision + 1;
            let (prev_kv, fragment) = (watching.prev_kv, watching.fragment);
            if prev_kv || fragment {
                self.deliver(*watch, revision, events, prev_kv, fragment).await?;
                continue;
            }
            let mut id = [0; 11];
            let id = encoded_id(&mut id, *watch);
            unary::prefix(&mut self.out, head.len() + id.len() + tail.len());
            self.out.extend_from_slice(&head);
            self.out.extend_from_slice(id);
            self.out.extend_from_slice(&tail);
            self.flush_if_full().await?;
        }
        Ok(())
    }

    /// One batch of history for each watcher that is behind.
    async fn catch_up(&mut self) -> Step {
        let behind: Vec<i64> = self.watchers.iter().filter(|(_, w)| !w.joined).map(|(id, _)| *id).collect();
        for id in behind {
            self.advance(id).await?;
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Joins a watcher to the hub, or tells it a batch of history.
    async fn advance(&mut self, id: i64) -> Step {
        let Some(watching) = self.watchers.get_mut(&id) else { return Ok(()) };
        if watching.next < self.core.store().compacted() {
            return self.compacted(id).await;
        }
        if self.hub.join(id, &watching.watcher, watching.next) {
            watching.joined = true;
            return Ok(());
        }
        match self.core.store().history(watching.next, BATCH) {
            Ok((revisions, next)) => {
                let wanted: Vec<Arc<Event>> =
                    revisions.iter().flat_map(|events| watching.watcher.wanted(events)).collect();
                watching.next = next;
                let (prev_kv, fragment) = (watching.prev_kv, watching.fragment);
                if wanted.is_empty() {
                    return Ok(());
                }
                self.deliver(id, next - 1, &wanted, prev_kv, fragment).await
            }
            Err(MvccError::Compacted) => self.compacted(id).await,
            Err(error) => {
                self.flush().await?;
                let _ = self.sender.send(Err(status(error.into()))).await;
                Err(Over)
            }
        }
    }

    async fn compacted(&mut self, id: i64) -> Step {
        self.watchers.remove(&id);
        let compact_revision = self.core.store().compacted();
        let header = self.core.header();
        let cancel_reason = Refusal::Compacted.to_string();
        let canceled = true;
        self.send(WatchResponse {
            header,
            watch_id: id,
            canceled,
            compact_revision,
            cancel_reason,
            ..WatchResponse::default()
        })
        .await
    }

    async fn deliver(
        &mut self,
        watch_id: i64,
        revision: i64,
        events: &[Arc<Event>],
        prev_kv: bool,
        fragment: bool,
    ) -> Step {
        let events: Vec<mvccpb::Event> = events.iter().map(|event| self.event(event, prev_kv)).collect();
        let header = self.core.header_at(revision);
        if fragment {
            return self.fragments(WatchResponse { header, watch_id, events, ..WatchResponse::default() }).await;
        }
        self.send(WatchResponse { header, watch_id, events, ..WatchResponse::default() }).await
    }

    fn event(&self, event: &Event, prev_kv: bool) -> mvccpb::Event {
        let kind = if event.mark.dead() { EventType::Delete } else { EventType::Put };
        let previous = if prev_kv { self.core.store().previous(event).ok().flatten() } else { None };
        mvccpb::Event { r#type: kind.into(), kv: Some(event.kv.clone()), prev_kv: previous }
    }

    /// Splits what is larger than a request may be.
    async fn fragments(&mut self, response: WatchResponse) -> Step {
        let mut events = response.events.into_iter().peekable();
        while events.peek().is_some() {
            let mut part = Vec::new();
            let mut bytes = 0;
            while let Some(event) =
                events.next_if(|e| part.is_empty() || bytes + e.encoded_len() < self.core.bounds.max_request)
            {
                bytes += event.encoded_len();
                part.push(event);
            }
            let fragment = events.peek().is_some();
            let (header, watch_id) = (response.header, response.watch_id);
            self.send(WatchResponse { header, watch_id, events: part, fragment, ..WatchResponse::default() }).await?;
        }
        Ok(())
    }

    async fn periodic_progress(&mut self) -> Step {
        self.next_progress = Instant::now() + self.core.bounds.progress_interval;
        let told = self.drain().await?;
        let quiet: Vec<i64> = self.watchers.iter().filter(|(_, w)| w.progress && w.joined).map(|(id, _)| *id).collect();
        for watch_id in quiet {
            let header = self.core.header_at(told);
            self.send(WatchResponse { header, watch_id, ..WatchResponse::default() }).await?;
        }
        Ok(())
    }

    /// Tells how far all watchers are, once none is behind.
    async fn answer_progress(&mut self) -> Step {
        if self.watchers.values().any(|watching| !watching.joined) {
            return Ok(());
        }
        let told = self.drain().await?;
        if self.watchers.values().any(|watching| !watching.joined) {
            return Ok(());
        }
        self.progress_asked = false;
        let header = self.core.header_at(told);
        self.send(WatchResponse { header, watch_id: NONE, ..WatchResponse::default() }).await
    }

    /// Passes on what waits; returns the revision up to which joined watchers have been told then.
    async fn drain(&mut self) -> Result<i64, Over> {
        let sent = self.hub.sent();
        while let Some(inbound) = self.hub.try_next() {
            self.inbound(inbound).await?;
        }
        Ok(sent)
    }
}

fn field(out: &mut BytesMut, number: u32, content: &[u8]) {
    encoding::encode_key(number, encoding::WireType::LengthDelimited, out);
    encoding::encode_varint(content.len() as u64, out);
    out.put_slice(content);
}

/// An event as a field of a `WatchResponse`, without what was before: the pair is as it is stored.
fn encode_event(out: &mut BytesMut, event: &Event) {
    let mut body = BytesMut::with_capacity(event.record.len() + 16);
    if event.mark.dead() {
        encoding::int32::encode(TYPE, &EventType::Delete.into(), &mut body);
    }
    field(&mut body, KV, &event.record);
    field(out, EVENTS, &body);
}

/// A watcher's number as a field; 0 is left out, as everywhere.
fn encoded_id(room: &mut [u8; 11], id: i64) -> &[u8] {
    if id == 0 {
        return &[];
    }
    let mut rest = room.as_mut_slice();
    encoding::int64::encode(WATCH_ID, &id, &mut rest);
    let left = rest.len();
    room.get(..room.len() - left).unwrap_or_default()
}

/// A code as Go prints it.
fn go_code(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::PermissionDenied => "PermissionDenied",
        tonic::Code::InvalidArgument => "InvalidArgument",
        tonic::Code::Unauthenticated => "Unauthenticated",
        _ => "Unknown",
    }
}
