//! The gRPC services.

use crate::shared::{Shared, run_hook};
use proto_etcd::MessageStream;
use proto_etcd::etcdserverpb as pb;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Services(pub(crate) Arc<Shared>);

impl Services {
    /// Counts a request and injects the faults of the test.
    async fn admit(&self, name: &'static str) -> Result<(), Status> {
        self.0.requests.lock().push(name);
        let mut stalled = self.0.stalled.subscribe();
        let _ = stalled.wait_for(|stalled| !stalled).await;
        match self.0.failures.lock().pop_front() {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }
}

fn compacted_error() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision has been compacted")
}

#[tonic::async_trait]
impl pb::kv_server::Kv for Services {
    async fn range(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<pb::RangeResponse>, Status> {
        self.admit("range").await?;
        let request = request.into_inner();
        let state = self.0.state.lock();
        if request.revision > 0 && request.revision < state.compacted {
            return Err(compacted_error());
        }
        if request.revision > state.revision {
            let text = "etcdserver: mvcc: required revision is a future revision";
            return Err(Status::out_of_range(text));
        }
        Ok(Response::new(state.range(&request)))
    }

    async fn put(
        &self,
        request: Request<pb::PutRequest>,
    ) -> Result<Response<pb::PutResponse>, Status> {
        self.admit("put").await?;
        let put = request.into_inner();
        self.0
            .change(|state| state.put(&put.key, &put.value, put.lease));
        Ok(Response::new(pb::PutResponse::default()))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        self.admit("delete_range").await?;
        self.0
            .change(|state| state.delete(&request.into_inner().key));
        Ok(Response::new(pb::DeleteRangeResponse::default()))
    }

    async fn txn(
        &self,
        request: Request<pb::TxnRequest>,
    ) -> Result<Response<pb::TxnResponse>, Status> {
        self.admit("txn").await?;
        let request = request.into_inner();
        let response = self.0.change(|state| {
            run_hook(&self.0.before_txn, state, &request);
            state.transact(&request)
        });
        Ok(Response::new(response))
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        self.admit("compact").await?;
        let revision = request.into_inner().revision;
        if revision <= self.0.state.lock().compacted {
            return Err(compacted_error());
        }
        self.0.change(|state| state.compacted = revision);
        Ok(Response::new(pb::CompactionResponse::default()))
    }
}

#[tonic::async_trait]
impl pb::watch_server::Watch for Services {
    type WatchStream = ReceiverStream<Result<pb::WatchResponse, Status>>;

    #[allow(clippy::disallowed_methods)]
    async fn watch(
        &self,
        request: Request<MessageStream<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.0.requests.lock().push("watch");
        let (sender, receiver) = mpsc::channel(64);
        let shared = self.0.clone();
        tokio::spawn(serve_watch(shared, request.into_inner(), sender));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Serves one stream with one watch, until the client or the test ends it.
async fn serve_watch(
    shared: Arc<Shared>,
    mut requests: MessageStream<pb::WatchRequest>,
    sender: mpsc::Sender<Result<pb::WatchResponse, Status>>,
) {
    use pb::watch_request::RequestUnion;
    let (mut epoch, mut revision) = (shared.epoch.subscribe(), shared.revision.subscribe());
    epoch.mark_unchanged();
    let mut watched: Option<(pb::WatchCreateRequest, i64)> = None;
    loop {
        // A dropped stream delivers nothing more, also no change that is already there.
        let responses = tokio::select! {
            biased;
            _ = epoch.changed() => return,
            request = requests.message() => match request {
                Ok(Some(request)) => match request.request_union {
                    Some(RequestUnion::CreateRequest(create)) => {
                        let after = create.start_revision - 1;
                        let responses = begin_watch(&shared, &create);
                        watched = Some((create, after));
                        revision.mark_changed();
                        responses
                    }
                    Some(RequestUnion::ProgressRequest(_)) => {
                        shared.requests.lock().push("progress");
                        let header = shared.state.lock().header();
                        vec![pb::WatchResponse { header, watch_id: -1, ..Default::default() }]
                    }
                    _ => Vec::new(),
                },
                _ => return,
            },
            _ = revision.changed() => match &mut watched {
                Some((create, after)) => next_events(&shared, create, after),
                None => Vec::new(),
            },
        };
        let mut stalled = shared.stalled_watches.subscribe();
        let _ = stalled.wait_for(|stalled| !stalled).await;
        for response in responses {
            let ends = response.canceled;
            if sender.send(Ok(response)).await.is_err() || ends {
                return;
            }
        }
    }
}

fn begin_watch(shared: &Shared, create: &pb::WatchCreateRequest) -> Vec<pb::WatchResponse> {
    let state = shared.state.lock();
    let created = pb::WatchResponse {
        header: state.header(),
        created: true,
        ..Default::default()
    };
    if create.start_revision == 0 || create.start_revision >= state.compacted {
        return vec![created];
    }
    let canceled = pb::WatchResponse {
        header: state.header(),
        canceled: true,
        compact_revision: state.compacted,
        ..Default::default()
    };
    vec![created, canceled]
}

fn next_events(
    shared: &Shared,
    create: &pb::WatchCreateRequest,
    after: &mut i64,
) -> Vec<pb::WatchResponse> {
    let state = shared.state.lock();
    let events = state.events_after(*after, &create.key, &create.range_end);
    *after = (*after).max(state.revision);
    if events.is_empty() {
        return Vec::new();
    }
    vec![pb::WatchResponse {
        header: state.header(),
        events,
        ..Default::default()
    }]
}

#[tonic::async_trait]
impl pb::lease_server::Lease for Services {
    type LeaseKeepAliveStream = ReceiverStream<Result<pb::LeaseKeepAliveResponse, Status>>;

    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        self.admit("lease_grant").await?;
        let request = request.into_inner();
        let ttl = request.ttl;
        let mut state = self.0.state.lock();
        state.leases.push(request);
        let id = i64::try_from(state.leases.len()).unwrap_or(i64::MAX);
        Ok(Response::new(pb::LeaseGrantResponse {
            header: state.header(),
            id,
            ttl,
            ..Default::default()
        }))
    }

    async fn lease_revoke(
        &self,
        _: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        Err(Status::unimplemented("leases are not revoked"))
    }

    async fn lease_keep_alive(
        &self,
        _: Request<MessageStream<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        Err(Status::unimplemented("leases are not renewed"))
    }

    async fn lease_time_to_live(
        &self,
        _: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        Err(Status::unimplemented("leases do not expire"))
    }

    async fn lease_leases(
        &self,
        _: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        Err(Status::unimplemented("leases are not listed"))
    }
}
