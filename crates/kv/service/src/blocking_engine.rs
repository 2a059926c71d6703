//! Engine calls on slow disks.
//!
//! fjall blocks reads while it persists its manifest with several fsyncs: no measurable time on a
//! fast disk, 2 s if a sync takes 200 ms. Threads that wait for it would stop all other tasks of
//! the runtime, including heartbeats. If syncs are slow, engine calls therefore run as blocking
//! tasks. Rejected: doing so always, because it costs more than a read.

use base_task::blocking;
use bytes::Bytes;
use kv_engine::{Batch, Engine, EngineError, Table, Visit};
use kv_raft::SHORT_SYNC;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An engine, and the recent duration of a sync on its disk.
pub(crate) struct BlockingEngine {
    engine: Arc<dyn Engine>,
    sync_micros: Arc<AtomicU64>,
}

impl BlockingEngine {
    pub fn new(engine: Arc<dyn Engine>, sync_micros: Arc<AtomicU64>) -> Self {
        BlockingEngine {
            engine,
            sync_micros,
        }
    }

    fn wait<T>(&self, work: impl FnOnce(&dyn Engine) -> T) -> T {
        if self.sync_micros.load(Ordering::Relaxed) < SHORT_SYNC {
            return work(&*self.engine);
        }
        blocking(|| work(&*self.engine))
    }
}

impl Engine for BlockingEngine {
    fn write_batch(&self, batch: Batch) -> Result<(), EngineError> {
        self.wait(|engine| engine.write_batch(batch))
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.wait(|engine| engine.get(table, key))
    }

    fn scan_rows(
        &self,
        table: Table,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.wait(|engine| engine.scan_rows(table, from, to, visit))
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.wait(|engine| engine.flush())
    }

    fn release_space(&self) -> Result<(), EngineError> {
        self.wait(|engine| engine.release_space())
    }

    fn clear(&self) -> Result<(), EngineError> {
        self.wait(|engine| engine.clear())
    }

    fn disk_size(&self) -> u64 {
        self.wait(|engine| engine.disk_size())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::BlockingEngine;
    use bytes::Bytes;
    use kv_engine::{Batch, Engine, EngineError, MemoryEngine, Table, Visit};
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, Condvar, Mutex};
    use std::time::Duration;

    /// An engine that blocks until it is released.
    #[derive(Default)]
    struct Stuck {
        free: Mutex<bool>,
        freed: Condvar,
        below: MemoryEngine,
    }

    impl Stuck {
        fn continue_with_log(&self) {
            *self.free.lock().unwrap() = true;
            self.freed.notify_all();
        }
    }

    impl Engine for Stuck {
        fn write_batch(&self, batch: Batch) -> Result<(), EngineError> {
            self.below.write_batch(batch)
        }

        fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
            drop(
                self.freed
                    .wait_while(self.free.lock().unwrap(), |free| !*free)
                    .unwrap(),
            );
            self.below.get(table, key)
        }

        fn scan_rows(
            &self,
            table: Table,
            from: &[u8],
            to: Option<&[u8]>,
            visit: &mut Visit<'_>,
        ) -> Result<(), EngineError> {
            self.below.scan_rows(table, from, to, visit)
        }

        fn flush(&self) -> Result<(), EngineError> {
            self.below.flush()
        }

        fn clear(&self) -> Result<(), EngineError> {
            self.below.clear()
        }

        fn disk_size(&self) -> u64 {
            self.below.disk_size()
        }
    }

    #[test]
    fn readers_that_wait_for_the_engine_of_a_slow_disk_keep_no_other_task_from_running() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let stuck = Arc::new(Stuck::default());
        let engine = Arc::new(BlockingEngine::new(
            stuck.clone(),
            Arc::new(AtomicU64::new(200_000)),
        ));
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let engine = engine.clone();
                runtime.spawn(async move { engine.get(Table::Revisions, b"key").unwrap() })
            })
            .collect();
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            sender.send(()).unwrap();
        });
        let others = receiver.recv_timeout(Duration::from_secs(10));
        stuck.continue_with_log();
        for reader in readers {
            assert_eq!(runtime.block_on(reader).unwrap(), None);
        }
        assert_eq!(
            others,
            Ok(()),
            "a task that has nothing to do with the engine did not run"
        );
    }
}
