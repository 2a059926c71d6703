//! Claims whose search came to no end.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;
use parking_lot::Mutex;

/// Steps on one node from which a search that came to no end counts as hard. A search without
/// going back has a step for each device.
pub(super) const MANY_STEPS: u64 = 20_000;
/// Largest number of claims. The oldest is forgotten first.
const MAX_CLAIMS: usize = 10_000;

/// UID and version of a claim.
type Key = (String, String);

/// The claims, which get less time, whichever pod names them, until they are changed.
#[derive(Debug, Default)]
pub(super) struct HardClaims {
    keys: Mutex<(HashSet<Key>, VecDeque<Key>)>,
}

impl HardClaims {
    pub(super) fn add_all(&self, claims: &[Arc<ResourceClaim>]) {
        let mut keys = self.keys.lock();
        let (known, order) = &mut *keys;
        for key in claims.iter().map(|claim| key_of(claim)) {
            if known.insert(key.clone()) {
                order.push_back(key);
            }
            if order.len() > MAX_CLAIMS
                && let Some(oldest) = order.pop_front()
            {
                known.remove(&oldest);
            }
        }
    }

    /// Returns whether one of the claims is known.
    pub(super) fn contains_any(&self, claims: &[Arc<ResourceClaim>]) -> bool {
        let keys = self.keys.lock();
        claims.iter().any(|claim| keys.0.contains(&key_of(claim)))
    }
}

fn key_of(claim: &ResourceClaim) -> Key {
    let meta = &claim.metadata;
    (
        meta.uid.clone().unwrap_or_default(),
        meta.resource_version.clone().unwrap_or_default(),
    )
}
