//! Encodes entries, votes and log positions as bytes, for the log and the state machine.

use crate::pb;
use crate::types::{Commands, Entry, LogId, Membership, Vote};
use bytes::{BufMut, Bytes, BytesMut};
use openraft::{CommittedLeaderId, EmptyNode, EntryPayload};
use std::collections::{BTreeMap, BTreeSet};

const BLANK: u8 = 0;
const COMMANDS: u8 = 1;
const MEMBERSHIP: u8 = 2;
const HEAD: usize = 17;

/// Encodes an entry without its index.
pub(crate) fn entry_to_bytes(entry: &Entry) -> Bytes {
    let (kind, payload) = payload_parts(&entry.payload);
    let mut bytes = BytesMut::with_capacity(HEAD + payload.len());
    bytes.put_u8(kind);
    bytes.put_u64(entry.log_id.leader_id.term);
    bytes.put_u64(entry.log_id.leader_id.node_id);
    bytes.put_slice(&payload);
    bytes.freeze()
}

/// Decodes the entry at an index. Returns `None` if the bytes are not an entry.
pub(crate) fn entry_from_bytes(index: u64, bytes: &Bytes) -> Option<Entry> {
    let kind = *bytes.first()?;
    let term = u64::from_be_bytes(bytes.get(1..9)?.try_into().ok()?);
    let node = u64::from_be_bytes(bytes.get(9..HEAD)?.try_into().ok()?);
    let payload = payload_from_parts(kind, bytes.slice(HEAD..))?;
    Some(Entry {
        log_id: log_id(term, node, index),
        payload,
    })
}

fn payload_parts(payload: &EntryPayload<crate::types::Types>) -> (u8, Bytes) {
    match payload {
        EntryPayload::Blank => (BLANK, Bytes::new()),
        EntryPayload::Normal(commands) => (COMMANDS, commands.0.clone()),
        // Serialising sets and maps of numbers can't fail.
        EntryPayload::Membership(membership) => (
            MEMBERSHIP,
            // JSON, because memberships are small and rare.
            serde_json::to_vec(membership).unwrap_or_default().into(),
        ),
    }
}

fn payload_from_parts(kind: u8, payload: Bytes) -> Option<EntryPayload<crate::types::Types>> {
    Some(match kind {
        BLANK => EntryPayload::Blank,
        COMMANDS => EntryPayload::Normal(Commands(payload)),
        MEMBERSHIP => EntryPayload::Membership(serde_json::from_slice(&payload).ok()?),
        _ => return None,
    })
}

pub(crate) fn log_id(term: u64, node: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, node), index)
}

/// Encodes a log position, index first.
pub(crate) fn position_to_bytes(id: &LogId) -> Bytes {
    let mut bytes = BytesMut::with_capacity(24);
    bytes.put_u64(id.index);
    bytes.put_u64(id.leader_id.term);
    bytes.put_u64(id.leader_id.node_id);
    bytes.freeze()
}

pub(crate) fn position_from_bytes(bytes: &[u8]) -> Option<LogId> {
    let number = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(log_id(number(8)?, number(16)?, number(0)?))
}

pub(crate) fn membership_to_bytes(membership: &Membership) -> Bytes {
    serde_json::to_vec(membership).unwrap_or_default().into()
}

pub(crate) fn membership_from_bytes(bytes: &[u8]) -> Membership {
    serde_json::from_slice(bytes).unwrap_or_default()
}

pub(crate) fn vote_to_bytes(vote: &Vote) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD);
    bytes.put_u64(vote.leader_id.term);
    bytes.put_u64(vote.leader_id.node_id);
    bytes.put_u8(u8::from(vote.committed));
    bytes.freeze()
}

pub(crate) fn vote_from_bytes(bytes: &[u8]) -> Option<Vote> {
    let term = u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
    let node = u64::from_be_bytes(bytes.get(8..16)?.try_into().ok()?);
    let mut vote = Vote::new(term, node);
    vote.committed = bytes.get(16)? == &1;
    Some(vote)
}

impl From<&LogId> for pb::Position {
    fn from(id: &LogId) -> Self {
        pb::Position {
            term: id.leader_id.term,
            node: id.leader_id.node_id,
            index: id.index,
        }
    }
}

impl From<pb::Position> for LogId {
    fn from(position: pb::Position) -> Self {
        log_id(position.term, position.node, position.index)
    }
}

impl From<&Vote> for pb::Vote {
    fn from(vote: &Vote) -> Self {
        pb::Vote {
            term: vote.leader_id.term,
            node: vote.leader_id.node_id,
            committed: vote.committed,
        }
    }
}

impl From<pb::Vote> for Vote {
    fn from(message: pb::Vote) -> Self {
        let mut vote = Vote::new(message.term, message.node);
        vote.committed = message.committed;
        vote
    }
}

impl From<&Entry> for pb::Entry {
    fn from(entry: &Entry) -> Self {
        let (kind, payload) = payload_parts(&entry.payload);
        pb::Entry {
            position: Some((&entry.log_id).into()),
            kind: kind.into(),
            payload,
        }
    }
}

/// Decodes an entry of a peer message. Returns `None` if it is malformed.
pub(crate) fn entry_from_message(entry: pb::Entry) -> Option<Entry> {
    // The kind comes from a peer, so a number that does not fit is malformed and must not wrap.
    let payload = payload_from_parts(u8::try_from(entry.kind).ok()?, entry.payload)?;
    Some(Entry {
        log_id: entry.position?.into(),
        payload,
    })
}

