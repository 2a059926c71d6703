//! The machine: what is applied, who waits for it, and what can be asked of it.

use crate::command::{Command, Envelope};
use crate::members::Members;
use crate::persist;
use crate::refusal::Refusal;
use crate::rights::Rights;
use crate::storer::Storer;
use crate::tokens::Tokens;
use bytes::Bytes;
use kv_auth::{Access, Auth};
use kv_engine::{Engine, EngineError};
use kv_lease::Leases;
use kv_mvcc::{Limits, MvccError, Store};
use parking_lot::{Mutex, RwLock};
use proto_etcd::etcdserverpb as pb;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

/// What a state takes without any key.
const BASE_BYTES: u64 = 20 << 10;

/// How a machine is set up.
#[derive(Clone)]
pub struct Options {
    /// This member.
    pub member: u64,
    /// Comparisons, or operations of a branch.
    pub max_txn_ops: usize,
    /// Learners there may be.
    pub max_learners: usize,
    /// Bytes of newest values kept in memory.
    pub value_cache: usize,
    /// Whether a thread carries what was applied to the engine; if not, `Machine::work_off` does.
    pub own_thread: bool,
    /// How long a simple token lives that nobody uses.
    pub token_ttl: Duration,
    /// Told how long each write to the engine took.
    pub on_store: Arc<dyn Fn(Duration) + Send + Sync>,
    /// Applying a command that takes longer is counted.
    pub slow_apply: Duration,
}

/// On whose behalf something is asked.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// User; empty: nobody.
    pub user: String,
    /// Rights as of which the user was authenticated; 0: the present ones.
    pub auth_revision: u64,
    /// The store itself.
    pub internal: bool,
}

impl Caller {
    /// The store itself.
    pub fn internal() -> Self {
        Caller { internal: true, ..Caller::default() }
    }
}

/// What came of a command.
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
    /// Index of the entry, the second part of the token.
    LoggedIn(u64),
    Alarms(Vec<pb::AlarmMember>),
    Members(Vec<pb::Member>),
    Done,
}

/// The answer to a command, with the store's revision after it.
#[derive(Debug)]
pub struct Reply {
    /// What came of it.
    pub result: Result<Outcome, Refusal>,
    /// The store's revision then.
    pub revision: i64,
    /// When its turn to be applied came; it was committed before.
    pub begun: Instant,
    /// When it was applied.
    pub applied: Instant,
}

/// Why a machine can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The keys can't be read.
    #[error(transparent)]
    Store(#[from] MvccError),
    /// Something else is damaged.
    #[error("the stored {0} are damaged; restore this member from a snapshot (kvstore snapshot restore)")]
    Damaged(&'static str),
}

impl MachineError {
    /// Whether what is stored makes no sense, rather than not being within reach.
    pub fn is_damage(&self) -> bool {
        !matches!(
            self,
            MachineError::Engine(EngineError::Open { .. })
                | MachineError::Store(MvccError::Engine(EngineError::Open { .. }))
        )
    }
}

/// What commands change besides keys and leases.
#[derive(Debug, Default)]
pub(crate) struct Replicated {
    pub auth: Auth,
    pub members: Members,
    pub alarms: BTreeSet<(u64, i32)>,
}

/// Where in the log the engine is; the bytes are the log's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Last applied entry; empty: none.
    pub position: Bytes,
    /// Membership as of then; empty: none.
    pub membership: Bytes,
}

/// A member's state.
pub struct Machine {
    pub(crate) store: Arc<Store>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) replicated: RwLock<Replicated>,
    pub(crate) leases: Mutex<Leases>,
    pub(crate) tokens: Mutex<Tokens>,
    pub(crate) place: Mutex<Place>,
    pub(crate) storer: Storer,
    pub(crate) options: Options,
    pub(crate) applied: watch::Sender<u64>,
    pub(crate) members_changed: watch::Sender<u64>,
    pub(crate) rights_changed: watch::Sender<u64>,
    lease_changed: Notify,
    waiters: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    next_request: AtomicU64,
    /// An installation was interrupted: the content is not to be used.
    pub(crate) incomplete: bool,
    pub(crate) slow_applies: AtomicU64,
}

