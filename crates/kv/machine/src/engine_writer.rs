//! Background writer that writes applied changes to the engine, many entries in one batch.

use kv_engine::{Batch, Engine, EngineError};
use kv_mvcc::{Defer, Store};
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Maximum number of queued entries. A full queue blocks applying, which bounds memory.
const QUEUE: usize = 1_024;
/// Size in bytes at which a batch is closed.
// Larger batches would delay the flushes and snapshots that wait behind them.
const WRITE_BYTES: usize = 4 << 20;
/// Delay before a batch is written. Entries that arrive in the meantime join it. No request waits
/// for the engine, and waking a thread for each entry costs more than writing it.
// The log has made the changes durable already, so that a short wait for more of them costs no
// client anything.
const GATHER: Duration = Duration::from_millis(5);

/// The changes of an entry, and the store's revision after it.
pub(crate) struct Work {
    pub batch: Batch,
    pub revision: i64,
}

type Job = Box<dyn FnOnce(&dyn Engine) + Send>;

enum Order {
    Store(Work),
    /// Deletes these rows. Dropping the permit notifies the task that waits for it.
    Remove(Batch, OwnedSemaphorePermit),
    Flush(oneshot::Sender<Result<(), EngineError>>),
    /// Ends the thread.
    Stop,
    /// Runs a function on the engine between two writes.
    Run(Job),
}

/// Handle of the writer thread. Dropping it waits until the queue is written.
pub(crate) struct EngineWriter {
    inlet: Option<Inlet>,
    thread: Option<JoinHandle<()>>,
    /// Worker state when running without a dedicated thread (simulation).
    idle: Option<Arc<Mutex<Worker>>>,
}

/// Sender of the queue.
#[derive(Clone)]
struct Inlet {
    orders: SyncSender<Order>,
    /// The worker, if there is no thread; dangling otherwise.
    idle: Weak<Mutex<Worker>>,
}

impl Inlet {
    /// Queues an order and waits while the queue is full. The thread runs until the last order is
    /// written or the process exits.
    fn queue_order(&self, mut order: Order) {
        let Some(worker) = self.idle.upgrade() else {
            let _ = self.orders.send(order);
            return;
        };
        // No other thread drains the queue.
        // Without a thread the sender itself makes room, or it would wait for ever.
        while let Err(TrySendError::Full(back)) = self.orders.try_send(order) {
            order = back;
            worker.lock().drain_queue();
        }
    }
}

/// Receives orders and executes them.
struct Worker {
    inbox: Receiver<Order>,
    engine: Arc<dyn Engine>,
    store: Arc<Store>,
    on_store: Arc<dyn Fn(Duration) + Send + Sync>,
}

impl EngineWriter {
    pub fn start(
        engine: Arc<dyn Engine>,
        store: Arc<Store>,
        on_store: Arc<dyn Fn(Duration) + Send + Sync>,
        own_thread: bool,
    ) -> Self {
        let (orders, inbox) = sync_channel(QUEUE);
        let worker = Worker {
            inbox,
            engine,
            store,
            on_store,
        };
        // Simulations run without threads: the order of writes must follow from the seed alone.
        if !own_thread {
            let idle = Arc::new(Mutex::new(worker));
            let inlet = Inlet {
                orders,
                // Weak, because the store holds an inlet for removals, and the worker holds the
                // store.
                idle: Arc::downgrade(&idle),
            };
            return EngineWriter {
                inlet: Some(inlet),
                thread: None,
                idle: Some(idle),
            };
        }
        let inlet = Inlet {
            orders,
            idle: Weak::new(),
        };
        let thread = std::thread::Builder::new()
            .name("engine_writer".to_owned())
            .spawn(move || worker.run());
        match thread {
            Ok(thread) => EngineWriter {
                inlet: Some(inlet),
                thread: Some(thread),
                idle: None,
            },
            // Without the thread, the queue would fill and block the state machine for ever.
            Err(e) => exit_on_failure(&format!("a thread can't be started: {e}")),
        }
    }

    /// Executes one batch of queued orders if there is no thread. Returns whether there were any.
    pub fn drain_queue(&self) -> bool {
        self.idle
            .as_ref()
            .is_some_and(|worker| worker.lock().drain_queue())
    }

