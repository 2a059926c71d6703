//! Limits of what clients use at one time, with a fair share for each.
//!
//! Without shares, a few clients that use as much as one client may would hold all places, and
//! every other one would be rejected. So a client that uses less than others takes a place from the
//! one that uses the most. Each admission ends one use at most, in logarithmic time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The part of the total that may be ended, but not dropped yet: one of four. Ended uses still have
/// their sockets, and a burst of packets must not open more of them than the process may have.
const ENDING_PART: usize = 4;

/// Maximum numbers of something that clients use at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub total: usize,
    pub per_client: usize,
}

/// Counts of what clients use.
#[derive(Debug)]
pub(crate) struct Slots {
    limit: Limit,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    /// The uses of each client in the order of their admission.
    by_client: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
    /// Each client with its number of uses.
    by_count: BTreeSet<(usize, IpAddr)>,
    total: usize,
    /// Number of ended uses whose slots are not dropped yet.
    ending: usize,
    /// Number of admissions.
    admitted: u64,
}

/// One use, counted until it is ended or dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    used: Arc<Mutex<Used>>,
    client: IpAddr,
    number: u64,
    ended: CancellationToken,
}

/// Returns the address that a client is counted by. A process in the node's network can send from
/// each of 16 million loopback addresses.
pub(crate) fn identify_client(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        loopback if loopback.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        other => other,
    }
}

impl Slots {
    /// Creates counts of zero.
    pub(crate) fn new(limit: Limit) -> Self {
        Self {
            limit,
            used: Arc::default(),
        }
    }

    /// Counts one more use of a client; None if that would exceed a limit. If the total is reached,
    /// the longest use of the client with the most is ended. That client must still use as much as
    /// this one afterwards.
    pub(crate) fn admit(&self, client: IpAddr) -> Option<Slot> {
        let client = identify_client(client);
        let mut used = self.used.lock();
        let own = used.by_client.get(&client).map_or(0, BTreeMap::len);
        if own >= self.limit.per_client {
            return None;
        }
        let mut longest = None;
        if used.total >= self.limit.total {
            if used.ending >= self.limit.total / ENDING_PART {
                return None;
            }
            longest = Some(used.take_longest(own)?);
        }
        let ended = CancellationToken::new();
        let number = used.add(client, ended.clone());
        drop(used);
        // Without the lock: it wakes a task, which takes the lock.
        if let Some(longest) = longest {
            longest.cancel();
        }
        Some(Slot {
            used: self.used.clone(),
            client,
            number,
            ended,
        })
    }

    /// Returns the number of uses.
    #[cfg(test)]
    pub(crate) fn total(&self) -> usize {
        self.used.lock().total
    }
}

impl Used {
    fn add(&mut self, client: IpAddr, ended: CancellationToken) -> u64 {
        let number = self.admitted;
        self.admitted = number.wrapping_add(1);
        let own = self.by_client.entry(client).or_default();
        let before = own.len();
        own.insert(number, ended);
        let after = own.len();
        self.move_client(client, before, after);
        number
    }

    /// Removes a use; false if it was removed before.
    fn remove(&mut self, client: IpAddr, number: u64) -> bool {
        let Some(own) = self.by_client.get_mut(&client) else {
            return false;
        };
        let before = own.len();
        let removed = own.remove(&number).is_some();
        let after = own.len();
        if after == 0 {
            self.by_client.remove(&client);
        }
        self.move_client(client, before, after);
        removed
    }

    /// Removes the longest use of the client with the most. None if that would leave it less than
    /// `own` and one more.
    fn take_longest(&mut self, own: usize) -> Option<CancellationToken> {
        let (most, client) = self.by_count.last().copied()?;
        if own + 1 >= most {
            return None;
        }
        let longest = self.by_client.get(&client)?.first_key_value();
        let (number, ended) = longest.map(|(number, ended)| (*number, ended.clone()))?;
        self.remove(client, number);
        self.ending += 1;
        Some(ended)
    }

    fn move_client(&mut self, client: IpAddr, before: usize, after: usize) {
        self.by_count.remove(&(before, client));
        if after > 0 {
            self.by_count.insert((after, client));
        }
        self.total = (self.total + after).saturating_sub(before);
    }
}

