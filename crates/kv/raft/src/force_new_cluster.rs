//! Force new cluster: rewrites the log so that one surviving member becomes a single-member
//! cluster.
//!
//! Every entry in the log counts as committed, because no other member is left to contradict it.
//! The vote has a term in which no member has voted. It is not marked as won, so it has no effect
//! if the member stops before the entries are on disk.

use crate::codec;
use crate::types::{Commands, Entry, Vote};
use bytes::Bytes;
use kv_wal::Contents;
use openraft::{EmptyNode, EntryPayload};
use std::collections::{BTreeMap, BTreeSet};

/// Records to append to a log: the vote first, then the entries, all of them or none.
pub struct NewClusterRecords {
    /// The encoded vote of the new term.
    pub vote: Bytes,
    /// Indexes and encoded entries: a membership change, then commands.
    pub entries: Vec<(u64, Bytes)>,
}

/// Returns the records that make `member` the only voter and then apply `commands`. Returns `None`
/// if the log is empty or its last entry can't be decoded.
pub fn force_new_cluster(
    contents: &Contents,
    member: u64,
    commands: Bytes,
) -> Option<NewClusterRecords> {
    let last = match contents.entries.back() {
        Some((index, entry)) => codec::entry_from_bytes(*index, entry)?.log_id,
        None => codec::position_from_bytes(&contents.purged.as_ref()?.1)?,
    };
    let voted = match &contents.vote {
        Some(vote) => codec::vote_from_bytes(vote)?.leader_id.term,
        None => 0,
    };
    // No other member can have voted in this term, not even one that was partitioned away.
    let term = voted.max(last.leader_id.term) + 1;
    let membership = openraft::Membership::new(
        vec![BTreeSet::from([member])],
        BTreeMap::from([(member, EmptyNode {})]),
    );
    let payloads = [
        EntryPayload::Membership(membership),
        EntryPayload::Normal(Commands(commands)),
    ];
    let entries = (last.index + 1..).zip(payloads).map(|(index, payload)| {
        (
            index,
            codec::entry_to_bytes(&Entry {
                log_id: codec::log_id(term, member, index),
                payload,
            }),
        )
    });
    Some(NewClusterRecords {
        vote: codec::vote_to_bytes(&Vote::new(term, member)),
        entries: entries.collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::VecDeque;

    fn entry(term: u64, index: u64) -> (u64, Bytes) {
        let entry = Entry {
            log_id: codec::log_id(term, 2, index),
            payload: EntryPayload::Blank,
        };
        (index, codec::entry_to_bytes(&entry))
    }

    fn check(contents: &Contents, term: u64, index: u64) {
        let NewClusterRecords { vote, entries } =
            force_new_cluster(contents, 7, Bytes::from_static(b"commands")).unwrap();
        assert_eq!(codec::vote_from_bytes(&vote), Some(Vote::new(term, 7)));
        let entries: Vec<_> = entries
            .iter()
            .map(|(at, entry)| codec::entry_from_bytes(*at, entry).unwrap())
            .collect();
        assert_eq!(
            entries.iter().map(|e| e.log_id).collect::<Vec<_>>(),
            [
                codec::log_id(term, 7, index),
                codec::log_id(term, 7, index + 1)
            ]
        );
        let EntryPayload::Membership(membership) = &entries[0].payload else {
            panic!("no membership comes first")
        };
        assert_eq!(membership.voter_ids().collect::<Vec<_>>(), [7]);
        assert_eq!(
            entries[1].payload,
            EntryPayload::Normal(Commands(Bytes::from_static(b"commands")))
        );
    }

    #[test]
    fn new_cluster_records_follow_the_log_in_a_new_term() {
        let mut contents = Contents {
            entries: VecDeque::from([entry(3, 8), entry(4, 9)]),
            ..Contents::default()
        };
        check(&contents, 5, 10);
        contents.vote = Some(codec::vote_to_bytes(&Vote::new_committed(6, 2)));
        check(&contents, 7, 10);
        contents.entries.clear();
        contents.purged = Some((9, codec::position_to_bytes(&codec::log_id(4, 2, 9))));
        check(&contents, 7, 10);
    }

    #[test]
    fn empty_log_can_not_become_a_new_cluster() {
        assert!(force_new_cluster(&Contents::default(), 7, Bytes::new()).is_none());
    }

    #[test]
    fn log_whose_end_can_not_be_decoded_is_left_alone() {
        let nonsense = Bytes::from_static(b"nonsense");
        let last = Contents {
            entries: VecDeque::from([entry(3, 8), (9, nonsense.clone())]),
            ..Contents::default()
        };
        let vote = Contents {
            entries: VecDeque::from([entry(3, 8)]),
            vote: Some(nonsense.clone()),
            ..Contents::default()
        };
        let purged = Contents {
            purged: Some((9, nonsense)),
            ..Contents::default()
        };
        for contents in [last, vote, purged] {
            let records = force_new_cluster(&contents, 7, Bytes::new());
            assert!(records.is_none(), "{contents:?}");
        }
    }
}
