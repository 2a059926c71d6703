//! Places for calls at the same time: a webhook that does not respond must not collect requests
//! without a bound, and one client must not take all places.

use super::digest::Key;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Calls of one webhook at the same time, those of nodes and the control plane included.
const MAX_CALLS: usize = 1024;
/// The part of them that other clients may have.
const MAX_OTHERS: usize = 768;
/// Calls for one client.
const MAX_PER_CLIENT: usize = 256;

/// The places of one webhook.
#[derive(Default)]
pub struct CallPlaces(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: usize,
    /// By the digest of the name.
    by_client: HashMap<Key, usize>,
}

/// A taken place.
pub struct CallPlace {
    places: Arc<CallPlaces>,
    client: Key,
}

impl CallPlaces {
    /// Takes a place for a client; `None` if there is none left for it.
    pub fn take(self: &Arc<Self>, client: Key, is_system: bool) -> Option<CallPlace> {
        let mut taken = self.0.lock();
        let limit = if is_system { MAX_CALLS } else { MAX_OTHERS };
        let own = taken.by_client.get(&client).copied().unwrap_or_default();
        if taken.all >= limit || own >= MAX_PER_CLIENT {
            return None;
        }
        taken.all += 1;
        taken.by_client.insert(client, own + 1);
        Some(CallPlace {
            places: self.clone(),
            client,
        })
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        taken.all -= 1;
        if let Some(own) = taken.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_places_to_others_and_to_the_system() {
        let places = Arc::new(CallPlaces::default());
        let mut held = Vec::new();
        for client in [[1; 32], [2; 32], [3; 32]] {
            for _ in 0..MAX_PER_CLIENT {
                held.extend(places.take(client, false));
            }
            assert!(places.take(client, false).is_none(), "{client:?}");
        }
        assert_eq!(held.len(), MAX_OTHERS);
        assert!(places.take([4; 32], false).is_none());
        held.extend(places.take([5; 32], true));
        assert_eq!(held.len(), MAX_OTHERS + 1);
        drop(held);
        assert!(places.take([4; 32], false).is_some());
        let taken = places.0.lock();
        assert!(taken.all == 0 && taken.by_client.is_empty());
    }
}
