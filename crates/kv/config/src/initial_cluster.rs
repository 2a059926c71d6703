//! `--initial-cluster`: members of a new cluster. IDs are derived like etcd's from peer URLs and
//! token.

use crate::urls;
use anyhow::Result;
use proto_etcd::etcdserverpb::Member;
use sha1::{Digest, Sha1};
use std::collections::BTreeSet;

/// Returns the ID of a member.
pub fn member_id(peer_urls: &[String], salt: &str) -> u64 {
    let mut sorted = peer_urls.to_vec();
    sorted.sort();
    first_bytes(Sha1::new().chain_update(sorted.concat()).chain_update(salt))
}

/// Returns the ID of a cluster.
pub fn cluster_id(members: &BTreeSet<u64>) -> u64 {
    first_bytes(
        members
            .iter()
            .fold(Sha1::new(), |hash, id| hash.chain_update(id.to_be_bytes())),
    )
}

fn first_bytes(hash: Sha1) -> u64 {
    hash.finalize()
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the members that the flags name.
pub fn initial_members(initial_cluster: &str, token: &str) -> Result<Vec<Member>> {
    let listed = urls::parse_cluster(initial_cluster)?;
    let members = listed.into_iter().map(|(name, peer_ur_ls)| {
        let id = member_id(&peer_ur_ls, token);
        Member {
            id,
            name,
            peer_ur_ls,
            ..Member::default()
        }
    });
    Ok(members.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn identifiers_are_those_that_etcd_gives() {
        // IDs of an etcd with default flags: member 8e9e05c52164694d of cluster cdf818194e3a8c32.
        let members = initial_members("default=http://localhost:2380", "etcd-cluster").unwrap();
        assert_eq!(members[0].id, 0x8e9e_05c5_2164_694d);
        assert_eq!(
            cluster_id(&BTreeSet::from([members[0].id])),
            0xcdf8_1819_4e3a_8c32
        );
    }
}
