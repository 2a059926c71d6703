//! State and faults that the server and the test share.

use crate::state::State;
use parking_lot::Mutex;
use proto_etcd::etcdserverpb as pb;
use std::collections::VecDeque;
use tokio::sync::watch;
use tonic::Status;

/// Number of transactions to come first, and the writes.
pub(crate) type Hook = (usize, Box<dyn FnMut(&mut Writes<'_>) + Send>);

/// State and faults that the server and the test share.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// The revision; a change wakes watches.
    pub(crate) revision: watch::Sender<i64>,
    /// Increased to end all watch streams.
    pub(crate) epoch: watch::Sender<u64>,
    /// True while requests to the key space get no response.
    pub(crate) stalled: watch::Sender<bool>,
    pub(crate) stalled_watches: watch::Sender<bool>,
    pub(crate) version: Mutex<String>,
    pub(crate) failures: Mutex<VecDeque<Status>>,
    pub(crate) before_txn: Mutex<Option<Hook>>,
    pub(crate) requests: Mutex<Vec<&'static str>>,
}

impl Shared {
    /// Changes the state and wakes watches.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.revision.send_replace(state.revision);
        result
    }
}

/// The keys immediately before a transaction.
pub struct Writes<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) key: &'a str,
}

impl Writes<'_> {
    /// Returns the key that the transaction compares.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key
    }

    /// Writes a key.
    pub fn put(&mut self, key: &str, value: &[u8]) {
        self.state.put(key.as_bytes(), value, 0);
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: &str) {
        self.state.delete(key.as_bytes());
    }
}

/// Calls the hook of the test, if there is one.
pub(crate) fn run_hook(hook: &Mutex<Option<Hook>>, state: &mut State, request: &pb::TxnRequest) {
    let mut hook = hook.lock();
    let Some((count, write)) = hook.as_mut().filter(|(count, _)| *count > 0) else {
        return;
    };
    *count -= 1;
    let compared = request.compare.first().map(|compare| &*compare.key);
    let key = std::str::from_utf8(compared.unwrap_or_default()).unwrap_or_default();
    write(&mut Writes { state, key });
}
