//! Proof required from peers, decided before the peer port is opened.
//!
//! Invariant: a peer port is never open without mutual TLS, unless the operator allows it. A caller
//! that reaches an open peer port can read and write everything, independent of users and roles.

use crate::flags::{ClusterState, ServeFlags};
use crate::urls::{self, ServerUrl};
use anyhow::{Result, bail};

/// Access to the peer port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAccess {
    /// Requires a certificate of the peers' CA.
    Mutual,
    /// Requires no proof.
    Insecure,
    /// The port is closed: a single-member cluster needs none.
    Closed,
}

impl PeerAccess {
    /// Decides by the flags. `listened` are the parsed URLs of --listen-peer-urls.
    pub fn decide(flags: &ServeFlags, listened: &[ServerUrl]) -> Result<PeerAccess> {
        // The URLs of the other members as well: this member sends its whole state to them.
        let cluster = urls::parse_cluster(flags.initial_cluster.as_deref().unwrap_or_default())?;
        let members: Vec<&String> = cluster.iter().flat_map(|(_, urls)| urls).collect();
        // All of them: a single plain port among several is enough for an attacker.
        let secure = listened.iter().all(|url| url.secure)
            && members.iter().all(|url| url.starts_with("https://"))
            && flags.peer_trusted_ca_file.is_some();
        if secure {
            return Ok(PeerAccess::Mutual);
        }
        if flags.allow_insecure_peers {
            tracing::warn!(
                "--allow-insecure-peers: every host that reaches a peer port can read and write everything"
            );
            return Ok(PeerAccess::Insecure);
        }
        // A member that can't have peers needs no open port, so it may start without certificates.
        let alone = flags.force_new_cluster
            || cluster.len() <= 1 && flags.initial_cluster_state == ClusterState::New;
        if !alone {
            bail!("{REFUSED}");
        }
        tracing::warn!(
            "not listening on --listen-peer-urls: without mutual TLS only --allow-insecure-peers opens it; the cluster can't grow"
        );
        Ok(PeerAccess::Closed)
    }

    /// Returns an error if the port is closed and the cluster has other members.
    pub fn check_members(self, members: usize) -> Result<()> {
        // The flags describe only the first start; members may have been added since.
        if self == PeerAccess::Closed && members > 1 {
            bail!("the cluster in the data folder has {members} members: {REFUSED}");
        }
        Ok(())
    }
}

const REFUSED: &str = "members need mutual TLS, because every host that reaches a peer port can read and write everything: use https in \
                       --listen-peer-urls and --initial-cluster, with --peer-cert-file, --peer-key-file and --peer-trusted-ca-file \
                       (or give --allow-insecure-peers)";

/// Error for adding a member while the peer port is closed.
pub const CLOSED: &str =
    "etcdserver: this member does not listen for other members: start it with TLS for peers first";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::flags::Flags;
    use clap::Parser;

    fn decide(words: &[&str]) -> Result<PeerAccess> {
        let words = std::iter::once("kvstore").chain(words.iter().copied());
        let flags = Flags::try_parse_from(words)?.serve;
        PeerAccess::decide(
            &flags,
            &urls::parse_urls("listen-peer-urls", &flags.listen_peer_urls)?,
        )
    }

    #[test]
    fn peer_port_opens_with_mutual_tls_or_on_demand() {
        const TLS: &str = "--listen-peer-urls=https://10.0.0.1:2380";
        const CA: &str = "--peer-trusted-ca-file=ca.crt";
        const TWO: &str = "--initial-cluster=a=http://h:1,b=http://h:2";
        const SECURE_TWO: &str = "--initial-cluster=a=https://h:1,b=https://h:2";
        const OPEN: &str = "--allow-insecure-peers";
        for (words, expect) in [
            (&[TLS, CA][..], Some(PeerAccess::Mutual)),
            (&[TLS, CA, SECURE_TWO], Some(PeerAccess::Mutual)),
            (&[TLS, CA, OPEN], Some(PeerAccess::Mutual)),
            (&[], Some(PeerAccess::Closed)),
            (&[TLS], Some(PeerAccess::Closed)),
            (&[TLS, "--peer-auto-tls"], Some(PeerAccess::Closed)),
            (&[CA], Some(PeerAccess::Closed)),
            (&["--initial-cluster-state=existing"], None),
            (&[TWO], None),
            (&[TWO, "--force-new-cluster"], Some(PeerAccess::Closed)),
            (&[TLS, CA, TWO], None),
            (&[TLS, SECURE_TWO], None),
            (
                &[
                    "--listen-peer-urls=https://10.0.0.1:2380,http://127.0.0.1:2380",
                    CA,
                    SECURE_TWO,
                ],
                None,
            ),
            (&[OPEN], Some(PeerAccess::Insecure)),
            (&[TWO, OPEN], Some(PeerAccess::Insecure)),
        ] {
            match (decide(words), expect) {
                (Ok(access), Some(expect)) => assert_eq!(access, expect, "{words:?}"),
                (Err(error), None) => {
                    assert!(
                        error.to_string().contains("--allow-insecure-peers"),
                        "{words:?}: {error}"
                    )
                }
                (other, _) => panic!("{words:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn closed_member_does_not_start_among_others() {
        assert!(PeerAccess::Closed.check_members(1).is_ok());
        assert!(PeerAccess::Closed.check_members(2).is_err());
        assert!(PeerAccess::Mutual.check_members(3).is_ok());
    }
}
