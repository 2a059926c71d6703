//! Adapter from `kv_machine::Machine` to `kv_raft::StateMachine`.

use async_trait::async_trait;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kv_config::INSTALLING;
use kv_machine::{Machine, MachineError, SnapshotItem, SnapshotReader};
use kv_raft::{SnapshotRows, StateMachine};
use kv_rpc::StoreMetrics;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// Applies log entries to the state machine.
pub(crate) struct RaftStateMachine(pub Arc<Machine>, pub Arc<StoreMetrics>);

#[async_trait]
impl StateMachine for RaftStateMachine {
    fn applied_position(&self) -> (Bytes, Bytes) {
        let place = self.0.applied_position();
        (place.position, place.membership)
    }

    fn apply(
        &self,
        index: u64,
        position: Bytes,
        membership: Option<Bytes>,
        commands: Option<Bytes>,
    ) {
        self.0.apply(index, position, membership, commands);
    }

    fn may_forward(&self, from: u64, command: &Bytes) -> bool {
        kv_machine::may_forward(from, command)
    }

    fn report_lost(&self, requests: &[u64]) {
        for request in requests {
            self.0.cancel_request(*request);
        }
    }

    async fn flush(&self) -> Result<(), String> {
        let began = Instant::now();
        let flushed = self.0.flush().await.map_err(|e| e.to_string());
        self.1.snapshot_saves.observe_duration(began.elapsed());
        flushed
    }

    async fn start_snapshot(&self) -> Result<Box<dyn SnapshotRows>, String> {
        let reader = self.0.start_snapshot().await.map_err(|e| e.to_string())?;
        Ok(Box::new(EncodedRows(reader)))
    }

    async fn install_state(&self, rows: &Path) -> Result<(), String> {
        // Under this name a restart finds the file and repeats the installation.
        let kept = rows.with_file_name(INSTALLING);
        base_task::blocking(|| {
            std::fs::rename(rows, &kept)?;
            // Synced, because installing wipes the state: a crash after that must find the rows.
            File::open(kept.parent().unwrap_or(Path::new(".")))?.sync_all()
        })
        .map_err(|e| e.to_string())?;
        self.1.installing.store(1, Ordering::Relaxed);
        let installed = self.install_kept(&kept).await;
        self.1.installing.store(0, Ordering::Relaxed);
        installed
    }
}

impl RaftStateMachine {
    /// Repeats an interrupted installation and deletes received files that were not installed.
    pub async fn resume(&self, folder: &Path) -> Result<(), String> {
        let kept = folder.join(INSTALLING);
        if self.0.is_incomplete() {
            self.install_kept(&kept)
                .await
                .map_err(|e| format!("{}: {e}", kept.display()))?;
        }
        base_task::blocking(|| {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                // Leftover files occupy space, but do no harm.
                let _ = std::fs::remove_file(entry.path());
            }
        });
        Ok(())
    }

    async fn install_kept(&self, rows: &Path) -> Result<(), String> {
        let mut file = BufReader::new(File::open(rows).map_err(|e| e.to_string())?);
        // In chunks, because the state may be larger than the memory that is left.
        let installed = self.0.install_snapshot(|| read_chunk(&mut file)).await;
        installed.map_err(|e| e.to_string())?;
        // The file is not needed any more. If deleting it fails, the next installation replaces it.
        let _ = base_task::blocking(|| std::fs::remove_file(rows));
        Ok(())
    }
}

struct EncodedRows(SnapshotReader);

impl SnapshotRows for EncodedRows {
    fn applied_position(&self) -> (Bytes, Bytes) {
        let place = self.0.applied_position();
        (place.position.clone(), place.membership.clone())
    }

    fn next_rows(&mut self) -> Result<Option<Bytes>, String> {
        let rows = self.0.next_rows().map_err(|e| e.to_string())?;
        Ok(rows.map(|rows| encode_rows(&rows)))
    }
}

fn encode_rows(rows: &[SnapshotItem]) -> Bytes {
    let mut bytes = BytesMut::new();
    for (table, key, value) in rows {
        bytes.put_u8(*table);
        bytes.put_u32(key.len() as u32);
        bytes.put_slice(key);
        bytes.put_u32(value.len() as u32);
        bytes.put_slice(value);
    }
    bytes.freeze()
}

fn decode_rows(mut bytes: Bytes) -> Option<Vec<SnapshotItem>> {
    let mut rows = Vec::new();
    while bytes.has_remaining() {
        let table = bytes.try_get_u8().ok()?;
        let mut part = || {
            let length = bytes.try_get_u32().ok()? as usize;
            (length <= bytes.remaining()).then(|| bytes.split_to(length))
        };
        rows.push((table, part()?, part()?));
    }
    Some(rows)
}

fn read_chunk(file: &mut impl Read) -> Result<Option<Vec<SnapshotItem>>, MachineError> {
    let damaged = || MachineError::Damaged("rows");
    let mut length = [0; 8];
    match file.read_exact(&mut length) {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other.map_err(|_| damaged())?,
    }
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| damaged())?;
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes).map_err(|_| damaged())?;
    decode_rows(bytes.into()).map(Some).ok_or_else(damaged)
}