impl Machine {
    /// Opens what an engine has.
    pub fn open(engine: Arc<dyn Engine>, options: Options) -> Result<Arc<Machine>, MachineError> {
        let incomplete = persist::interrupted(&*engine)?;
        if incomplete {
            tracing::warn!("installing a snapshot was interrupted; the state starts empty and it is installed again");
            persist::wipe(&*engine)?;
        }
        let store = Arc::new(Store::open(engine.clone(), options.value_cache)?);
        let loaded = persist::load(&*engine, &store)?;
        let storer = Storer::start(engine.clone(), store.clone(), options.on_store.clone(), options.own_thread);
        store.defer_removals(storer.removals());
        Ok(Arc::new(Machine {
            store,
            engine,
            replicated: RwLock::new(loaded.replicated),
            leases: Mutex::new(loaded.leases),
            tokens: Mutex::new(Tokens::new(options.token_ttl)),
            place: Mutex::new(loaded.place),
            storer,
            applied: watch::Sender::new(loaded.index),
            members_changed: watch::Sender::new(0),
            rights_changed: watch::Sender::new(0),
            lease_changed: Notify::new(),
            waiters: Mutex::default(),
            // Answers to what an earlier process of this member asked must not be taken for answers to this one.
            next_request: AtomicU64::new(RandomState::new().hash_one(0)),
            options,
            incomplete,
            slow_applies: AtomicU64::new(0),
        }))
    }

    /// Whether the content was lost in an interrupted installation, which is to be repeated before anything else.
    pub fn incomplete(&self) -> bool {
        self.incomplete
    }

    /// Keys and their history.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Bytes that data take. The quota is for this: it goes down as compacted history is given back.
    pub fn size(&self) -> u64 {
        BASE_BYTES + self.store.bytes()
    }

    /// Commands that took long to be applied.
    pub fn slow_applies(&self) -> u64 {
        self.slow_applies.load(Ordering::Relaxed)
    }

    /// Bytes that the engine's files take.
    pub fn disk(&self) -> u64 {
        self.engine.size()
    }

    /// The last applied entry and the membership.
    pub fn place(&self) -> Place {
        self.place.lock().clone()
    }

