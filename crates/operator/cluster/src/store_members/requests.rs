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

use super::decide::{JoinDefect, JoinStep, LocalMember, Member, find_update, next_join_step};
use crate::connect::{connect_store, local_store_url};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;

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

/// Lists the members, by the first of these URLs that responds. With the ID of a `cluster`, members
/// of other clusters do not count: a machine of a former cluster may have the address.
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
        // A member that is cut off would return an outdated list.
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

/// Lists the members as the member of this machine knows them, also if there is no quorum.
pub(super) async fn list_local_members(
    settings: &Settings,
    layout: &Layout,
    limit: Duration,
) -> Result<Vec<Member>> {
    let url = local_store_url(settings);
    let mut client = ClusterClient::new(connect_store(&url, layout)?);
    let request = MemberListRequest {
        linearizable: false,
    };
    let reply = timeout(limit, client.member_list(request)).await;
    match reply {
        Ok(Ok(reply)) => Ok(read_list(reply.into_inner()).members),
        Ok(Err(status)) => Err(Error::Refused(format!("{url}: {}", status.message()))),
        Err(_) => Err(Error::Refused(format!("{url}: no response"))),
    }
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

/// A change of the members.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    AddLearner { peer_url: String },
    Promote { id: u64 },
    Remove { id: u64 },
    Update { id: u64, peer_url: String },
}

/// The meaning of an error for a change that may be an attempt after one whose response was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The change was made already.
    Done,
    /// A later attempt may succeed.
    Retry,
    /// No attempt can succeed.
    Final,
}

impl Change {
    fn describe(&self) -> &'static str {
        match self {
            Self::AddLearner { .. } => "adding the member",
            Self::Promote { .. } => "promoting the member",
            Self::Remove { .. } => "removing the member",
            Self::Update { .. } => "updating the member",
        }
    }

    fn timeout(&self) -> Duration {
        match self {
            Self::Promote { .. } => PROMOTE_TIMEOUT,
            Self::AddLearner { .. } | Self::Remove { .. } | Self::Update { .. } => CHANGE_TIMEOUT,
        }
    }

    fn judge(&self, code: Code, message: &str) -> Verdict {
        // The texts of etcd's `rpctypes`: the codes of gRPC alone do not distinguish these errors.
        let is_unknown = code == Code::NotFound && message.contains("member not found");
        let is_taken =
            code == Code::FailedPrecondition && message.contains("Peer URLs already exists");
        let is_voter = code == Code::FailedPrecondition
            && message.ends_with("can only promote a learner member");
        match self {
            // By an attempt whose response was lost, or another machine: the caller reads the list
            // again.
            Self::AddLearner { .. } if is_taken => Verdict::Done,
            Self::Promote { .. } if is_voter => Verdict::Done,
            Self::Remove { .. } if is_unknown => Verdict::Done,
            // The member was removed, or another one has the address.
            Self::Promote { .. } | Self::Update { .. } if is_unknown || is_taken => Verdict::Final,
            // Among them are `unhealthy cluster` and `too many learner members`, which pass.
            _ => Verdict::Retry,
        }
    }

    async fn send(&self, url: &str, layout: &Layout) -> Result<std::result::Result<(), Status>> {
        let mut cluster = ClusterClient::new(connect_store(url, layout)?);
        let sent = async {
            match self.clone() {
                Self::AddLearner { peer_url } => {
                    let request = MemberAddRequest {
                        peer_ur_ls: vec![peer_url],
                        is_learner: true,
                    };
                    cluster.member_add(request).await.map(drop)
                }
                Self::Promote { id } => {
                    let request = MemberPromoteRequest { id };
                    cluster.member_promote(request).await.map(drop)
                }
                Self::Remove { id } => {
                    let request = MemberRemoveRequest { id };
                    cluster.member_remove(request).await.map(drop)
                }
                Self::Update { id, peer_url } => {
                    let request = MemberUpdateRequest {
                        id,
                        peer_ur_ls: vec![peer_url],
                    };
                    cluster.member_update(request).await.map(drop)
                }
            }
        };
        Ok(limit_time(sent).await)
    }
}

/// Adds this machine as a learner, unless it is listed. Decides again before each attempt: the
/// store accepts one learner at a time, and the one before may be a machine with the same name.
///
/// # Errors
/// This machine can't join, or no member accepts the change for a minute.
pub(crate) async fn ensure_member(
    urls: &[String],
    cluster: Option<u64>,
    own: LocalMember<'_>,
    layout: &Layout,
) -> Result<MemberList> {
    let change = Change::AddLearner {
        peer_url: own.peer_url.to_owned(),
    };
    let began = Instant::now();
    loop {
        let attempt = match list_members(urls, cluster, layout).await {
            Ok(list) if decide_step(&list.members, own)? != JoinStep::Add => return Ok(list),
            Ok(_) => attempt_change(urls, &change, layout).await?,
            // The only member may restart.
            Err(error) => Some(error.to_string()),
        };
        if let Some(last) = attempt {
            retry_later(&change, began, &last).await?;
        }
    }
}

