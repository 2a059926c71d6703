//! Requests to the store about its members.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use proto_etcd::etcdserverpb::cluster_client::ClusterClient;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::{
    MemberAddRequest, MemberListRequest, MemberListResponse, MemberPromoteRequest,
    MemberRemoveRequest, MemberUpdateRequest, StatusRequest,
};
use tokio::time::{Instant, timeout};
use tonic::{Code, Status};

use super::decide::{LocalMember, Member, find_update};
use crate::connect::connect_store;
use crate::error::{Error, Result};
use crate::layout::Layout;

/// Time for one request to one member.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Time for a change of the members, which the store refuses while an earlier one is applied, or a
/// member has only just joined.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time until a learner is in step. It loads a snapshot of the whole store.
const PROMOTE_TIMEOUT: Duration = Duration::from_secs(600);
const RETRY: Duration = Duration::from_millis(500);

/// A list of the members, as one member returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberList {
    /// ID of the store's cluster.
    pub cluster: u64,
    /// ID of the member that responded.
    pub responder: u64,
    pub members: Vec<Member>,
}

impl MemberList {
    /// Returns whether the list is that of a cluster; any list is if the ID is not known.
    fn is_of(&self, cluster: Option<u64>) -> bool {
        cluster.is_none_or(|cluster| cluster == self.cluster)
    }
}

/// Lists the members, by the first of these URLs that responds. With the ID of a `cluster`, members of other clusters
/// do not count: a machine of a former cluster may have the address.
///
/// # Errors
/// None responds.
pub(crate) async fn list_members(
    urls: &[String],
    cluster: Option<u64>,
    layout: &Layout,
) -> Result<MemberList> {
    let mut failures = Vec::new();
    for url in urls {
        let mut client = ClusterClient::new(connect_store(url, layout)?);
        let request = MemberListRequest { linearizable: true };
        let reply = limit_time(client.member_list(request)).await;
        match reply.map(|reply| read_list(reply.into_inner())) {
            Ok(list) if list.is_of(cluster) => return Ok(list),
            Ok(list) => failures.push(format!("{url}: it is in cluster {:x}", list.cluster)),
            Err(status) => failures.push(format!("{url}: {}", status.message())),
        }
    }
    let expected = cluster.map_or_else(String::new, |cluster| format!(" of cluster {cluster:x}"));
    Err(Error::Refused(format!(
        "no member of the store lists the members{expected} ({})",
        failures.join("; ")
    )))
}

fn read_list(reply: MemberListResponse) -> MemberList {
    let header = reply.header.unwrap_or_default();
    MemberList {
        cluster: header.cluster_id,
        responder: header.member_id,
        members: reply.members.into_iter().map(read_member).collect(),
    }
}

fn read_member(member: proto_etcd::etcdserverpb::Member) -> Member {
    Member {
        id: member.id,
        name: member.name,
        peer_urls: member.peer_ur_ls,
        client_urls: member.client_ur_ls,
        is_learner: member.is_learner,
    }
}

async fn limit_time<T>(
    request: impl Future<Output = std::result::Result<T, Status>>,
) -> std::result::Result<T, Status> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(done) => done,
        Err(_) => Err(Status::deadline_exceeded("no response")),
    }
}

/// Adds this machine as a learner. The store accepts one learner at a time, and refuses while a member
/// is not connected for some seconds.
pub(crate) async fn add_learner(urls: &[String], peer_url: &str, layout: &Layout) -> Result<()> {
    let peer_url = peer_url.to_owned();
    request_change(
        urls,
        layout,
        "adding the member",
        CHANGE_TIMEOUT,
        |mut cluster| {
            let request = MemberAddRequest {
                peer_ur_ls: vec![peer_url.clone()],
                is_learner: true,
            };
            async move { cluster.member_add(request).await.map(drop) }
        },
    )
    .await
}

/// Makes a learner a member that votes, as soon as it is in step.
pub(crate) async fn promote_member(urls: &[String], id: u64, layout: &Layout) -> Result<()> {
    request_change(
        urls,
        layout,
        "promoting the member",
        PROMOTE_TIMEOUT,
        |mut cluster| {
            let request = MemberPromoteRequest { id };
            async move { cluster.member_promote(request).await.map(drop) }
        },
    )
    .await
}

/// Removes a member.
pub(crate) async fn remove_member(urls: &[String], id: u64, layout: &Layout) -> Result<()> {
    request_change(
        urls,
        layout,
        "removing the member",
        CHANGE_TIMEOUT,
        |mut cluster| {
            let request = MemberRemoveRequest { id };
            async move { cluster.member_remove(request).await.map(drop) }
        },
    )
    .await
}

/// Publishes the address at which the member of this machine listens, if the `members` have another one.
pub(crate) async fn publish_peer_url(
    urls: &[String],
    members: &[Member],
    own: LocalMember<'_>,
    layout: &Layout,
) -> Result<()> {
    let Some(id) = find_update(members, own) else {
        return Ok(());
    };
    let peer_url = own.peer_url.to_owned();
    request_change(
        urls,
        layout,
        "updating the member",
        CHANGE_TIMEOUT,
        |mut cluster| {
            let request = MemberUpdateRequest {
                id,
                peer_ur_ls: vec![peer_url.clone()],
            };
            async move { cluster.member_update(request).await.map(drop) }
        },
    )
    .await
}

/// Requests a change of the members from one URL after the other until one accepts it.
async fn request_change<F>(
    urls: &[String],
    layout: &Layout,
    what: &str,
    longest: Duration,
    request: impl Fn(ClusterClient<tonic::transport::Channel>) -> F,
) -> Result<()>
where
    F: Future<Output = std::result::Result<(), Status>>,
{
    let began = Instant::now();
    loop {
        let mut last = String::new();
        for url in urls {
            let cluster = ClusterClient::new(connect_store(url, layout)?);
            match limit_time(request(cluster)).await {
                Ok(()) => return Ok(()),
                // An earlier attempt whose response was lost. The caller examines the list again.
                Err(status) if is_done(&status) => return Ok(()),
                Err(status) => {
                    tracing::debug!(url, message = status.message(), "{what}");
                    last = format!("{url}: {}", status.message());
                }
            }
        }
        if began.elapsed() >= longest {
            return Err(Error::Refused(format!(
                "{what} failed for {} s: {last}",
                longest.as_secs()
            )));
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Returns whether a change was made already.
fn is_done(status: &Status) -> bool {
    let message = status.message();
    match status.code() {
        Code::NotFound => message.contains("member not found"),
        Code::FailedPrecondition => {
            message.contains("Peer URLs already exists")
                || message.ends_with("can only promote a learner member")
        }
        _ => false,
    }
}

/// Returns the members that respond and know a leader.
pub(crate) async fn find_responding(members: &[Member], layout: &Layout) -> BTreeSet<u64> {
    let checks = members.iter().map(|member| async {
        let url = member.client_urls.first()?;
        let mut store = MaintenanceClient::new(connect_store(url, layout).ok()?);
        let reply = limit_time(store.status(StatusRequest {})).await.ok()?;
        (reply.into_inner().leader != 0).then_some(member.id)
    });
    let found = futures::future::join_all(checks).await;
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a restore the machines of the former cluster have the same addresses, CA and names.
    #[test]
    fn list_of_a_former_cluster_does_not_count() {
        let list = MemberList {
            cluster: 7,
            responder: 1,
            members: Vec::new(),
        };
        for (cluster, expected) in [(Some(7), true), (Some(8), false), (None, true)] {
            assert_eq!(list.is_of(cluster), expected, "{cluster:?}");
        }
    }
}
