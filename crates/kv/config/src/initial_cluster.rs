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
    // As etcd: sorted, so that the order of a member's URLs does not change its ID.
    sorted.sort();
    // etcd's derivation: members compute the same IDs from the same flags, without talking to each
    // other.
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
        // The token separates clusters with equal URLs, so that a member of an earlier one is not
        // taken for a new one.
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

    #[test]
    fn id_depends_on_urls_and_token_but_not_on_the_order_of_urls() {
        let id = |cluster: &str, token: &str| initial_members(cluster, token).unwrap()[0].id;
        let two = id("a=http://h:1,a=http://h:2", "t");
        assert_eq!(id("a=http://h:2,a=http://h:1", "t"), two);
        assert_ne!(id("a=http://h:1", "t"), two);
        assert_ne!(id("a=http://h:1,a=http://h:2", "u"), two);
        assert_eq!(
            id("b=http://h:2,b=http://h:1", "t"),
            two,
            "the name is not part of it"
        );
    }

    #[test]
    fn cluster_id_does_not_depend_on_the_order_of_the_list() {
        let ids = |list: &str| -> BTreeSet<u64> {
            let members = initial_members(list, "t").unwrap();
            members.iter().map(|member| member.id).collect()
        };
        let both = cluster_id(&ids("a=http://h:1,b=http://h:2"));
        assert_eq!(cluster_id(&ids("b=http://h:2,a=http://h:1")), both);
        assert_ne!(cluster_id(&ids("a=http://h:1")), both);
    }

    #[test]
    fn list_without_names_or_urls_is_rejected() {
        for list in ["http://h:1", "a", "a=", "a=h:1", "a=ftp://h:1"] {
            let rejected = initial_members(list, "t").unwrap_err();
            assert!(
                format!("{rejected:#}").contains("--initial-cluster"),
                "{list}: {rejected:#}"
            );
        }
    }
}
