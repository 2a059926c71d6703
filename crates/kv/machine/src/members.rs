//! Who is, and who was, a member.

use crate::refusal::Refusal;
use proto_etcd::etcdserverpb::Member;
use std::collections::{BTreeMap, BTreeSet};

/// A member to be added.
pub type NewMember = Member;

/// The members as committed.
#[derive(Clone, Debug, Default)]
pub struct Members {
    present: BTreeMap<u64, Member>,
    removed: BTreeSet<u64>,
}

impl Members {
    /// Puts a member back that was stored.
    pub fn restore(&mut self, member: Member) {
        self.present.insert(member.id, member);
    }

    /// Puts a removed member back that was stored.
    pub fn restore_removed(&mut self, id: u64) {
        self.removed.insert(id);
    }

    /// The members, by identifier.
    pub fn list(&self) -> Vec<Member> {
        self.present.values().cloned().collect()
    }

    /// Identifiers of the members that were removed.
    pub fn removed(&self) -> impl Iterator<Item = u64> + '_ {
        self.removed.iter().copied()
    }

    /// Whether it was a member once and must not come back.
    pub fn was_removed(&self, id: u64) -> bool {
        self.removed.contains(&id)
    }

    /// One member.
    pub fn get(&self, id: u64) -> Option<&Member> {
        self.present.get(&id)
    }

    /// Whether nobody is known yet.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Whether a member may be added.
    pub fn check_add(&self, member: &Member, max_learners: usize) -> Result<(), Refusal> {
        if self.present.contains_key(&member.id) || self.removed.contains(&member.id) {
            return Err(Refusal::MemberExists);
        }
        if self.url_taken(&member.peer_ur_ls, member.id) {
            return Err(Refusal::PeerUrlExists);
        }
        let learners = self.present.values().filter(|member| member.is_learner).count();
        if member.is_learner && learners >= max_learners {
            return Err(Refusal::TooManyLearners);
        }
        Ok(())
    }

    fn url_taken(&self, urls: &[String], except: u64) -> bool {
        let others = self.present.values().filter(|member| member.id != except);
        others.flat_map(|member| &member.peer_ur_ls).any(|taken| urls.contains(taken))
    }

    pub(crate) fn add(&mut self, member: Member, max_learners: usize) -> Result<(), Refusal> {
        self.check_add(&member, max_learners)?;
        self.present.insert(member.id, member);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: u64) -> Result<(), Refusal> {
        self.present.remove(&id).ok_or(Refusal::MemberNotFound)?;
        self.removed.insert(id);
        Ok(())
    }

    /// Removes everybody but one member, who votes from now on; whom it removed.
    pub(crate) fn keep_only(&mut self, member: &Member) -> Vec<u64> {
        let others: Vec<u64> = self.present.keys().copied().filter(|id| *id != member.id).collect();
        self.removed.extend(&others);
        self.removed.remove(&member.id);
        let kept = self.present.remove(&member.id).unwrap_or_else(|| member.clone());
        self.present = BTreeMap::from([(member.id, Member { is_learner: false, ..kept })]);
        others
    }

    pub(crate) fn update(&mut self, id: u64, peer_urls: &[String]) -> Result<(), Refusal> {
        if self.url_taken(peer_urls, id) {
            return Err(Refusal::PeerUrlExists);
        }
        let member = self.present.get_mut(&id).ok_or(Refusal::MemberNotFound)?;
        member.peer_ur_ls = peer_urls.to_vec();
        Ok(())
    }

    pub(crate) fn promote(&mut self, id: u64) -> Result<(), Refusal> {
        let member = self.present.get_mut(&id).ok_or(Refusal::MemberNotFound)?;
        if !member.is_learner {
            return Err(Refusal::NotLearner);
        }
        member.is_learner = false;
        Ok(())
    }

    pub(crate) fn publish(&mut self, id: u64, name: &str, client_urls: &[String]) -> Result<(), Refusal> {
        let member = self.present.get_mut(&id).ok_or(Refusal::MemberNotFound)?;
        member.name = name.to_owned();
        member.client_ur_ls = client_urls.to_vec();
        Ok(())
    }
}
