//! Leases of keys that expire (events).
//!
//! One etcd lease serves all keys of about the same age, as upstream does: one lease per key would
//! cost more than the keys.

use crate::StoreError;
use crate::members::Members;
use proto_etcd::etcdserverpb as pb;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Number of keys that share a lease.
const KEYS_PER_LEASE: u32 = 1000;

struct Lease {
    id: i64,
    until: Instant,
    keys: u32,
}

pub(crate) struct Leases {
    members: Members,
    by_ttl: Mutex<HashMap<i64, Lease>>,
}

impl Leases {
    pub(crate) fn new(members: Members) -> Self {
        Leases {
            members,
            by_ttl: Mutex::default(),
        }
    }

    /// Returns a lease that lives for at least `ttl` seconds from now, and at most a twentieth (one
    /// minute) longer.
    pub(crate) async fn lease_for(&self, ttl: i64) -> Result<i64, StoreError> {
        // Held during the request, so that concurrent writers do not each grant a lease.
        let mut by_ttl = self.by_ttl.lock().await;
        let now = Instant::now();
        if let Some(lease) = by_ttl.get_mut(&ttl)
            && lease.until > now
            && lease.keys < KEYS_PER_LEASE
        {
            lease.keys += 1;
            return Ok(lease.id);
        }
        // As upstream: a lease takes keys for 5 % of the TTL and 60 s at most, and lives as much
        // longer, so that its last key also lives for the whole TTL.
        let reuse = (ttl / 20).clamp(1, 60);
        let request = pb::LeaseGrantRequest {
            ttl: ttl + reuse,
            ..Default::default()
        };
        let grant = async |channel| {
            pb::lease_client::LeaseClient::new(channel)
                .lease_grant(request)
                .await
        };
        let granted = self.members.call(grant).await?;
        let until = now + Duration::from_secs(u64::try_from(reuse).unwrap_or(1));
        by_ttl.insert(
            ttl,
            Lease {
                id: granted.id,
                until,
                keys: 1,
            },
        );
        Ok(granted.id)
    }
}
