//! The state machine: applied state, requests that wait for results, and reads.

use crate::caller::Caller;
use crate::command::{Command, Envelope};
use crate::engine_writer::EngineWriter;
use crate::error::{EtcdError, MachineError};
use crate::members::Members;
use crate::persist;
use crate::replicated_state::{AppliedPosition, ReplicatedState, alarm_list};
use crate::rights::Rights;
use crate::tokens::Tokens;
use kv_auth::{Access, Auth};
use kv_engine::{Engine, EngineError};
use kv_lease::Leases;
use kv_mvcc::{Limits, Store};
use parking_lot::{Mutex, RwLock};
use proto_etcd::etcdserverpb as pb;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

/// Size in bytes that is reported for an empty state.
const BASE_BYTES: u64 = 20 << 10;

/// Settings of the state machine.
#[derive(Clone)]
pub struct Options {
    /// ID of this member.
    pub member: u64,
    /// Maximum number of comparisons, and of operations in a branch of a transaction.
    pub max_txn_ops: usize,
    /// Maximum number of learners.
    pub max_learners: usize,
    /// Size in bytes of the cache of latest values.
    pub value_cache: usize,
    /// True if a thread of its own writes to the engine. Otherwise the caller does, with
    /// `Machine::drain_queue`.
    pub own_thread: bool,
    /// Time after which an unused simple token expires.
    pub token_ttl: Duration,
    /// Called with the duration of each write to the engine.
    pub on_store: Arc<dyn Fn(Duration) + Send + Sync>,
    /// Duration above which applying a command counts as slow.
    pub slow_apply: Duration,
}

/// Successful result of a command.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Outcome {
    Put(pb::PutResponse),
    DeleteRange(pb::DeleteRangeResponse),
    Txn(pb::TxnResponse),
    LeaseGrant {
        id: i64,
        ttl: i64,
    },
    /// Index of the log entry, which is the second part of the token.
    LoggedIn(u64),
    Alarms(Vec<pb::AlarmMember>),
    Members(Vec<pb::Member>),
    Done,
}

/// The result of a command, and the store's revision after it.
#[derive(Debug)]
pub struct Reply {
    /// The result.
    pub result: Result<Outcome, EtcdError>,
    /// The store's revision after the command.
    pub revision: i64,
    /// Time at which applying started. The entry was committed before.
    pub begun: Instant,
    /// Time at which applying ended.
    pub applied: Instant,
}

/// The state machine of one member.
pub struct Machine {
    pub(crate) store: Arc<Store>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) replicated: RwLock<ReplicatedState>,
    pub(crate) leases: Mutex<Leases>,
    pub(crate) tokens: Mutex<Tokens>,
    pub(crate) place: Mutex<AppliedPosition>,
    pub(crate) engine_writer: EngineWriter,
    pub(crate) options: Options,
    pub(crate) applied: watch::Sender<u64>,
    pub(crate) members_changed: watch::Sender<u64>,
    pub(crate) rights_changed: watch::Sender<u64>,
    lease_changed: Notify,
    waiters: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    next_request: AtomicU64,
    /// Set if installing a snapshot was interrupted: the content must not be used.
    pub(crate) incomplete: bool,
    pub(crate) slow_applies: AtomicU64,
}

