//! The server, and the handle by which a test reads, writes and injects faults.

use crate::services::Services;
use crate::shared::{Shared, Writes};
use crate::state::State;
use parking_lot::Mutex;
use proto_etcd::etcdserverpb as pb;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;

/// A running etcd in memory; it stops when it is dropped.
pub struct FakeEtcd {
    shared: Arc<Shared>,
    url: String,
    serving: JoinHandle<()>,
}

impl FakeEtcd {
    /// Starts a server on a free port of the loopback address.
    ///
    /// # Panics
    /// If no port can be bound.
    #[allow(clippy::expect_used, clippy::disallowed_methods)]
    pub async fn start() -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new()),
            revision: watch::Sender::new(1),
            epoch: watch::Sender::new(0),
            stalled: watch::Sender::new(false),
            stalled_watches: watch::Sender::new(false),
            version: Mutex::new("3.6.0".to_owned()),
            failures: Mutex::default(),
            before_txn: Mutex::default(),
            requests: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let services = Services(shared.clone());
        let router = tonic::transport::Server::builder()
            .add_service(pb::kv_server::KvServer::new(services.clone()))
            .add_service(pb::lease_server::LeaseServer::new(services.clone()))
            .add_service(pb::maintenance_server::MaintenanceServer::new(
                services.clone(),
            ))
            .add_service(pb::watch_server::WatchServer::new(services));
        let serving = tokio::spawn(async move {
            let _ = router
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await;
        });
        FakeEtcd {
            shared,
            url: format!("http://{address}"),
            serving,
        }
    }

    /// Returns the client URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the current revision.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.shared.state.lock().revision
    }

    /// Writes a key; returns the revision.
    pub fn put(&self, key: &str, value: &[u8]) -> i64 {
        self.shared.change(|state| {
            state.put(key.as_bytes(), value, 0);
            state.revision
        })
    }

    /// Deletes a key; returns the revision.
    pub fn delete(&self, key: &str) -> i64 {
        self.shared.change(|state| {
            state.delete(key.as_bytes());
            state.revision
        })
    }

    /// Returns value and lease of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<(Vec<u8>, i64)> {
        let state = self.shared.state.lock();
        let kv = state.get(key.as_bytes(), state.revision)?;
        Some((kv.value.to_vec(), kv.lease))
    }

    /// Returns the TTLs of the granted leases, in seconds.
    #[must_use]
    pub fn lease_ttls(&self) -> Vec<i64> {
        let state = self.shared.state.lock();
        state.leases.iter().map(|lease| lease.ttl).collect()
    }

    /// Removes history before `revision`.
    pub fn compact(&self, revision: i64) {
        self.shared.change(|state| state.compacted = revision);
    }

    /// Returns the revision before which history was removed.
    #[must_use]
    pub fn compacted_revision(&self) -> i64 {
        self.shared.state.lock().compacted
    }

    /// Rejects the next request to the key space with `status`. Several calls queue up.
    pub fn fail_next(&self, status: Status) {
        self.shared.failures.lock().push_back(status);
    }

    /// Lets requests to the key space wait until `stalled` is false again.
    pub fn stall(&self, stalled: bool) {
        self.shared.stalled.send_replace(stalled);
    }

    /// Lets responses of watches wait until `stalled` is false again.
    pub fn stall_watches(&self, stalled: bool) {
        self.shared.stalled_watches.send_replace(stalled);
    }

    /// Sets the version that the server reports.
    pub fn set_version(&self, version: &str) {
        version.clone_into(&mut self.shared.version.lock());
    }

    /// Ends all watch streams, as a lost connection does.
    pub fn drop_watches(&self) {
        self.shared.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// Runs `hook` immediately before each of the next `count` transactions: the write of another
    /// client that comes first.
    pub fn before_txns(&self, count: usize, hook: impl FnMut(&mut Writes<'_>) + Send + 'static) {
        *self.shared.before_txn.lock() = Some((count, Box::new(hook)));
    }

    /// Returns how often an RPC was called: `range`, `txn`, `compact`, `lease_grant` or `watch`.
    #[must_use]
    pub fn count_requests(&self, name: &str) -> usize {
        let requests = self.shared.requests.lock();
        requests.iter().filter(|request| **request == name).count()
    }
}

impl Drop for FakeEtcd {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
