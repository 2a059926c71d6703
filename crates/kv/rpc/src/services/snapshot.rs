//! The Snapshot RPC: streams the state as a bbolt file.

use crate::context::ServerContext;
use bytes::Bytes;
use kv_config::API_VERSION;
use proto_etcd::etcdserverpb::SnapshotResponse;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

const CHUNK: usize = 64 << 10;

/// Streams the state in etcd's file format, followed by its hash.
pub(crate) async fn stream_snapshot(
    core: &Arc<ServerContext>,
) -> Result<ReceiverStream<Result<SnapshotResponse, Status>>, Status> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let failed = |reason: String| Status::internal(format!("the snapshot can't be made: {reason}"));
    let picture = core
        .machine
        .start_snapshot()
        .await
        .map_err(|e| failed(e.to_string()))?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = core.spool.join(format!("sent-{number}.tmp"));
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let header = core.header_at(picture.revision());
    // The file is complete before the first part is sent: its hash and length are part of the
    // stream, and a slow client must not pin the state.
    tokio::task::spawn_blocking(move || {
        let sent = kv_snapshot_file::export_snapshot(picture, &path)
            .map_err(|e| e.to_string())
            .and_then(|()| {
                let mut file = std::fs::File::open(&path).map_err(|e| e.to_string())?;
                let mut remaining = file.metadata().map_err(|e| e.to_string())?.len();
                while remaining > 0 {
                    let mut chunk = vec![0; CHUNK.min(usize::try_from(remaining).unwrap_or(CHUNK))];
                    file.read_exact(&mut chunk).map_err(|e| e.to_string())?;
                    remaining -= chunk.len() as u64;
                    let version = API_VERSION.to_owned();
                    let part = SnapshotResponse {
                        header,
                        remaining_bytes: remaining,
                        blob: Bytes::from(chunk),
                        version,
                    };
                    // The client has closed the stream. The channel has four parts, which bounds
                    // the memory of a slow one.
                    if sender.blocking_send(Ok(part)).is_err() {
                        break;
                    }
                }
                Ok(())
            });
        if let Err(reason) = sent {
            // The client may have closed the stream.
            let _ = sender.blocking_send(Err(Status::internal(format!(
                "the snapshot can't be made: {reason}"
            ))));
        }
        let _ = std::fs::remove_file(&path);
    });
    Ok(ReceiverStream::new(receiver))
}
