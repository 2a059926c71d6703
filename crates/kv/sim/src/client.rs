//! Clients that read and write at random and record what they observe.

use crate::entropy::Rng;
use crate::history::{Answer, History, Request, numbered_key};
use crate::net::{HostId, Port};
use crate::plan::{Plan, Plant};
use crate::serve::{Line, Station};
use bytes::Bytes;
use parking_lot::Mutex;
use proto_etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::request_op::Request as Op;
use proto_etcd::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::Status;

/// Number of keys.
pub(crate) const KEYS: u64 = 5;
/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(2);

/// State shared by all clients.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub station: Station,
    pub history: History,
    pub plan: Plan,
    pub members: Arc<Mutex<Vec<HostId>>>,
    /// The last member that was asked to transfer leadership, and the end of the time in which its
    /// planted bug is active.
    pub former: Arc<Mutex<(HostId, u64)>>,
    /// The run is about to end: clients must not start requests.
    pub over: Arc<AtomicBool>,
}

impl Surroundings {
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Returns a connection to a random member.
    pub fn random_line(&self, rng: &mut Rng) -> Line {
        let member = rng.pick(&self.members.lock()).copied().unwrap_or(1);
        self.station.line(member, Port::Client)
    }

    /// Returns whether a planted bug makes this member serve linearizable reads from its own state.
    fn reads_from_lease(&self, line: &Line) -> bool {
        match self.plan.plant {
            Some(Plant::StaleRead) => true,
            Some(Plant::LeaseAfterTransfer) => {
                let (host, until) = *self.former.lock();
                host == line.to() && self.station.net.now() < until
            }
            _ => false,
        }
    }

    /// Records a request, sends it, and records its response.
    pub async fn carry_out(
        &self,
        request: Request,
        send: impl Future<Output = Result<Answer, Status>>,
    ) -> Option<Answer> {
        let net = &self.station.net;
        let number = self
            .history
            .record_start(request, net.next_event(), net.now());
        let answer = match tokio::time::timeout(PATIENCE, send).await {
            Ok(answer) => answer.map_err(|status| status.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        };
        net.record_event(number as u64 ^ u64::from(answer.is_ok()) << 32);
        self.history
            .record_end(number, net.next_event(), answer.clone());
        answer.ok()
    }
}

/// A client.
pub(crate) struct Client {
    pub id: u64,
    pub around: Surroundings,
    pub rng: Rng,
    /// Number of writes so far, which makes every value unique.
    pub written: u64,
    /// Last known mod revision of keys.
    pub known: BTreeMap<Bytes, i64>,
    /// Newest revision seen.
    pub newest: i64,
}

impl Client {
    pub fn new(id: u64, around: Surroundings, rng: Rng) -> Self {
        Client {
            id,
            around,
            rng,
            written: 0,
            known: BTreeMap::new(),
            newest: 1,
        }
    }

    pub async fn run(mut self) {
        while !self.around.is_over() {
            self.run_operation().await;
            tokio::time::sleep(Duration::from_millis(
                self.rng.below(self.around.plan.pause),
            ))
            .await;
        }
    }

    async fn run_operation(&mut self) {
        let request = match self.rng.below(20) {
            0..6 => Request::Put(self.random_put()),
            6..8 => Request::Delete(self.random_delete()),
            8..13 => Request::Range(self.random_range()),
            13..19 => Request::Txn(self.random_txn()),
            _ => Request::Compact(self.newest - i64::try_from(self.rng.below(10)).unwrap_or(0)),
        };
        let line = self.around.random_line(&mut self.rng);
        let around = self.around.clone();
        let from_lease = around.reads_from_lease(&line);
        let answer = around
            .carry_out(request.clone(), send_request(line, request, from_lease))
            .await;
        if let Some(answer) = answer {
            self.learn_revisions(&answer);
        }
    }

