//! A controller: its event handlers, its reconciler, and its workers.
//!
//! Keys come from informer events through a rate-limited queue. One worker at a time reconciles a
//! key, and only once the caches show the writes of its last reconcile: a reconciler never sees a
//! cache without its own writes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base_task::Tasks;
use client::events::Recorder;
use client::{Client, Error, WorkQueue};
use futures::FutureExt;
use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::action::Action;
use crate::credentials::Accounts;
use crate::executor::{Done, Executor, Pending};
use crate::informers::{InformerId, Informers, Ready, View};
use crate::metrics::ReconcileMetrics;

/// Keys to reconcile.
pub type Queue = WorkQueue<String>;

/// A pure reconciler over the caches: no IO, and no clock but the argument.
pub trait Decide: Send + Sync + 'static {
    /// Returns the actions that the object of `key` needs.
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action>;

    /// Returns the actions after a failed reconcile, for instance a condition.
    fn on_failure(&self, _key: &str, _error: &str, _now: Timestamp) -> Vec<Action> {
        Vec::new()
    }
}

/// A reconciler that reads from the API server.
#[async_trait]
pub trait Drive: Send + Sync + 'static {
    /// Reconciles the object of `key`; returns actions for the remaining writes.
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error>;
}

/// A reconciler of either kind.
#[derive(Clone)]
enum Logic {
    Decide(Arc<dyn Decide>),
    Drive(Arc<dyn Drive>),
}

struct Registered {
    name: &'static str,
    workers: usize,
    queue: Queue,
    logic: Logic,
    executor: Executor,
    needs: HashSet<InformerId>,
}

/// Everything that controllers need for their set-up.
pub struct Setup {
    /// The shared informers.
    pub informers: Informers,
    /// The process's own client, for reads.
    pub client: Client,
    /// Background tasks of this term.
    pub tasks: Tasks,
    accounts: Accounts,
    passes: ReconcileMetrics,
    registered: Vec<Registered>,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("controllers", &self.registered.len())
            .finish_non_exhaustive()
    }
}

impl Setup {
    /// Creates an empty set-up. `separate` gives each controller its own service account.
    pub fn new(client: Client, tasks: Tasks, separate: bool, passes: ReconcileMetrics) -> Self {
        Self {
            informers: Informers::new(client.clone()),
            accounts: Accounts::new(client.clone(), separate),
            client,
            tasks,
            passes,
            registered: Vec::new(),
        }
    }

    /// Registers a pure reconciler that writes as the service account `name`.
    pub fn add_reconciler(
        &mut self,
        name: &'static str,
        workers: usize,
        queue: Queue,
        logic: impl Decide,
    ) {
        self.register_controller(name, workers, queue, Logic::Decide(Arc::new(logic)));
    }

    /// Registers a reconciler that reads and writes with the process's own identity: the service
    /// accounts of other controllers depend on it, so it can't have its own.
    pub fn add_driver_as_process(
        &mut self,
        name: &'static str,
        workers: usize,
        queue: Queue,
        logic: impl Drive,
    ) {
        let root = Accounts::new(self.client.clone(), false);
        let recorder = Recorder::new(self.client.clone(), name, "");
        let executor = Executor::new(Arc::new(root.for_controller(name)), recorder);
        let logic = Logic::Drive(Arc::new(logic));
        // The kinds that this controller declared during its set-up: it starts when these are
        // listed.
        let needs = self.informers.take_touched();
        self.registered.push(Registered {
            name,
            workers,
            queue,
            logic,
            executor,
            needs,
        });
    }

    /// Registers a reconciler that reads from the API server.
    pub fn add_driver(
        &mut self,
        name: &'static str,
        workers: usize,
        queue: Queue,
        logic: impl Drive,
    ) {
        self.register_controller(name, workers, queue, Logic::Drive(Arc::new(logic)));
    }

    /// Returns an executor with a controller's identity, for tasks without a queue.
    pub fn executor_for(&self, name: &'static str) -> Executor {
        let recorder = Recorder::new(self.client.clone(), name, "");
        Executor::new(Arc::new(self.accounts.for_controller(name)), recorder)
    }

    fn register_controller(
        &mut self,
        name: &'static str,
        workers: usize,
        queue: Queue,
        logic: Logic,
    ) {
        let executor = self.executor_for(name);
        let needs = self.informers.take_touched();
        self.registered.push(Registered {
            name,
            workers,
            queue,
            logic,
            executor,
            needs,
        });
    }

    /// Runs everything until `stop`, which also aborts running reconciles: after a lost Lease
    /// another process writes. A controller starts when the kinds it reads are listed, whatever the
    /// state of other kinds.
    pub async fn run(mut self, stop: CancellationToken) {
        let ready = self.informers.start(&self.tasks, &stop);
        tracing::info!(
            controllers = self.registered.len(),
            "controllers start as their caches fill"
        );
        for controller in std::mem::take(&mut self.registered) {
            let needed: Vec<_> = controller
                .needs
                .iter()
                .filter_map(|id| ready.get(id).cloned())
                .collect();
            let ready = join_all(needed).map(drop).boxed().shared();
            let view = self.informers.view(&controller.needs);
            self.start_workers(controller, view, &ready, &stop);
        }
        stop.cancelled().await;
    }

