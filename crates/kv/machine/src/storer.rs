//! The thread that carries what was applied to the engine, many entries at a time.

use kv_engine::{Batch, Engine, EngineError};
use kv_mvcc::{Defer, Store};
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Entries that may wait: a full queue slows applying down, so memory stays bounded.
const QUEUE: usize = 1_024;
/// Bytes written at once.
const WRITE_BYTES: usize = 4 << 20;
/// What comes within this time of an entry is written with it: nobody waits for the engine, and waking a thread for each
/// entry costs more than writing it.
const GATHER: Duration = Duration::from_millis(5);

/// An entry's changes, and the revision after it.
pub(crate) struct Work {
    pub batch: Batch,
    pub revision: i64,
}

type Job = Box<dyn FnOnce(&dyn Engine) + Send>;

enum Order {
    Store(Work),
    /// These rows; who waits for that hears of it.
    Remove(Batch, OwnedSemaphorePermit),
    Flush(oneshot::Sender<Result<(), EngineError>>),
    /// Finish.
    Stop,
    /// Do this with the engine, between two writes.
    Run(Job),
}

/// A handle on the thread; dropping it lets the thread finish what it has.
pub(crate) struct Storer {
    inlet: Option<Inlet>,
    thread: Option<JoinHandle<()>>,
    /// What a thread would do, where there is none.
    idle: Option<Arc<Mutex<Worker>>>,
}

/// Where orders are put.
#[derive(Clone)]
struct Inlet {
    orders: SyncSender<Order>,
    /// Gone, or never there: a thread takes the orders.
    idle: Weak<Mutex<Worker>>,
}

impl Inlet {
    /// Waits for room. The thread ends after all orders, or with the process.
    fn put(&self, mut order: Order) {
        let Some(worker) = self.idle.upgrade() else {
            let _ = self.orders.send(order);
            return;
        };
        // Nobody else would make room.
        while let Err(TrySendError::Full(back)) = self.orders.try_send(order) {
            order = back;
            worker.lock().work_off();
        }
    }
}

/// Takes orders and carries them out.
struct Worker {
    inbox: Receiver<Order>,
    engine: Arc<dyn Engine>,
    store: Arc<Store>,
    on_store: Arc<dyn Fn(Duration) + Send + Sync>,
}

impl Storer {
    pub fn start(
        engine: Arc<dyn Engine>,
        store: Arc<Store>,
        on_store: Arc<dyn Fn(Duration) + Send + Sync>,
        own_thread: bool,
    ) -> Self {
        let (orders, inbox) = sync_channel(QUEUE);
        let worker = Worker { inbox, engine, store, on_store };
        if !own_thread {
            let idle = Arc::new(Mutex::new(worker));
            let inlet = Inlet { orders, idle: Arc::downgrade(&idle) };
            return Storer { inlet: Some(inlet), thread: None, idle: Some(idle) };
        }
        let inlet = Inlet { orders, idle: Weak::new() };
        let thread = std::thread::Builder::new().name("storer".to_owned()).spawn(move || worker.run());
        match thread {
            Ok(thread) => Storer { inlet: Some(inlet), thread: Some(thread), idle: None },
            Err(e) => stop(&format!("a thread can't be started: {e}")),
        }
    }

    /// Carries out what waits, where no thread does. Whether there was anything.
    pub fn work_off(&self) -> bool {
        self.idle.as_ref().is_some_and(|worker| worker.lock().work_off())
    }

    pub fn store(&self, work: Work) {
        self.order(Order::Store(work));
    }

    pub fn removals(&self) -> Defer {
        let inlet = self.inlet.clone();
        Box::new(move |batch, turn| {
            if let Some(inlet) = &inlet {
                inlet.put(Order::Remove(batch, turn));
            }
        })
    }

    pub async fn flush(&self) -> Result<(), EngineError> {
        let (sender, receiver) = oneshot::channel();
        self.order(Order::Flush(sender));
        receiver.await.unwrap_or(Ok(()))
    }

    /// Runs something after everything that was ordered before.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce(&dyn Engine) -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.order(Order::Run(Box::new(move |engine| {
            let _ = sender.send(work(engine));
        })));
        receiver.await.ok()
    }

    fn order(&self, order: Order) {
        if let Some(inlet) = &self.inlet {
            inlet.put(order);
        }
    }
}

impl Worker {
    fn run(&self) {
        while let Ok(first) = self.inbox.recv() {
            if matches!(first, Order::Store(_)) {
                std::thread::sleep(GATHER);
            }
            if !self.carry_out(first) {
                return;
            }
        }
    }

    /// Carries out what waits. Whether there was anything.
    fn work_off(&self) -> bool {
        let Ok(first) = self.inbox.try_recv() else { return false };
        self.carry_out(first);
        true
    }

    /// False: that was the last.
    fn carry_out(&self, first: Order) -> bool {
        let Worker { inbox, engine, store, on_store } = self;
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
                other => {
                    after = Some(other);
                    break;
                }
            }
            if batch.bytes() < WRITE_BYTES {
                next = inbox.try_recv().ok();
            }
        }
        write(&**engine, store, &**on_store, batch, revision);
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

fn write(engine: &dyn Engine, store: &Store, on_store: &dyn Fn(Duration), batch: Batch, revision: i64) {
    if batch.is_empty() {
        return;
    }
    let before = Instant::now();
    if let Err(e) = engine.write(batch) {
        stop(&e.to_string());
    }
    on_store(before.elapsed());
    if revision != 0 {
        store.stored(revision);
    }
}

impl Drop for Storer {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.order(Order::Stop);
        }
        self.inlet = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// The state can't follow the log any more; the next start replays what is missing.
#[allow(clippy::print_stderr)]
fn stop(reason: &str) -> ! {
    eprintln!(
        "kvstore: {reason}; stopping: nothing acknowledged is lost, the log has it. Free some space if the disk is full, and start it again"
    );
    std::process::exit(1);
}
