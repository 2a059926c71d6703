//! Counts of isolated pods of this node, which decide about addresses that no known pod has.
//!
//! The kubelet starts a pod's network before the API has its address. Until then the address is
//! unknown. If a pod without an address is isolated, an unknown source may be that pod.

use net_nft::Family;

use crate::base_chains::{LINK_LOCAL_SOURCES, UNKNOWN_DESTINATIONS, UNKNOWN_SOURCES};
use crate::direction::Direction;
use crate::tables::RuleTables;

/// The counts, by [`Direction::index`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IsolationCounts {
    isolated: [usize; 2],
    isolated_without_address: [usize; 2],
}

impl IsolationCounts {
    pub(crate) fn add_pod(&mut self, isolated: [bool; 2], has_address: bool) {
        self.change(isolated, has_address, |count| *count += 1);
    }

    pub(crate) fn remove_pod(&mut self, isolated: [bool; 2], has_address: bool) {
        self.change(isolated, has_address, |count| {
            *count = count.saturating_sub(1);
        });
    }

    fn change(&mut self, isolated: [bool; 2], has_address: bool, change: impl Fn(&mut usize)) {
        for direction in Direction::BOTH.map(Direction::index) {
            if isolated[direction] {
                change(&mut self.isolated[direction]);
                if !has_address {
                    change(&mut self.isolated_without_address[direction]);
                }
            }
        }
    }

    /// Writes the chains of unknown addresses.
    pub(crate) fn write_chains(self, families: &[Family], tables: &mut RuleTables) {
        let (ingress, egress) = (Direction::Ingress.index(), Direction::Egress.index());
        let chains = [
            // Nothing has to reach an address before the API has it, so this may be strict.
            (UNKNOWN_DESTINATIONS, self.isolated[ingress] > 0),
            // A starting pod that no policy selects connects from an unknown address, too. It waits
            // only while an isolated pod starts on the same node.
            (UNKNOWN_SOURCES, self.isolated_without_address[egress] > 0),
            (LINK_LOCAL_SOURCES, self.isolated[egress] > 0),
        ];
        for (name, drops) in chains {
            let rules = if drops {
                vec!["drop".to_owned()]
            } else {
                Vec::new()
            };
            for family in families {
                tables.set_chain(*family, name, rules.clone());
            }
        }
    }
}
