//! Determines the identity of this member and of its cluster.
//!
//! A data directory contains both. Without one, a new cluster takes them from `--initial-cluster`
//! and a joining member from the members of the running cluster. IDs are derived like etcd's from
//! peer URLs and token.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use kv_config::{ClusterState, ServeFlags, cluster_id, initial_members};
use kv_raft::{PeerTls, RaftNode};
use kv_rpc::{ClusterInfo, MEMBERS};
use kv_wal::Identity;
use prost::Message;
use proto_etcd::etcdserverpb::Member;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Start parameters of a member.
#[derive(Clone, Debug)]
pub(crate) struct Bootstrap {
    pub identity: Identity,
    /// Members known before the log names them.
    pub members: Vec<Member>,
    /// Voters of a new cluster; empty if the cluster exists already.
    pub begin: BTreeSet<u64>,
}

/// Determines the start parameters of a member without data.
pub(crate) async fn first_start(
    flags: &ServeFlags,
    initial_cluster: &str,
    peer_urls: &[String],
    tls: &PeerTls,
) -> Result<Bootstrap> {
    let members = initial_members(initial_cluster, &flags.initial_cluster_token)?;
    let mine = members.iter().find(|member| member.name == flags.name).with_context(|| {
        format!(
            "--name {:?} is not in --initial-cluster {initial_cluster:?}: add it there, as {}=PEER-URL",
            flags.name, flags.name
        )
    })?;
    // The other members reach this one at the URLs in their --initial-cluster, and compute its ID
    // from them.
    let advertised: BTreeSet<&String> = peer_urls.iter().collect();
    if advertised != mine.peer_ur_ls.iter().collect() {
        bail!(
            "--initial-cluster has {:?} for {:?}, but --initial-advertise-peer-urls is {peer_urls:?}: make them the same",
            mine.peer_ur_ls,
            flags.name
        );
    }
    match flags.initial_cluster_state {
        ClusterState::New => begin_cluster(&members, mine, tls).await,
        ClusterState::Existing => join_cluster(&members, mine, tls).await,
    }
}

/// Returns the voters of a new cluster whose first start may have been interrupted between claiming
/// the directory and writing the first log entry. They are ignored if the log has an entry.
pub(crate) fn unfinished_bootstrap(
    flags: &ServeFlags,
    identity: Identity,
    members: &[Member],
) -> BTreeSet<u64> {
    let voters: BTreeSet<u64> = members.iter().map(|member| member.id).collect();
    let new = matches!(flags.initial_cluster_state, ClusterState::New)
        && cluster_id(&voters) == identity.cluster;
    if new && voters.contains(&identity.member) {
        voters
    } else {
        BTreeSet::new()
    }
}

/// Rejects a data directory whose cluster differs from that of the members which respond at the
/// other peer URLs.
pub(crate) async fn check_cluster(
    flags: &ServeFlags,
    folder: &Path,
    identity: Identity,
    members: &[Member],
    tls: &PeerTls,
) -> Result<()> {
    let others: Vec<Member> = members
        .iter()
        .filter(|member| member.name != flags.name)
        .cloned()
        .collect();
    let mine = Member {
        name: flags.name.clone(),
        ..Member::default()
    };
    let infos = fetch_running_cluster(&others, &mine, tls, Duration::from_millis(400)).await;
    match infos.first() {
        // All that respond: one wrong URL in the list must not keep the member from starting.
        Some(info) if infos.iter().all(|info| info.cluster != identity.cluster) => bail!(
            "the data folder {} is of cluster {:x}, and the members at the peer URLs in --initial-cluster are of cluster {:x}: \
             correct --initial-cluster, or give a folder of that cluster, or an empty one, with --data-dir",
            folder.display(),
            identity.cluster,
            info.cluster
        ),
        _ => Ok(()),
    }
}

