//! A client that watches, switches between members, and resumes at its last revision.

use crate::client::Surroundings;
use crate::entropy::Rng;
use crate::history::{Seen, WatchLog};
use crate::plan::Plant;
use bytes::Bytes;
use proto_etcd::etcdserverpb::watch_client::WatchClient;
use proto_etcd::etcdserverpb::watch_request::RequestUnion;
use proto_etcd::etcdserverpb::{
    WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// A watcher of all keys of the workload.
pub(crate) struct Watching {
    pub around: Surroundings,
    pub rng: Rng,
    pub log: WatchLog,
    /// Revision at which to continue.
    pub next: i64,
    /// Number of compactions seen so far, for the planted bug.
    pub compactions: usize,
}

/// The stream has ended.
struct Over;

impl Watching {
    pub async fn run(mut self) {
        loop {
            // A new stream replaces the ended one, independent of its result.
            let _ = self.follow_stream().await;
            tokio::time::sleep(Duration::from_millis(1 + self.rng.below(50))).await;
        }
    }

    async fn follow_stream(&mut self) -> Result<(), Over> {
        let line = self.around.random_line(&mut self.rng);
        let (requests, outgoing) = mpsc::channel(4);
        let create = WatchCreateRequest {
            key: Bytes::from_static(b"k"),
            range_end: Bytes::from_static(b"l"),
            start_revision: self.next,
            progress_notify: true,
            prev_kv: true,
            ..WatchCreateRequest::default()
        };
        let ask = |request| WatchRequest {
            request_union: Some(request),
        };
        let _ = requests
            .send(ask(RequestUnion::CreateRequest(create)))
            .await;
        let mut client = WatchClient::new(line);
        let opened = tokio::time::timeout(
            Duration::from_secs(1),
            client.watch(ReceiverStream::new(outgoing)),
        )
        .await;
        let mut stream = opened.map_err(|_| Over)?.map_err(|_| Over)?.into_inner();
        if self.next > 0 {
            self.log.push(Seen::From(self.next));
        }
        loop {
            // An idle stream may be broken, and clients switch at times.
            let patience = Duration::from_millis(500 + self.rng.below(3_000));
            let message = tokio::time::timeout(patience, stream.message())
                .await
                .map_err(|_| Over)?;
            let response = message.map_err(|_| Over)?.ok_or(Over)?;
            self.handle_response(response)?;
            if self.rng.once_in(10) {
                let _ =
                    requests.try_send(ask(RequestUnion::ProgressRequest(WatchProgressRequest {})));
            }
            if self.rng.once_in(60) {
                return Err(Over);
            }
        }
    }

    fn handle_response(&mut self, response: WatchResponse) -> Result<(), Over> {
        let revision = response.header.map_or(0, |header| header.revision);
        self.around
            .station
            .net
            .record_event(revision.cast_unsigned() << 8 ^ response.events.len() as u64);
        if response.canceled {
            if response.compact_revision > 0 {
                self.next = response.compact_revision;
                self.log.push(Seen::Compacted(response.compact_revision));
            }
            return Err(Over);
        }
        if response.created {
            if self.next == 0 {
                self.next = revision + 1;
                self.log.push(Seen::From(self.next));
            }
            return Ok(());
        }
        if response.events.is_empty() {
            self.next = self.next.max(revision + 1);
            self.log.push(Seen::Progress(revision));
            return Ok(());
        }
        let last = response
            .events
            .last()
            .and_then(|event| event.kv.as_ref())
            .map_or(0, |kv| kv.mod_revision);
        self.next = last + 1;
        for events in self.apply_planted_bug(response.events) {
            self.log.push(Seen::Events { revision, events });
        }
        Ok(())
    }

    /// Returns the events as received, unless a planted bug changes them.
    fn apply_planted_bug(
        &mut self,
        mut events: Vec<proto_etcd::mvccpb::Event>,
    ) -> Vec<Vec<proto_etcd::mvccpb::Event>> {
        let revision =
            |event: &proto_etcd::mvccpb::Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        match self.around.plan.plant {
            Some(Plant::DropAtCompaction) => {
                let compactions = self.around.history.compactions();
                if compactions > std::mem::replace(&mut self.compactions, compactions) {
                    events.remove(0);
                }
                vec![events]
            }
            Some(Plant::SplitTransaction) => {
                let at = events
                    .windows(2)
                    .position(|pair| revision(&pair[0]) == revision(&pair[1]));
                match at {
                    Some(at) => {
                        let rest = events.split_off(at + 1);
                        vec![events, rest]
                    }
                    None => vec![events],
                }
            }
            _ => vec![events],
        }
    }
}