impl Machine {
    /// Opens the state stored in an engine.
    pub fn open(engine: Arc<dyn Engine>, options: Options) -> Result<Arc<Machine>, MachineError> {
        let incomplete = persist::is_install_interrupted(&*engine)?;
        // The engine holds a mixture of two states. An empty one is safe, because the snapshot is
        // installed again.
        if incomplete {
            tracing::warn!(
                "installing a snapshot was interrupted; the state starts empty and it is installed again"
            );
            persist::wipe_engine(&*engine)?;
        }
        let store = Arc::new(Store::open(engine.clone(), options.value_cache)?);
        let loaded = persist::load_state(&*engine, &store)?;
        let engine_writer = EngineWriter::start(
            engine.clone(),
            store.clone(),
            options.on_store.clone(),
            options.own_thread,
        );
        // Before the first command: compaction would otherwise write to the engine from the
        // applying task.
        store.defer_removals(engine_writer.removal_queue());
        Ok(Arc::new(Machine {
            store,
            engine,
            replicated: RwLock::new(loaded.replicated),
            leases: Mutex::new(loaded.leases),
            tokens: Mutex::new(Tokens::new(options.token_ttl)),
            place: Mutex::new(loaded.place),
            engine_writer,
            applied: watch::Sender::new(loaded.index),
            members_changed: watch::Sender::new(0),
            rights_changed: watch::Sender::new(0),
            lease_changed: Notify::new(),
            waiters: Mutex::default(),
            // A random start: results of requests of an earlier process must not match requests of
            // this one.
            next_request: AtomicU64::new(RandomState::new().hash_one(0)),
            options,
            incomplete,
            slow_applies: AtomicU64::new(0),
        }))
    }

    /// Returns whether an interrupted installation of a snapshot destroyed the content. The
    /// installation must be repeated before anything else.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Returns the multi-version store of keys.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the size of the data in bytes, which the quota limits. It shrinks when a compaction
    /// deletes records.
    pub fn data_size(&self) -> u64 {
        BASE_BYTES + self.store.records_size()
    }

    /// Returns the number of commands whose application was slow.
    pub fn slow_applies(&self) -> u64 {
        self.slow_applies.load(Ordering::Relaxed)
    }

    /// Returns the size of the engine's files in bytes.
    pub fn disk_size(&self) -> u64 {
        self.engine.disk_size()
    }

    /// Returns log position and membership of the last applied entry.
    pub fn applied_position(&self) -> AppliedPosition {
        self.place.lock().clone()
    }

