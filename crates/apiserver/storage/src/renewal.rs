//! Replacement of connections whose certificates have changed.
//!
//! A connection is replaced by one on which its member has answered a read. Calls that run end on
//! the former one and watches continue on the new one, so that none fails.

use crate::client::{key_bytes, kv_client};
use crate::config::build_channel;
use crate::{Store, StoreError};
use proto_etcd::etcdserverpb as pb;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;

/// Interval at which the files are checked.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// Timeout of a connection with changed certificates, with the read that checks them.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(3);

impl Store {
    /// Replaces the connections to the members when the TLS files have changed. Runs until it is
    /// dropped, or returns at once if there are no such files.
    pub async fn follow_certificates(self) {
        self.replace_connections_every(CHECK_EVERY).await;
    }

    pub(crate) async fn replace_connections_every(&self, interval: Duration) {
        if self.tls.paths().is_empty() {
            return;
        }
        let mut last = self.tls.current().as_ref().clone();
        // Members whose failure was logged: an attempt is repeated at each interval.
        let mut reported = HashSet::new();
        loop {
            sleep(interval).await;
            let tls = base_task::blocking(|| self.tls.refresh()).as_ref().clone();
            if !Arc::ptr_eq(&tls, &last) {
                reported.clear();
                last = tls.clone();
            }
            for (index, url) in self.members.list_outdated(&tls) {
                match self.connect_checked(&url).await {
                    Ok(channel) => {
                        self.members.replace_connection(index, channel, tls.clone());
                        tracing::info!(%url, "connected to the store with the changed certificates");
                    }
                    Err(error) if reported.insert(index) => {
                        tracing::warn!(%url, %error, "no connection to the store with the changed certificates; the former one stays in use");
                    }
                    Err(_) => {}
                }
            }
        }
    }

    /// Opens a connection on which the member answers a read: with TLS 1.3 the handshake ends
    /// before the server has verified the client's certificate.
    async fn connect_checked(&self, url: &str) -> Result<Channel, StoreError> {
        let channel = build_channel(url, &self.tls)
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let request = pb::RangeRequest {
            // That of `current_revision`, which every user of the store may read.
            key: key_bytes("\0none"),
            count_only: true,
            // A member without a leader answers as well.
            serializable: true,
            ..Default::default()
        };
        let read = timeout(REPLACE_TIMEOUT, kv_client(channel.clone()).range(request)).await;
        match read {
            Ok(response) => response.map(|_| channel).map_err(StoreError::from),
            Err(_) => Err(StoreError::Unavailable(format!(
                "no response within {REPLACE_TIMEOUT:?}"
            ))),
        }
    }
}
