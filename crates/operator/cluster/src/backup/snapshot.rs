//! Reads a snapshot from the running store.

use proto_etcd::etcdserverpb::SnapshotRequest;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use sha2::{Digest, Sha256};

use crate::connect::{connect_store, local_store_url};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;

/// Length of the digest at the end of a snapshot.
// etcd appends the SHA-256 of the database file.
const DIGEST: usize = 32;

/// Passes the parts of a snapshot to `write`.
///
/// # Errors
/// The store is not reachable, or the snapshot is incomplete.
pub(super) async fn read_snapshot(
    settings: &Settings,
    layout: &Layout,
    write: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let failed = |why: String| Error::Refused(format!("the store's snapshot can't be read: {why}"));
    let mut store = MaintenanceClient::new(connect_store(&local_store_url(settings), layout)?);
    let reply = store.snapshot(SnapshotRequest {}).await;
    let mut parts = reply
        .map_err(|status| {
            failed(format!(
                "{}; the cluster must run (`ironclad status`)",
                status.message()
            ))
        })?
        .into_inner();
    let mut check = DigestCheck::default();
    while let Some(part) = parts
        .message()
        .await
        .map_err(|status| failed(status.message().to_owned()))?
    {
        check.add(&part.blob);
        write(&part.blob)?;
    }
    if check.finish() {
        Ok(())
    } else {
        Err(failed("it ended too early; run the command again".into()))
    }
}

/// Compares a snapshot with the digest at its end.
#[derive(Default)]
struct DigestCheck {
    digest: Sha256,
    /// The last bytes, which may be the digest.
    end: Vec<u8>,
}

impl DigestCheck {
    fn add(&mut self, part: &[u8]) {
        self.end.extend_from_slice(part);
        let known = self.end.len().saturating_sub(DIGEST);
        self.digest.update(self.end.drain(..known).as_slice());
    }

    /// Returns whether the last bytes are the digest of all others.
    fn finish(self) -> bool {
        self.digest.finalize().as_slice() == self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_ends_with_the_digest_of_the_rest() {
        let mut whole = vec![7; 1000];
        whole.extend_from_slice(&Sha256::digest(&whole));
        let is_complete = |bytes: &[u8], size: usize| {
            let mut check = DigestCheck::default();
            bytes.chunks(size).for_each(|part| check.add(part));
            check.finish()
        };
        for size in [1, 31, 32, 33, 500, 2000] {
            assert!(is_complete(&whole, size), "{size}");
            for length in [0, 10, 32, 999, 1000, 1031] {
                let start: Vec<u8> = whole.iter().take(length).copied().collect();
                assert!(!is_complete(&start, size), "{size} {length}");
            }
        }
    }
}