/// Returns the next step of a machine that joins.
pub(crate) fn decide_step(members: &[Member], own: LocalMember<'_>) -> Result<JoinStep> {
    next_join_step(members, own).map_err(|defect| Error::Refused(defect.to_string()))
}

/// Makes a learner a member that votes, as soon as it is in step.
///
/// # Errors
/// The member was removed, or is not in step for 10 minutes.
pub(crate) async fn promote_member(urls: &[String], id: u64, layout: &Layout) -> Result<()> {
    request_change(urls, &Change::Promote { id }, layout).await
}

/// Removes a member.
pub(crate) async fn remove_member(urls: &[String], id: u64, layout: &Layout) -> Result<()> {
    request_change(urls, &Change::Remove { id }, layout).await
}

/// Publishes the address at which the member of this machine listens, if the `members` have another
/// one.
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
    request_change(urls, &Change::Update { id, peer_url }, layout).await
}

/// Requests a change of the members until one accepts it.
async fn request_change(urls: &[String], change: &Change, layout: &Layout) -> Result<()> {
    let began = Instant::now();
    while let Some(last) = attempt_change(urls, change, layout).await? {
        retry_later(change, began, &last).await?;
    }
    Ok(())
}

/// Requests a change from one URL after the other until one accepts it. Returns the last error if
/// none does.
///
/// # Errors
/// No later attempt can succeed.
async fn attempt_change(
    urls: &[String],
    change: &Change,
    layout: &Layout,
) -> Result<Option<String>> {
    let what = change.describe();
    let mut last = String::new();
    for url in urls {
        let Err(status) = change.send(url, layout).await? else {
            return Ok(None);
        };
        let message = status.message();
        match change.judge(status.code(), message) {
            Verdict::Done => return Ok(None),
            Verdict::Final => return Err(describe_final(change, message)),
            Verdict::Retry => tracing::debug!(url, message, "{what}"),
        }
        last = format!("{url}: {message}");
    }
    Ok(Some(last))
}

fn describe_final(change: &Change, message: &str) -> Error {
    Error::Refused(match change {
        Change::Promote { .. } => JoinDefect::Removed.to_string(),
        _ => format!("{} failed: {message}", change.describe()),
    })
}

async fn retry_later(change: &Change, began: Instant, last: &str) -> Result<()> {
    let longest = change.timeout();
    if began.elapsed() >= longest {
        return Err(Error::Refused(format!(
            "{} failed for {} s: {last}",
            change.describe(),
            longest.as_secs()
        )));
    }
    tokio::time::sleep(RETRY).await;
    Ok(())
}

/// Returns the members that respond and know a leader.
pub(crate) async fn find_responding(members: &[Member], layout: &Layout) -> BTreeSet<u64> {
    let checks = members.iter().map(|member| async {
        let url = member.client_urls.first()?;
        let mut store = MaintenanceClient::new(connect_store(url, layout).ok()?);
        let reply = limit_time(store.status(StatusRequest {})).await.ok()?;
        // In etcd's responses 0 stands for no leader.
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

    #[test]
    fn repeated_change_is_done_only_if_the_list_is_as_requested() {
        let peer_url = || "https://192.0.2.2:2380".to_owned();
        let add = Change::AddLearner {
            peer_url: peer_url(),
        };
        let (promote, remove) = (Change::Promote { id: 7 }, Change::Remove { id: 7 });
        let update = Change::Update {
            id: 7,
            peer_url: peer_url(),
        };
        let unknown = (Code::NotFound, "etcdserver: member not found");
        let taken = (
            Code::FailedPrecondition,
            "etcdserver: Peer URLs already exists",
        );
        let voter = (
            Code::FailedPrecondition,
            "etcdserver: can only promote a learner member",
        );
        let behind = (
            Code::FailedPrecondition,
            "etcdserver: can only promote a learner member which is in sync with leader",
        );
        let none = (Code::Unavailable, "etcdserver: unhealthy cluster");
        for (change, (code, message), expected) in [
            (&add, taken, Verdict::Done),
            (&add, none, Verdict::Retry),
            (&promote, voter, Verdict::Done),
            (&promote, behind, Verdict::Retry),
            // An administrator removed the learner while it was loading the data.
            (&promote, unknown, Verdict::Final),
            (&remove, unknown, Verdict::Done),
            (&remove, none, Verdict::Retry),
            (&update, unknown, Verdict::Final),
            (&update, taken, Verdict::Final),
            (&update, none, Verdict::Retry),
        ] {
            let verdict = change.judge(code, message);
            assert_eq!(verdict, expected, "{change:?} {message}");
        }
        let error = describe_final(&promote, unknown.1).to_string();
        assert!(error.contains("it was removed"), "{error}");
    }
}