    fn learn_revisions(&mut self, answer: &Answer) {
        let header = match answer {
            Answer::Put(answer) => answer.header,
            Answer::Delete(answer) => answer.header,
            Answer::Range(answer) => {
                self.known.extend(
                    answer
                        .kvs
                        .iter()
                        .map(|kv| (kv.key.clone(), kv.mod_revision)),
                );
                answer.header
            }
            Answer::Txn(answer) => answer.header,
            Answer::Done(_) | Answer::Alive(_) => None,
        };
        self.newest = self.newest.max(header.map_or(0, |header| header.revision));
    }

    fn random_key(&mut self) -> Bytes {
        numbered_key(self.rng.below(KEYS))
    }

    fn random_put(&mut self) -> PutRequest {
        self.written += 1;
        let mut value = format!("c{}-{}", self.id, self.written).into_bytes();
        if self.rng.once_in(10) {
            // Large enough to span several sectors, so that it can be torn.
            value.resize(3_000, b'.');
        }
        PutRequest {
            key: self.random_key(),
            value: value.into(),
            prev_kv: self.rng.once_in(2),
            ..PutRequest::default()
        }
    }

    fn random_delete(&mut self) -> DeleteRangeRequest {
        let key = self.random_key();
        let range_end = if self.rng.once_in(3) {
            Bytes::from_static(b"k3")
        } else {
            Bytes::new()
        };
        DeleteRangeRequest {
            key,
            range_end,
            prev_kv: self.rng.once_in(2),
        }
    }

    fn random_range(&mut self) -> RangeRequest {
        let all = self.rng.once_in(2);
        let key = if all {
            Bytes::from_static(b"k")
        } else {
            self.random_key()
        };
        let range_end = if all {
            Bytes::from_static(b"l")
        } else {
            Bytes::new()
        };
        let past = i64::try_from(self.rng.below(5)).unwrap_or(0);
        let revision = if self.rng.once_in(5) {
            self.newest - past
        } else {
            0
        };
        RangeRequest {
            key,
            range_end,
            revision: revision.max(0),
            limit: i64::try_from(self.rng.below(3)).unwrap_or(0),
            serializable: self.rng.once_in(6),
            ..RangeRequest::default()
        }
    }

    fn random_txn(&mut self) -> TxnRequest {
        let first = self.rng.below(KEYS - 1);
        let compared = numbered_key(first);
        let revision = self.known.get(&compared).copied().unwrap_or(0);
        let compare = Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: compared.clone(),
            range_end: Bytes::new(),
            target_union: Some(TargetUnion::ModRevision(revision)),
        };
        let op = |request| RequestOp {
            request: Some(request),
        };
        let (mut one, mut two) = (self.random_put(), self.random_put());
        (one.key, two.key) = (
            compared,
            numbered_key(first + 1 + self.rng.below(KEYS - 1 - first)),
        );
        let read = RangeRequest {
            key: Bytes::from_static(b"k"),
            range_end: Bytes::from_static(b"l"),
            ..Default::default()
        };
        let read = op(Op::RequestRange(read));
        let mut success = vec![
            op(Op::RequestPut(one)),
            op(Op::RequestPut(two)),
            read.clone(),
        ];
        if self.rng.once_in(4) {
            success.truncate(1);
        }
        let compare = if self.rng.once_in(4) {
            Vec::new()
        } else {
            vec![compare]
        };
        let failure = vec![read];
        TxnRequest {
            compare,
            success,
            failure,
        }
    }
}

async fn send_request(line: Line, request: Request, from_lease: bool) -> Result<Answer, Status> {
    let mut client = KvClient::new(line);
    Ok(match request {
        Request::Put(request) => Answer::Put(client.put(request).await?.into_inner()),
        Request::Delete(request) => {
            Answer::Delete(client.delete_range(request).await?.into_inner())
        }
        Request::Range(mut request) => {
            request.serializable |= from_lease;
            Answer::Range(client.range(request).await?.into_inner())
        }
        Request::Txn(request) => Answer::Txn(client.txn(request).await?.into_inner()),
        Request::Compact(revision) => {
            let request = CompactionRequest {
                revision,
                physical: false,
            };
            Answer::Done(
                client
                    .compact(request)
                    .await?
                    .into_inner()
                    .header
                    .map_or(0, |header| header.revision),
            )
        }
        _ => return Err(Status::internal("not a request of this service")),
    })
}
