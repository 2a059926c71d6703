//! Current and removed members.

use crate::error::EtcdError;
use proto_etcd::etcdserverpb::Member;
use std::collections::{BTreeMap, BTreeSet};

/// A member to add.
pub type NewMember = Member;

/// The committed members.
#[derive(Clone, Debug, Default)]
pub struct Members {
    present: BTreeMap<u64, Member>,
    removed: BTreeSet<u64>,
}

impl Members {
    /// Restores a stored member.
    pub fn restore(&mut self, member: Member) {
        self.present.insert(member.id, member);
    }

    /// Restores the ID of a stored removed member.
    pub fn restore_removed(&mut self, id: u64) {
        self.removed.insert(id);
    }

    /// Returns the members, sorted by ID.
    pub fn list(&self) -> Vec<Member> {
        self.present.values().cloned().collect()
    }

    /// Returns the IDs of removed members.
    pub fn removed_ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.removed.iter().copied()
    }

    /// Returns whether the member was removed. A removed ID can't be added again.
    pub fn was_removed(&self, id: u64) -> bool {
        self.removed.contains(&id)
    }

    /// Returns a member.
    pub fn get(&self, id: u64) -> Option<&Member> {
        self.present.get(&id)
    }

    /// Returns whether there are no members yet.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Checks whether a member may be added.
    pub fn check_add(&self, member: &Member, max_learners: usize) -> Result<(), EtcdError> {
        if self.present.contains_key(&member.id) || self.removed.contains(&member.id) {
            return Err(EtcdError::MemberExists);
        }
        // Two members behind one URL would receive each other's votes and entries.
        if self.url_taken(&member.peer_ur_ls, member.id) {
            return Err(EtcdError::PeerUrlExists);
        }
        // Learners cost the leader bandwidth without adding to the quorum, so etcd limits their
        // number.
        let learners = self
            .present
            .values()
            .filter(|member| member.is_learner)
            .count();
        if member.is_learner && learners >= max_learners {
            return Err(EtcdError::TooManyLearners);
        }
        Ok(())
    }

    fn url_taken(&self, urls: &[String], except: u64) -> bool {
        let others = self.present.values().filter(|member| member.id != except);
        others
            .flat_map(|member| &member.peer_ur_ls)
            .any(|taken| urls.contains(taken))
    }

    pub(crate) fn add(&mut self, member: Member, max_learners: usize) -> Result<(), EtcdError> {
        self.check_add(&member, max_learners)?;
        self.present.insert(member.id, member);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: u64) -> Result<(), EtcdError> {
        self.present.remove(&id).ok_or(EtcdError::MemberNotFound)?;
        // For ever: a member with this ID may still run with the former data and claim to belong
        // here.
        self.removed.insert(id);
        Ok(())
    }

    /// Removes all members but one and makes that one a voter. Returns the removed IDs.
    pub(crate) fn keep_only(&mut self, member: &Member) -> Vec<u64> {
        let others: Vec<u64> = self
            .present
            .keys()
            .copied()
            .filter(|id| *id != member.id)
            .collect();
        self.removed.extend(&others);
        // The survivor may be a member that the lost majority had removed.
        self.removed.remove(&member.id);
        let kept = self
            .present
            .remove(&member.id)
            .unwrap_or_else(|| member.clone());
        self.present = BTreeMap::from([(
            member.id,
            Member {
                // A single learner could never elect a leader.
                is_learner: false,
                ..kept
            },
        )]);
        others
    }

    pub(crate) fn update(&mut self, id: u64, peer_urls: &[String]) -> Result<(), EtcdError> {
        if self.url_taken(peer_urls, id) {
            return Err(EtcdError::PeerUrlExists);
        }
        let member = self.present.get_mut(&id).ok_or(EtcdError::MemberNotFound)?;
        member.peer_ur_ls = peer_urls.to_vec();
        Ok(())
    }

    pub(crate) fn promote(&mut self, id: u64) -> Result<(), EtcdError> {
        let member = self.present.get_mut(&id).ok_or(EtcdError::MemberNotFound)?;
        // An error as in etcd: an operator that promotes a voter has the wrong ID.
        if !member.is_learner {
            return Err(EtcdError::NotLearner);
        }
        member.is_learner = false;
        Ok(())
    }

    pub(crate) fn publish(
        &mut self,
        id: u64,
        name: &str,
        client_urls: &[String],
    ) -> Result<(), EtcdError> {
        let member = self.present.get_mut(&id).ok_or(EtcdError::MemberNotFound)?;
        member.name = name.to_owned();
        member.client_ur_ls = client_urls.to_vec();
        Ok(())
    }
}
