//! Counts of isolated pods of this node that exist, which decide about addresses that no known pod
//! has.
//!
//! The kubelet starts a pod's network before the API has its address, also when it replaces the
//! sandbox of a pod that has an address already. So a packet with an unknown address may be that of
//! an isolated pod, and is dropped as long as the node has one.

use net_nft::Family;

use crate::base_chains::{UNKNOWN_DESTINATIONS, UNKNOWN_SOURCES};
use crate::direction::Direction;
use crate::tables::RuleTables;

/// The number of isolated pods, by [`Direction::index`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IsolationCounts([usize; 2]);

impl IsolationCounts {
    pub(crate) fn add_pod(&mut self, isolated: [bool; 2]) {
        for (count, isolated) in self.0.iter_mut().zip(isolated) {
            *count += usize::from(isolated);
        }
    }

    pub(crate) fn remove_pod(&mut self, isolated: [bool; 2]) {
        for (count, isolated) in self.0.iter_mut().zip(isolated) {
            *count = count.saturating_sub(usize::from(isolated));
        }
    }

    /// Writes the chains of unknown addresses.
    pub(crate) fn write_chains(self, families: &[Family], tables: &mut RuleTables) {
        for (name, direction) in [
            (UNKNOWN_DESTINATIONS, Direction::Ingress),
            (UNKNOWN_SOURCES, Direction::Egress),
        ] {
            let rules = match self.0[direction.index()] {
                0 => Vec::new(),
                _ => vec!["drop".to_owned()],
            };
            for family in families {
                tables.set_chain(*family, name, rules.clone());
            }
        }
    }
}
