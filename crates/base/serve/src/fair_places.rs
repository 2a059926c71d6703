//! A limited number of places, of which no user can take all.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// A limited number of places. A user may have as many as are still free: one alone gets half of
/// all, two get a third each, so some remain for others. Clones share the places.
#[derive(Debug)]
pub struct FairPlaces<K> {
    total: usize,
    used: Arc<Mutex<Used<K>>>,
}

impl<K> Clone for FairPlaces<K> {
    fn clone(&self) -> Self {
        Self {
            total: self.total,
            used: self.used.clone(),
        }
    }
}

#[derive(Debug)]
struct Used<K> {
    by_user: HashMap<K, usize>,
    total: usize,
}

/// A place in use. Dropping it releases the place.
#[derive(Debug)]
pub struct Place<K: Eq + Hash> {
    user: K,
    used: Arc<Mutex<Used<K>>>,
}

impl<K: Clone + Eq + Hash> FairPlaces<K> {
    /// Creates `total` free places.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let used = Used {
            by_user: HashMap::new(),
            total: 0,
        };
        Self {
            total,
            used: Arc::new(Mutex::new(used)),
        }
    }

    /// Takes a place; `None` if the user has as many as are free.
    #[must_use]
    pub fn take(&self, user: K) -> Option<Place<K>> {
        let mut used = self.used.lock();
        let free = self.total.saturating_sub(used.total);
        let own = used.by_user.get(&user).copied().unwrap_or_default();
        if own >= free {
            return None;
        }
        used.by_user.insert(user.clone(), own + 1);
        used.total += 1;
        drop(used);
        Some(Place {
            user,
            used: self.used.clone(),
        })
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut used = self.used.lock();
        used.total -= 1;
        if let Some(own) = used.by_user.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                used.by_user.remove(&self.user);
            }
        }
    }
}

/// Returns the address by which a client is counted: an IPv4 address, or an IPv6 network of /64,
/// all of which one client may have.
#[must_use]
pub fn identify_client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fill(places: &FairPlaces<char>, user: char) -> Vec<Place<char>> {
        std::iter::from_fn(|| places.take(user)).collect()
    }

    #[test]
    fn users_leave_places_for_others() {
        let places = FairPlaces::new(100);
        let first = fill(&places, 'a');
        assert_eq!(first.len(), 50);
        let second = fill(&places, 'b');
        assert_eq!(second.len(), 25);
        assert!(places.take('c').is_some());
        assert!(places.take('a').is_none());
        drop(first);
        assert_eq!(fill(&places, 'c').len(), 38);
        drop(second);
        let used = places.used.lock();
        assert_eq!((used.total, used.by_user.len()), (0, 0));
    }

    #[test]
    fn client_is_an_address_of_ipv4_or_a_network_of_ipv6() {
        for (address, want) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let found = identify_client(address.parse().unwrap());
            assert_eq!(found, want.parse::<IpAddr>().unwrap(), "{address}");
        }
    }
}