    /// Returns the applied index; 0: none.
    pub fn applied_index(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Subscribes to the applied index.
    pub fn subscribe_applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Subscribes to membership changes.
    pub fn members_changed(&self) -> watch::Receiver<u64> {
        self.members_changed.subscribe()
    }

    /// Subscribes to changes of users, roles and the auth status.
    pub fn rights_changed(&self) -> watch::Receiver<u64> {
        self.rights_changed.subscribe()
    }

    /// Waits until everything applied so far is durable in the engine.
    pub async fn flush(&self) -> Result<(), EngineError> {
        self.engine_writer.flush().await
    }

    /// Defragments: waits until the space of everything removed so far is returned to the file
    /// system. Other requests do not wait for it.
    pub async fn release_space(&self) -> Result<(), EngineError> {
        // Writes that still wait in the queue would make their tables grow again right after.
        self.engine_writer.flush().await?;
        let engine = self.engine.clone();
        // The task is cancelled only when the process exits.
        tokio::task::spawn_blocking(move || engine.release_space())
            .await
            .unwrap_or(Ok(()))
    }

    /// Writes one batch of pending changes to the engine, in a simulation. Returns whether there
    /// were any.
    pub fn drain_queue(&self) -> bool {
        self.engine_writer.drain_queue()
    }

    /// Returns the limits of transactions.
    pub fn limits(&self) -> Limits {
        Limits {
            max_txn_ops: self.options.max_txn_ops,
        }
    }

    /// Registers a request. Returns its number and the receiver of its result.
    pub fn register_request(&self) -> (u64, oneshot::Receiver<Reply>) {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiters.lock().insert(request, sender);
        (request, receiver)
    }

    /// Removes a request whose result is no longer awaited or can't arrive.
    pub fn cancel_request(&self, request: u64) {
        self.waiters.lock().remove(&request);
    }

    pub(crate) fn send_reply(&self, envelope: &Envelope, reply: Reply) {
        // Every member applies the command, and only one has the client.
        if envelope.origin == self.options.member
            && let Some(waiter) = self.waiters.lock().remove(&envelope.request)
        {
            // The request may have been cancelled.
            let _ = waiter.send(reply);
        }
    }

    /// Checks whether a caller may send a command, by the current permissions. They are checked
    /// again when it is applied.
    pub fn check_command(&self, caller: &Caller, command: &Command) -> Result<(), EtcdError> {
        self.with_rights(caller, |rights| rights.check_command(command))
    }

    /// Checks whether a caller may read a range.
    pub fn check_range(
        &self,
        caller: &Caller,
        request: &pb::RangeRequest,
    ) -> Result<(), EtcdError> {
        self.with_rights(caller, |rights| rights.check_range(request))
    }

    /// Checks whether a caller may execute a transaction.
    pub fn check_txn(&self, caller: &Caller, request: &pb::TxnRequest) -> Result<(), EtcdError> {
        self.with_rights(caller, |rights| rights.check_txn(request))
    }

    /// Checks whether a caller may read or write all keys of a lease.
    pub fn check_lease(
        &self,
        caller: &Caller,
        lease: i64,
        access: Access,
    ) -> Result<(), EtcdError> {
        self.with_rights(caller, |rights| rights.check_lease_keys(lease, access))
    }

    /// Checks whether a caller may list leases.
    pub fn check_leases(&self, caller: &Caller) -> Result<(), EtcdError> {
        self.with_rights(caller, |rights| rights.check_lease_list())
    }

    /// Checks whether a caller has the root role.
    pub fn check_admin(&self, caller: &Caller) -> Result<(), EtcdError> {
        let user = (!caller.user.is_empty()).then_some(caller.user.as_str());
        Ok(self.replicated.read().auth.check_admin(user)?)
    }

    /// Returns an error if auth is enabled and the caller is not a known user.
    pub fn check_known(&self, caller: &Caller) -> Result<(), EtcdError> {
        self.with_rights(caller, |rights| rights.check_known())
    }

    fn with_rights<T>(&self, caller: &Caller, decide: impl FnOnce(&Rights<'_>) -> T) -> T {
        let replicated = self.replicated.read();
        if !replicated.auth.enabled {
            // Without auth the leases are not needed, so their lock is not taken.
            // Every request passes here, and the lock of the leases is held while an entry is
            // applied.
            let nothing = Leases::default();
            return decide(&Rights {
                auth: &replicated.auth,
                leases: &nothing,
                caller,
            });
        }
        let leases = self.leases.lock();
        decide(&Rights {
            auth: &replicated.auth,
            leases: &leases,
            caller,
        })
    }

    /// Reads users, roles and the auth status.
    pub fn with_auth<T>(&self, look: impl FnOnce(&Auth) -> T) -> T {
        look(&self.replicated.read().auth)
    }

    /// Returns the user of a simple token, given as digest and index, as far as this member has
    /// applied the log.
    pub fn token_user(&self, token: &str) -> Option<String> {
        self.tokens.lock().find_user(token, Instant::now())
    }

    /// Reads the members.
    pub fn with_members<T>(&self, look: impl FnOnce(&Members) -> T) -> T {
        look(&self.replicated.read().members)
    }

    /// Returns the raised alarms.
    pub fn list_alarms(&self) -> Vec<pb::AlarmMember> {
        alarm_list(&self.replicated.read())
    }

    /// Locks the leases for `work`. Wakes the expiry task only if the earliest deadline moved
    /// forward. A later deadline is noticed when the old one expires, so renewals cause no
    /// wake-ups.
    pub fn with_leases<T>(&self, work: impl FnOnce(&mut Leases) -> T) -> T {
        let mut leases = self.leases.lock();
        // Compared before and after, because `work` may grant, renew or revoke.
        let before = leases.next_deadline();
        let result = work(&mut leases);
        let next = leases.next_deadline();
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.lease_changed.notify_one();
        }
        result
    }

    pub(crate) fn notify_lease_change(&self) {
        self.lease_changed.notify_one();
    }

    /// Waits until the earliest lease deadline may have moved forward.
    pub async fn lease_changed(&self) {
        self.lease_changed.notified().await;
    }
}
