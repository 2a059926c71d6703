//! Allocations that the scheduler has decided and the informers do not show yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::resource::v1::ResourceClaim;
use parking_lot::Mutex;

use crate::allocated::Allocated;

#[derive(Debug)]
enum Entry {
    /// The allocation is to be written.
    Pending(Arc<ResourceClaim>),
    /// The claim as the API server returned it.
    Written(Arc<ResourceClaim>),
}

impl Entry {
    fn claim(&self) -> &Arc<ResourceClaim> {
        match self {
            Self::Pending(claim) | Self::Written(claim) => claim,
        }
    }
}

/// The decisions, by UID of the claim.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<HashMap<String, Entry>>,
    revision: AtomicU64,
}

fn uid_of(claim: &ResourceClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns the version of an object, 0 if it has none.
fn version_of(claim: &ResourceClaim) -> u64 {
    let version = claim.metadata.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

impl Ledger {
    /// Adds a claim with an allocation that is to be written. Returns false if another allocation
    /// is to be written, or was written after the claim was read.
    #[must_use]
    pub fn add_pending(&self, claim: ResourceClaim) -> bool {
        let uid = uid_of(&claim).to_owned();
        let mut entries = self.entries.lock();
        let is_overtaken = match entries.get(&uid) {
            None => false,
            Some(Entry::Pending(_)) => true,
            Some(Entry::Written(own)) => version_of(own) > version_of(&claim),
        };
        if !is_overtaken {
            entries.insert(uid, Entry::Pending(Arc::new(claim)));
            self.count_change();
        }
        !is_overtaken
    }

    /// Removes an allocation that will not be written. One that was written stays.
    pub fn remove_pending(&self, uid: &str) {
        let mut entries = self.entries.lock();
        if matches!(entries.get(uid), Some(Entry::Pending(_))) {
            entries.remove(uid);
            self.count_change();
        }
    }

    /// Replaces a claim by its state after a write.
    pub fn record_written(&self, claim: ResourceClaim) {
        let uid = uid_of(&claim).to_owned();
        let mut entries = self.entries.lock();
        entries.insert(uid, Entry::Written(Arc::new(claim)));
        self.count_change();
    }

    /// Returns whether an allocation of the claim is to be written.
    pub fn is_pending(&self, uid: &str) -> bool {
        matches!(self.entries.lock().get(uid), Some(Entry::Pending(_)))
    }

    /// Removes the claims whose written state the informer shows up to `version`.
    pub fn forget_shown(&self, version: u64) {
        let mut entries = self.entries.lock();
        let before = entries.len();
        entries.retain(|_, entry| match entry {
            Entry::Pending(_) => true,
            Entry::Written(claim) => version_of(claim) > version,
        });
        if entries.len() < before {
            self.count_change();
        }
    }

    /// Called under the lock of the entries.
    fn count_change(&self) {
        self.revision.fetch_add(1, Ordering::Release);
    }

    /// Returns a number that differs after each change.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns the newer one of an informer's state and the last written state of a claim.
    pub fn newest_claim(&self, shown: Arc<ResourceClaim>) -> Arc<ResourceClaim> {
        match self.entries.lock().get(uid_of(&shown)) {
            Some(Entry::Written(own)) if version_of(own) > version_of(&shown) => own.clone(),
            _ => shown,
        }
    }

    /// Returns the devices of the claims that an informer shows as allocated, and of the decisions.
    pub fn count_allocated<'a>(
        &self,
        shown: impl Iterator<Item = &'a Arc<ResourceClaim>>,
    ) -> Allocated {
        let mut allocated = Allocated::default();
        let entries = self.entries.lock();
        for claim in shown {
            let own = entries.get(uid_of(claim)).map(Entry::claim);
            // A claim with a decision is counted below.
            if own.is_none_or(|own| version_of(own) < version_of(claim)) {
                allocated.add_claim(claim);
            }
        }
        // A device that is counted twice stays in use, so that an entry that the informer has
        // overtaken does no harm.
        entries
            .values()
            .for_each(|entry| allocated.add_claim(entry.claim()));
        allocated
    }
}

#[cfg(test)]
mod tests;