    /// Index of the last applied entry; 0: none.
    pub fn applied_index(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Follows the index of the last applied entry.
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Says when the members changed.
    pub fn members_changed(&self) -> watch::Receiver<u64> {
        self.members_changed.subscribe()
    }

    /// Follows changes of users, roles and the switch.
    pub fn rights_changed(&self) -> watch::Receiver<u64> {
        self.rights_changed.subscribe()
    }

    /// Returns when everything applied until now is durable in the engine.
    pub async fn flush(&self) -> Result<(), EngineError> {
        self.storer.flush().await
    }

    /// Returns when the space of what was removed until now is the file system's again. Nobody else waits for it.
    pub async fn give_back(&self) -> Result<(), EngineError> {
        self.storer.flush().await?;
        let engine = self.engine.clone();
        // Cancelled only when the process ends.
        tokio::task::spawn_blocking(move || engine.give_back()).await.unwrap_or(Ok(()))
    }

    /// Carries to the engine what waits for it, in a simulation. Whether there was anything.
    pub fn work_off(&self) -> bool {
        self.storer.work_off()
    }

    /// Bounds on transactions.
    pub fn limits(&self) -> Limits {
        Limits { max_txn_ops: self.options.max_txn_ops }
    }

    /// A number for a request, and where its answer will come.
    pub fn wait(&self) -> (u64, oneshot::Receiver<Reply>) {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiters.lock().insert(request, sender);
        (request, receiver)
    }

    /// The request's answer is not waited for any more, or will not come.
    pub fn give_up(&self, request: u64) {
        self.waiters.lock().remove(&request);
    }

    pub(crate) fn answer(&self, envelope: &Envelope, reply: Reply) {
        if envelope.origin == self.options.member
            && let Some(waiter) = self.waiters.lock().remove(&envelope.request)
        {
            // Whoever waited may have gone.
            let _ = waiter.send(reply);
        }
    }

    /// Whether a caller may send a command, as far as can be seen now.
    pub fn check_command(&self, caller: &Caller, command: &Command) -> Result<(), Refusal> {
        self.rights(caller, |rights| rights.command(command))
    }

    /// Whether a caller may read.
    pub fn check_range(&self, caller: &Caller, request: &pb::RangeRequest) -> Result<(), Refusal> {
        self.rights(caller, |rights| rights.range(request))
    }

    /// Whether a caller may carry out a transaction.
    pub fn check_txn(&self, caller: &Caller, request: &pb::TxnRequest) -> Result<(), Refusal> {
        self.rights(caller, |rights| rights.txn(request))
    }

    /// Whether a caller may see or change the keys of a lease.
    pub fn check_lease(&self, caller: &Caller, lease: i64, access: Access) -> Result<(), Refusal> {
        self.rights(caller, |rights| rights.lease_keys(lease, access))
    }

    /// Whether a caller may see which leases there are.
    pub fn check_leases(&self, caller: &Caller) -> Result<(), Refusal> {
        self.rights(caller, |rights| rights.lease_list())
    }

    /// Whether a caller may manage the store.
    pub fn check_admin(&self, caller: &Caller) -> Result<(), Refusal> {
        let user = (!caller.user.is_empty()).then_some(caller.user.as_str());
        Ok(self.replicated.read().auth.check_admin(user)?)
    }

    /// Whether a caller is anybody, where that is asked.
    pub fn check_known(&self, caller: &Caller) -> Result<(), Refusal> {
        self.rights(caller, |rights| rights.known())
    }

    fn rights<T>(&self, caller: &Caller, decide: impl FnOnce(&Rights<'_>) -> T) -> T {
        let replicated = self.replicated.read();
        if !replicated.auth.enabled {
            // Nothing to look up: leave the leases alone.
            let nothing = Leases::default();
            return decide(&Rights { auth: &replicated.auth, leases: &nothing, caller });
        }
        let leases = self.leases.lock();
        decide(&Rights { auth: &replicated.auth, leases: &leases, caller })
    }

    /// Users, roles and the switch.
    pub fn auth<T>(&self, look: impl FnOnce(&Auth) -> T) -> T {
        look(&self.replicated.read().auth)
    }

    /// Whose simple token it is, given as its digest and index, as far as what is applied here says.
    pub fn token_user(&self, token: &str) -> Option<String> {
        self.tokens.lock().user(token, Instant::now())
    }

    /// The members.
    pub fn members<T>(&self, look: impl FnOnce(&Members) -> T) -> T {
        look(&self.replicated.read().members)
    }

    /// Raised alarms: member and type.
    pub fn alarms(&self) -> Vec<pb::AlarmMember> {
        alarm_list(&self.replicated.read())
    }

    /// Works with the leases, and wakes whoever waits for a deadline, if one came that is sooner. One that became later is
    /// found out at its time: renewals would wake him all the time.
    pub fn leases<T>(&self, work: impl FnOnce(&mut Leases) -> T) -> T {
        let mut leases = self.leases.lock();
        let before = leases.next_deadline();
        let result = work(&mut leases);
        let next = leases.next_deadline();
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.lease_changed.notify_one();
        }
        result
    }

    pub(crate) fn wake_lease_clock(&self) {
        self.lease_changed.notify_one();
    }

    /// Returns when the next lease's deadline may be sooner than before.
    pub async fn lease_changed(&self) {
        self.lease_changed.notified().await;
    }
}

pub(crate) fn alarm_list(replicated: &Replicated) -> Vec<pb::AlarmMember> {
    replicated
        .alarms
        .iter()
        .map(|(member_id, alarm)| pb::AlarmMember { member_id: *member_id, alarm: *alarm })
        .collect()
}