/// Rejects the data directory of another member: neither name nor peer URLs match its owner. One of
/// both may have changed.
pub(crate) fn check_member(
    flags: &ServeFlags,
    folder: &Path,
    identity: Identity,
    members: &[Member],
    owner: Option<&str>,
) -> Result<()> {
    let Some(owner) = owner.filter(|owner| !owner.is_empty() && *owner != flags.name) else {
        return Ok(());
    };
    let other = members
        .iter()
        .any(|member| member.name == flags.name && member.id != identity.member);
    if other {
        bail!(
            "the data folder {} is that of member {owner:?}, and --name is {:?} with other peer URLs: start {owner:?} with it, or give \
             {:?} a folder of its own with --data-dir",
            folder.display(),
            flags.name,
            flags.name
        );
    }
    Ok(())
}

async fn begin_cluster(members: &[Member], mine: &Member, tls: &PeerTls) -> Result<Bootstrap> {
    let voters: BTreeSet<u64> = members.iter().map(|member| member.id).collect();
    let identity = Identity {
        cluster: cluster_id(&voters),
        member: mine.id,
    };
    // Members of a new cluster start together, so most of them do not respond yet. One that does
    // may be of another cluster, or know this member from before it lost its data: it would then
    // vote twice in a term.
    for info in fetch_running_cluster(members, mine, tls, Duration::from_millis(400)).await {
        if info.cluster != identity.cluster {
            bail!(
                "cluster ID mismatch: the members at these addresses are of cluster {:x}, and --initial-cluster and \
                 --initial-cluster-token give {:x}; check both flags, or use --initial-cluster-state=existing to join",
                info.cluster,
                identity.cluster
            );
        }
        let started = info
            .members
            .iter()
            // Client URLs are published by a member that has started.
            .any(|member| member.id == mine.id && !member.client_ur_ls.is_empty());
        if started || info.removed.contains(&mine.id) {
            bail!(
                "member {:x} has already been bootstrapped, and its data folder is empty; to replace it, remove it with \
                 `member remove`, add it again, and start it with --initial-cluster-state=existing",
                mine.id
            );
        }
    }
    Ok(Bootstrap {
        identity,
        members: members.to_vec(),
        begin: voters,
    })
}

async fn join_cluster(members: &[Member], mine: &Member, tls: &PeerTls) -> Result<Bootstrap> {
    let infos = fetch_running_cluster(members, mine, tls, Duration::from_secs(5)).await;
    let info = infos.into_iter().next().context(
        "no member of the existing cluster answers at the peer URLs in --initial-cluster: check them, and that the cluster runs",
    )?;
    let same = |member: &&Member| {
        member.peer_ur_ls.iter().collect::<BTreeSet<_>>()
            == mine.peer_ur_ls.iter().collect::<BTreeSet<_>>()
    };
    // By its peer URLs: the member that was added has an ID, but no name until it starts.
    let me = info.members.iter().find(same).with_context(|| {
        format!(
            "the existing cluster has no member with the peer URLs {:?}: announce it first with `member add`",
            mine.peer_ur_ls
        )
    })?;
    if !me.name.is_empty() && !me.client_ur_ls.is_empty() {
        bail!(
            "member {:x} has already been bootstrapped, and its data folder is empty; remove it with `member remove` and add it again",
            me.id
        );
    }
    let identity = Identity {
        cluster: info.cluster,
        member: me.id,
    };
    Ok(Bootstrap {
        identity,
        members: info.members,
        begin: BTreeSet::new(),
    })
}

/// Requests the cluster's description from the other members and returns the responses.
async fn fetch_running_cluster(
    members: &[Member],
    mine: &Member,
    tls: &PeerTls,
    timeout: Duration,
) -> Vec<ClusterInfo> {
    let others = members.iter().filter(|member| member.name != mine.name);
    let urls: Vec<String> = others
        .flat_map(|member| member.peer_ur_ls.clone())
        .collect();
    let asked = urls.into_iter().map(|url| async move {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let call = RaftNode::call_peer_url(&url, tls.clone(), MEMBERS, Bytes::new());
            match tokio::time::timeout_at(deadline, call).await {
                Ok(Ok(Some(answer))) => return ClusterInfo::decode(answer).ok(),
                Ok(_) if tokio::time::Instant::now() + Duration::from_millis(200) < deadline => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                _ => return None,
            }
        }
    });
    futures::future::join_all(asked)
        .await
        .into_iter()
        .flatten()
        .collect()
}