/// Returns the commands of an encoded log entry. The outer `None` means that the bytes are not an
/// entry, the inner one that the entry has no commands.
pub fn decode_commands(index: u64, entry: &Bytes) -> Option<Option<Bytes>> {
    Some(match entry_from_bytes(index, entry)?.payload {
        EntryPayload::Normal(commands) => Some(commands.0),
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    })
}

/// Returns index, position and membership for a state that no log produced: the origin of a
/// restored cluster.
pub fn make_origin(voters: &BTreeSet<u64>) -> (u64, Bytes, Bytes) {
    let id = log_id(1, 0, 1);
    let nodes: BTreeMap<u64, EmptyNode> = voters.iter().map(|id| (*id, EmptyNode {})).collect();
    let membership = openraft::Membership::new(vec![voters.clone()], nodes);
    let stored = Membership::new(Some(id), membership);
    (
        id.index,
        position_to_bytes(&id),
        membership_to_bytes(&stored),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn entries_votes_and_positions_are_decoded_as_encoded() {
        let nodes: BTreeMap<u64, EmptyNode> = (1..4).map(|id| (id, EmptyNode {})).collect();
        let membership = openraft::Membership::new(vec![BTreeSet::from([1, 2])], nodes);
        let payloads = [
            EntryPayload::Blank,
            EntryPayload::Normal(Commands(Bytes::from_static(b"commands"))),
            EntryPayload::Membership(membership.clone()),
        ];
        for payload in payloads {
            let entry = Entry {
                log_id: log_id(3, u64::MAX, 9),
                payload,
            };
            assert_eq!(entry_from_bytes(9, &entry_to_bytes(&entry)).unwrap(), entry);
            assert_eq!(entry_from_message((&entry).into()).unwrap(), entry);
        }
        let id = log_id(3, 2, 1);
        assert_eq!(position_from_bytes(&position_to_bytes(&id)), Some(id));
        let vote = Vote::new_committed(7, 8);
        assert_eq!(vote_from_bytes(&vote_to_bytes(&vote)), Some(vote));
        let stored = Membership::new(Some(id), membership);
        assert_eq!(membership_from_bytes(&membership_to_bytes(&stored)), stored);
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        let entry = entry_to_bytes(&Entry {
            log_id: log_id(3, 2, 1),
            payload: EntryPayload::Blank,
        });
        let mut unknown_kind = entry.to_vec();
        unknown_kind[0] = 9;
        let mut no_membership = entry.to_vec();
        no_membership[0] = MEMBERSHIP;
        for bytes in [
            Vec::new(),
            entry[..HEAD - 1].to_vec(),
            unknown_kind,
            no_membership,
        ] {
            let bytes = Bytes::from(bytes);
            assert!(entry_from_bytes(1, &bytes).is_none(), "{bytes:?}");
            assert!(decode_commands(1, &bytes).is_none(), "{bytes:?}");
        }
        assert!(position_from_bytes(&[0; 23]).is_none());
        assert!(vote_from_bytes(&[0; 16]).is_none());
        assert_eq!(membership_from_bytes(b"nonsense"), Membership::default());
    }

    #[test]
    fn message_without_position_or_with_an_unknown_kind_is_rejected() {
        let entry = Entry {
            log_id: log_id(3, 2, 1),
            payload: EntryPayload::Blank,
        };
        let message = pb::Entry::from(&entry);
        for malformed in [
            pb::Entry {
                position: None,
                ..message.clone()
            },
            pb::Entry {
                kind: 9,
                ..message.clone()
            },
            pb::Entry {
                kind: 256,
                ..message.clone()
            },
        ] {
            let shown = format!("{malformed:?}");
            assert!(entry_from_message(malformed).is_none(), "{shown}");
        }
        assert_eq!(entry_from_message(message), Some(entry));
    }

    #[test]
    fn only_command_entries_have_commands() {
        let nodes = BTreeMap::from([(1, EmptyNode {})]);
        let membership = openraft::Membership::new(vec![BTreeSet::from([1])], nodes);
        let commands = Bytes::from_static(b"commands");
        for (payload, expect) in [
            (EntryPayload::Blank, None),
            (EntryPayload::Membership(membership), None),
            (
                EntryPayload::Normal(Commands(commands.clone())),
                Some(commands),
            ),
        ] {
            let entry = Entry {
                log_id: log_id(3, 2, 1),
                payload,
            };
            assert_eq!(decode_commands(1, &entry_to_bytes(&entry)), Some(expect));
        }
    }

    #[test]
    fn origin_of_a_restored_cluster_is_the_first_entry() {
        let voters = BTreeSet::from([7, 8]);
        let (index, position, membership) = make_origin(&voters);
        let id = position_from_bytes(&position).unwrap();
        assert_eq!((index, id.index, id.leader_id.term), (1, 1, 1));
        let membership = membership_from_bytes(&membership);
        assert_eq!(membership.voter_ids().collect::<BTreeSet<_>>(), voters);
    }

    #[test]
    fn encoded_positions_sort_like_indexes() {
        let bytes = |term, index| position_to_bytes(&log_id(term, 9, index));
        assert!(bytes(9, 1) < bytes(1, 2) && bytes(1, 255) < bytes(1, 256));
    }
}