    fn start_workers(
        &self,
        controller: Registered,
        view: View,
        ready: &Ready,
        stop: &CancellationToken,
    ) {
        let worker = Arc::new(Worker {
            name: controller.name,
            queue: controller.queue.clone(),
            logic: controller.logic,
            executor: controller.executor,
            view,
            passes: self.passes.clone(),
            // Shared by the workers: the next reconcile of a key may run in another worker than the
            // last one.
            pending: Mutex::new(HashMap::new()),
        });
        for _ in 0..controller.workers.max(1) {
            let (worker, ready, stop) = (worker.clone(), ready.clone(), stop.clone());
            // A panic ends the process: the key of a panicked worker would stay in progress and
            // never be reconciled again.
            self.tasks.spawn_critical(controller.name, async move {
                let work = async {
                    ready.await;
                    worker.run().await;
                };
                tokio::select! {
                    // The lost lease is checked first, so that no key is taken from the queue after
                    // it.
                    biased;
                    () = stop.cancelled() => {}
                    () = work => {}
                }
            });
        }
        let (queue, stop) = (controller.queue, stop.clone());
        self.tasks.spawn_critical(controller.name, async move {
            stop.cancelled().await;
            // Workers end when the queue is closed, also those that wait for a key.
            queue.close();
        });
    }
}

struct Worker {
    name: &'static str,
    queue: Queue,
    logic: Logic,
    executor: Executor,
    view: View,
    passes: ReconcileMetrics,
    pending: Mutex<HashMap<String, Vec<Pending>>>,
}

impl Worker {
    async fn run(self: Arc<Self>) {
        while let Some(key) = self.queue.next().await {
            // The key goes back into the queue, so the worker is free for other keys meanwhile.
            match self.pending_delay(&key) {
                None => self.reconcile_key(&key).await,
                Some(again) => self.queue.add_after(key.clone(), again),
            }
            self.queue.done(&key);
        }
    }

    /// Returns the delay of the next check if the caches do not show the last reconcile's writes
    /// yet.
    fn pending_delay(&self, key: &str) -> Option<Duration> {
        let mut all = self.pending.lock();
        let waiting = all.get_mut(key)?;
        // Upstream's expectations: a reconcile on a cache that lacks the last writes would create
        // the same pods again.
        waiting.retain(|p| !p.is_settled(&self.view));
        let again = waiting.iter().map(Pending::next_check).min();
        if again.is_none() {
            all.remove(key);
        }
        again
    }

    async fn reconcile_key(&self, key: &str) {
        let mut done = Done::default();
        let result = match &self.logic {
            Logic::Decide(logic) => {
                let actions = logic.reconcile(key, Timestamp::now());
                self.executor.perform_actions(actions, &mut done).await
            }
            Logic::Drive(logic) => match logic.reconcile(key, &self.executor).await {
                Ok(actions) => self.executor.perform_actions(actions, &mut done).await,
                Err(error) => Err(error),
            },
        };
        self.passes.count_reconcile(self.name, result.is_ok());
        match result {
            // A success resets the back-off, so that the next failure is retried quickly.
            Ok(()) => self.queue.forget(&key.to_owned()),
            Err(error) => self.handle_error(key, &error, &mut done).await,
        }
        // After a failure too: the writes before it have been performed.
        if !done.pending.is_empty() {
            self.pending
                .lock()
                .entry(key.to_owned())
                .or_default()
                .extend(done.pending);
        }
        if let Some(after) = done.requeue {
            self.queue.add_after(key.to_owned(), after);
        }
    }

    async fn handle_error(&self, key: &str, error: &Error, done: &mut Done) {
        // These errors resolve themselves with the next event. A warning for each would hide real
        // ones.
        let passing =
            error.is_conflict() || error.is_not_found() || error.is_namespace_terminating();
        if passing {
            tracing::debug!(controller = self.name, key, %error, "trying again");
        } else {
            tracing::warn!(controller = self.name, key, %error, "reconcile failed; trying again");
            if let Logic::Decide(logic) = &self.logic {
                // A report that fails is not retried by itself: the retry of the key reports again
                // if it fails again.
                let actions = logic.on_failure(key, &error.to_string(), Timestamp::now());
                if let Err(error) = self.executor.perform_actions(actions, done).await {
                    tracing::debug!(controller = self.name, key, %error, "the failure could not be reported");
                }
            }
        }
        if error.is_namespace_terminating() {
            // No create can succeed in this namespace, and its objects are deleted with it: don't
            // retry.
            self.queue.forget(&key.to_owned());
        } else {
            self.queue.add_rate_limited(key.to_owned());
        }
    }
}