impl Slot {
    /// Waits until another client has taken the place. The holder must then drop the slot.
    pub(crate) async fn wait_until_ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut used = self.used.lock();
        if !used.remove(self.client, self.number) {
            used.ending = used.ending.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn fill(slots: &Slots, client: &str) -> Vec<Slot> {
        std::iter::from_fn(|| slots.admit(ip(client))).collect()
    }

    fn ended(slots: &[Slot]) -> Vec<usize> {
        let ended = |(index, slot): (usize, &Slot)| slot.ended.is_cancelled().then_some(index);
        slots.iter().enumerate().filter_map(ended).collect()
    }

    #[test]
    fn slots_are_limited_for_each_client_and_in_all() {
        let limit = Limit {
            total: 64,
            per_client: 16,
        };
        let slots = Slots::new(limit);
        let of_one = fill(&slots, "10.0.0.1");
        assert_eq!(of_one.len(), limit.per_client);
        assert!(
            slots.admit(ip("::ffff:10.0.0.1")).is_none(),
            "the same client by another spelling"
        );
        let others: Vec<_> = (0..=255)
            .filter_map(|n| slots.admit(IpAddr::from([10, 1, 0, n])))
            .collect();
        let ended = ended(&of_one).len() + ended(&others).len();
        assert_eq!(of_one.len() + others.len() - ended, limit.total);
        drop(of_one);
        assert!(slots.admit(ip("10.0.0.1")).is_some());
        drop(others);
        let used = slots.used.lock();
        assert_eq!((used.total, used.ending), (0, 0));
        assert!(used.by_client.is_empty() && used.by_count.is_empty());
    }

    #[test]
    fn loopback_addresses_are_one_client() {
        let slots = Slots::new(Limit {
            total: 64,
            per_client: 4,
        });
        let _own = fill(&slots, "127.0.0.1");
        for (client, expect) in [
            ("127.0.0.2", false),
            ("127.255.255.254", false),
            ("::1", false),
            ("::ffff:127.0.0.9", false),
            ("128.0.0.1", true),
            ("10.0.0.1", true),
        ] {
            assert_eq!(slots.admit(ip(client)).is_some(), expect, "{client}");
        }
    }

    #[test]
    fn longest_use_of_the_client_with_the_most_is_ended_for_one_with_less() {
        // Uses of clients 10.0.0.0, 10.0.0.1, ... that reach the total. The last client asks for
        // one more, and the expected client loses its longest use. None: the last one is rejected.
        for (case, uses, expect) in [
            ("nothing of one", vec![8, 0], Some(0)),
            ("nothing of two", vec![2, 6, 0], Some(1)),
            ("less by two", vec![5, 3], Some(0)),
            ("less by one", vec![3, 3, 2], None),
            ("equal", vec![4, 4], None),
            ("the most", vec![3, 5], None),
            ("one each", vec![1, 1, 1, 1, 1, 1, 1, 1, 0], None),
        ] {
            let slots = Slots::new(Limit {
                total: 8,
                per_client: 8,
            });
            let client = |index: usize| IpAddr::from([10, 0, 0, u8::try_from(index).unwrap()]);
            let admit = |(index, count): (usize, &usize)| -> Vec<Slot> {
                (0..*count)
                    .filter_map(|_| slots.admit(client(index)))
                    .collect()
            };
            let held: Vec<Vec<Slot>> = uses.iter().enumerate().map(admit).collect();
            assert_eq!(slots.total(), 8, "{case}");
            let more = slots.admit(client(uses.len() - 1));
            assert_eq!(more.is_some(), expect.is_some(), "{case}");
            for (index, held) in held.iter().enumerate() {
                let first: &[usize] = if expect == Some(index) { &[0] } else { &[] };
                assert_eq!(ended(held), first, "{case}: client {index}");
            }
            assert_eq!(slots.total(), 8, "{case}");
            drop((held, more));
            assert_eq!(slots.total(), 0, "{case}");
        }
    }

    #[test]
    fn ended_uses_that_are_not_dropped_are_limited() {
        let slots = Slots::new(Limit {
            total: 16,
            per_client: 16,
        });
        let mut many = fill(&slots, "10.0.0.1");
        let mut few = fill(&slots, "10.0.0.2");
        assert_eq!((few.len(), ended(&many)), (4, vec![0, 1, 2, 3]));
        many.drain(..4);
        few.extend(fill(&slots, "10.0.0.2"));
        assert_eq!(few.len(), 8, "equal shares");
        assert_eq!(slots.total(), 16);
    }

    #[tokio::test]
    async fn holder_of_a_slot_is_woken_when_it_ends() {
        let slots = Slots::new(Limit {
            total: 2,
            per_client: 2,
        });
        let held = fill(&slots, "10.0.0.1");
        // The part of a small total that may be ending is none.
        assert!(slots.admit(ip("10.0.0.2")).is_none() && ended(&held).is_empty());
        let slots = Slots::new(Limit {
            total: 4,
            per_client: 4,
        });
        let held = fill(&slots, "10.0.0.1");
        let _other = slots.admit(ip("10.0.0.2")).unwrap();
        let wait = std::time::Duration::from_secs(60);
        tokio::time::timeout(wait, held[0].wait_until_ended())
            .await
            .unwrap();
    }
}
