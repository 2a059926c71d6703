//! Fetches another member's state, for a member that has lost its data.

use crate::config::PeerTls;
use crate::node::{NodeError, RaftNode};
use crate::pb;
use crate::server;
use crate::transport::{Transport, sign_metadata};
use std::path::{Path, PathBuf};

impl RaftNode {
    /// Downloads the state of the member at `url` into a file in `spool`. `identity` is the pair
    /// (cluster, member) of the caller. Returns `None` if that member has not applied `least` yet.
    pub async fn fetch_state(
        url: &str,
        tls: PeerTls,
        (cluster, member): (u64, u64),
        least: u64,
        spool: &Path,
    ) -> Result<Option<PathBuf>, NodeError> {
        let failed = |e: &dyn std::fmt::Display| NodeError::Raft(e.to_string());
        let mut client = Transport::peer_client_at(url, tls).map_err(|e| failed(&e))?;
        let mut request = tonic::Request::new(pb::Empty {});
        sign_metadata(request.metadata_mut(), cluster, member, 0);
        let mut stream = client
            .fetch_snapshot(request)
            .await
            .map_err(|status| failed(&status))?
            .into_inner();
        let head = stream
            .message()
            .await
            .map_err(|status| failed(&status))?
            .and_then(|first| first.head);
        let applied = head.and_then(|head| head.last).map_or(0, |last| last.index);
        // An older state could lack entries that this member has acknowledged.
        if applied < least {
            return Ok(None);
        }
        server::receive_rows(spool, stream, || {})
            .await
            .map(Some)
            .map_err(|status| failed(&status))
    }
}