    pub fn queue_changes(&self, work: Work) {
        self.send_order(Order::Store(work));
    }

    pub fn removal_queue(&self) -> Defer {
        let inlet = self.inlet.clone();
        Box::new(move |batch, turn| {
            if let Some(inlet) = &inlet {
                inlet.queue_order(Order::Remove(batch, turn));
            }
        })
    }

    pub async fn flush(&self) -> Result<(), EngineError> {
        let (sender, receiver) = oneshot::channel();
        self.send_order(Order::Flush(sender));
        // A sender that was dropped means that the writer stops, and its last batch precedes the
        // stop.
        receiver.await.unwrap_or(Ok(()))
    }

    /// Runs a function after all orders that were queued before.
    pub async fn run_job<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Engine) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.send_order(Order::Run(Box::new(move |engine| {
            let _ = sender.send(work(engine));
        })));
        receiver.await.ok()
    }

    fn send_order(&self, order: Order) {
        if let Some(inlet) = &self.inlet {
            inlet.queue_order(order);
        }
    }
}

impl Worker {
    #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
    fn run(&self) {
        while let Ok(first) = self.inbox.recv() {
            if matches!(first, Order::Store(_)) {
                std::thread::sleep(GATHER);
            }
            if !self.execute_batch(first) {
                return;
            }
        }
    }

    /// Executes one batch of queued orders. Returns whether there were any.
    fn drain_queue(&self) -> bool {
        let Ok(first) = self.inbox.try_recv() else {
            return false;
        };
        self.execute_batch(first);
        true
    }

    /// Executes one batch. Returns false after the last.
    fn execute_batch(&self, first: Order) -> bool {
        let Worker {
            inbox,
            engine,
            store,
            on_store,
        } = self;
        let mut next = Some(first);
        let mut batch = Batch::default();
        let mut revision = 0;
        let mut after = None;
        let mut turns = Vec::new();
        while let Some(order) = next.take() {
            match order {
                Order::Store(work) => {
                    batch.append(work.batch);
                    revision = work.revision;
                }
                Order::Remove(removals, turn) => {
                    batch.append(removals);
                    turns.push(turn);
                }
                // Flush, Run and Stop end the batch: they must see everything queued before them
                // and nothing after.
                other => {
                    after = Some(other);
                    break;
                }
            }
            // Bounds the memory of a batch and of the engine's journal entry for it.
            if batch.size_bytes() < WRITE_BYTES {
                next = inbox.try_recv().ok();
            }
        }
        write_batch(&**engine, store, &**on_store, batch, revision);
        // After the write: the next compaction step may start now.
        drop(turns);
        match after {
            Some(Order::Flush(sender)) => {
                let _ = sender.send(engine.flush());
            }
            Some(Order::Run(work)) => work(&**engine),
            Some(Order::Stop) => return false,
            _ => {}
        }
        true
    }
}

fn write_batch(
    engine: &dyn Engine,
    store: &Store,
    on_store: &dyn Fn(Duration),
    batch: Batch,
    revision: i64,
) {
    if batch.is_empty() {
        return;
    }
    let before = Instant::now();
    // A later batch would move the applied position past the lost one, so that the log would not
    // replay it.
    if let Err(e) = engine.write_batch(batch) {
        exit_on_failure(&e.to_string());
    }
    on_store(before.elapsed());
    // From now on the engine serves these revisions, so the history may drop them.
    if revision != 0 {
        store.mark_stored(revision);
    }
}

impl Drop for EngineWriter {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.send_order(Order::Stop);
        }
        self.inlet = None;
        if let Some(thread) = self.thread.take()
            // The last handle may be dropped by a job on the thread itself, which can't join
            // itself.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Exits the process: the state can't follow the log any more. The next start replays the missing
/// entries.
#[allow(clippy::print_stderr)]
fn exit_on_failure(reason: &str) -> ! {
    eprintln!(
        "kvstore: {reason}; stopping: nothing acknowledged is lost, the log has it. Free some space if the disk is full, and start it again"
    );
    std::process::exit(1);
}
