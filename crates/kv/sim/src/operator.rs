//! An operator: adds, promotes and removes members, and transfers leadership, one action at a time.

use crate::client::Surroundings;
use crate::entropy::Rng;
use crate::net::{HostId, Port};
use crate::serve::Line;
use parking_lot::Mutex;
use proto_etcd::etcdserverpb::cluster_client::ClusterClient;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::{
    Member, MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MoveLeaderRequest, StatusRequest,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// Maximum number of members.
const MOST: usize = 6;
/// Duration in milliseconds of the planted bug in which a former leader reads from its lease: two
/// election timeouts.
const FORMER: u64 = 400;

/// A member that was added and must be started.
pub(crate) struct Order {
    pub host: HostId,
    pub member: u64,
    pub members: Vec<Member>,
}

/// Counts of the operator's successful actions.
#[derive(Clone, Default)]
pub(crate) struct AchievedCounts(Arc<Mutex<(u64, u64)>>);

impl AchievedCounts {
    /// Returns the numbers of acknowledged membership changes and leadership transfers.
    pub fn counts(&self) -> (u64, u64) {
        *self.0.lock()
    }
}

/// Members to start, for the world.
pub(crate) type Orders = Arc<Mutex<Vec<Order>>>;

/// An operator.
pub(crate) struct Operator {
    pub around: Surroundings,
    pub rng: Rng,
    pub orders: Orders,
    pub achieved: AchievedCounts,
    /// Hosts that were started.
    pub started: BTreeSet<HostId>,
    /// The next unused host.
    pub next: HostId,
}

/// Returns the host of a member.
pub(crate) fn host_of(member: &Member) -> HostId {
    let url = member
        .peer_ur_ls
        .first()
        .map(String::as_str)
        .unwrap_or_default();
    url.trim_start_matches("http://")
        .split(':')
        .next()
        .and_then(|host| host.parse().ok())
        .unwrap_or_default()
}

impl Operator {
    pub async fn run(mut self) {
        while !self.around.is_over() {
            let pause = self.rng.below(2 * self.around.plan.change_every);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let line = self.around.random_line(&mut self.rng);
            let Some(Ok(members)) = self.with_timeout(list_members(line)).await else {
                continue;
            };
            self.start_announced(&members);
            let acted = self.run_random_action(&members).await;
            self.around
                .station
                .net
                .record_event(u64::from(acted.is_ok()));
            if let Ok(moved) = acted {
                let mut achieved = self.achieved.0.lock();
                *(if moved {
                    &mut achieved.1
                } else {
                    &mut achieved.0
                }) += 1;
            }
        }
    }

    /// Waits for a response with a random timeout.
    async fn with_timeout<T>(&mut self, call: impl Future<Output = T>) -> Option<T> {
        let patience = *self.rng.pick(&[100, 1_000, 3_000, 8_000]).unwrap_or(&1_000);
        tokio::time::timeout(Duration::from_millis(patience), call)
            .await
            .ok()
    }

    /// Starts listed members that do not run yet: the response to adding them may have been lost.
    fn start_announced(&mut self, members: &[Member]) {
        for member in members {
            let host = host_of(member);
            if self.started.insert(host) {
                self.orders.lock().push(Order {
                    host,
                    member: member.id,
                    members: members.to_vec(),
                });
            }
        }
    }

    /// Executes a random action. Returns whether it was a leadership transfer.
    async fn run_random_action(&mut self, members: &[Member]) -> Result<bool, Status> {
        let line = self.around.random_line(&mut self.rng);
        let some = self.rng.pick(members).cloned().unwrap_or_default();
        let voters = members.iter().filter(|member| !member.is_learner).count();
        let learner = members
            .iter()
            .find(|member| member.is_learner)
            .map(|member| member.id);
        match (self.rng.below(6), learner) {
            (0 | 1, Some(id)) => {
                let call = async move {
                    ClusterClient::new(line)
                        .member_promote(MemberPromoteRequest { id })
                        .await
                };
                self.with_timeout(call)
                    .await
                    .unwrap_or_else(deadline_exceeded)
                    .map(|_| false)
            }
            (0 | 1, None) if members.len() < MOST => self.add_member(line).await.map(|()| false),
            (2, _) if voters > 2 || some.is_learner => {
                let id = some.id;
                let call = async move {
                    ClusterClient::new(line)
                        .member_remove(MemberRemoveRequest { id })
                        .await
                };
                self.with_timeout(call)
                    .await
                    .unwrap_or_else(deadline_exceeded)
                    .map(|_| false)
            }
            _ => self.move_leader(members, some.id).await.map(|()| true),
        }
    }

    async fn add_member(&mut self, line: Line) -> Result<(), Status> {
        let (host, is_learner) = (self.next, !self.rng.once_in(3));
        self.next += 1;
        let request = MemberAddRequest {
            peer_ur_ls: vec![format!("http://{host}:1")],
            is_learner,
        };
        let call = async move { ClusterClient::new(line).member_add(request).await };
        let added = self
            .with_timeout(call)
            .await
            .unwrap_or_else(deadline_exceeded)?
            .into_inner();
        self.start_announced(&added.members);
        Ok(())
    }

    async fn move_leader(&mut self, members: &[Member], to: u64) -> Result<(), Status> {
        let line = self.around.random_line(&mut self.rng);
        let asked = async move { MaintenanceClient::new(line).status(StatusRequest {}).await };
        let leader = self
            .with_timeout(asked)
            .await
            .unwrap_or_else(deadline_exceeded)?
            .into_inner()
            .leader;
        let leader = members
            .iter()
            .find(|member| member.id == leader)
            .ok_or_else(|| Status::not_found("no leader"))?;
        if leader.id == to {
            return Err(Status::already_exists("it leads already"));
        }
        let host = host_of(leader);
        let line = self.around.station.line(host, Port::Client);
        let (former, net) = (self.around.former.clone(), self.around.station.net.clone());
        *former.lock() = (host, u64::MAX);
        let request = MoveLeaderRequest { target_id: to };
        let call = async move { MaintenanceClient::new(line).move_leader(request).await };
        let moved = self
            .with_timeout(call)
            .await
            .unwrap_or_else(deadline_exceeded);
        *former.lock() = (host, net.now() + FORMER);
        moved.map(drop)
    }
}

fn deadline_exceeded<T>() -> Result<T, Status> {
    Err(Status::deadline_exceeded("no answer in time"))
}

async fn list_members(line: Line) -> Result<Vec<Member>, Status> {
    let request = MemberListRequest { linearizable: true };
    Ok(ClusterClient::new(line)
        .member_list(request)
        .await?
        .into_inner()
        .members)
}
