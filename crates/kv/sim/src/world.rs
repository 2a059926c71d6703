//! The world: hosts that run in turn, injected faults, and the conditions that must hold in the
//! end.

mod conditions;
mod faults;

use crate::client::{Client, Surroundings};
use crate::entropy::{self, Rng};
use crate::history::{History, WatchLog};
use crate::host::{self, Host, Identity, MakeRuntime};
use crate::lease_client::Holder;
use crate::ledger::Ledger;
use crate::net::{HostId, Net, Port};
use crate::operator::{AchievedCounts, Operator, Order, Orders};
use crate::plan::Plan;
use crate::serve::Station;
use crate::watch_client::Watching;
use futures::FutureExt;
use kv_raft::Status;
use parking_lot::Mutex;
use proto_etcd::etcdserverpb::MoveLeaderRequest;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

const CLIENTS: HostId = 1_000;
/// Milliseconds in which the cluster must settle after the last fault.
const REST: u64 = 30_000;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The violated guarantee, if any.
    pub violation: Option<String>,
    /// Number of the clients' operations.
    pub operations: usize,
    /// Number of revisions.
    pub revisions: i64,
    /// Number of injected faults.
    pub faults: u64,
    /// Number of acknowledged membership changes.
    pub changes: u64,
    /// Number of acknowledged leadership transfers.
    pub moves: u64,
    /// Number of member starts.
    pub starts: u64,
    /// Simulated time in milliseconds.
    pub milliseconds: u64,
    /// Hash of all events; equal for equal runs.
    pub trace: u64,
}

thread_local! {
    static PANICS: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with_borrow_mut(|first| {
                first.get_or_insert_with(|| info.to_string());
            });
            usual(info);
        }));
    });
}

/// Executes a run in a thread of its own.
pub fn run(plan: &Plan, spool: &Path, make_runtime: MakeRuntime) -> Report {
    static FIRST: Once = Once::new();
    // Process-wide random values are always initialised by the same run.
    FIRST.call_once(|| {
        let plan = Plan {
            members: 3,
            faults_for: 300,
            fault_every: 0,
            ..Plan::settled(0)
        };
        let _ = run_alone(&plan, spool, make_runtime);
    });
    run_alone(plan, spool, make_runtime)
}

fn run_alone(plan: &Plan, spool: &Path, make_runtime: MakeRuntime) -> Report {
    note_panics();
    let (plan, spool) = (plan.clone(), spool.to_path_buf());
    let thread = std::thread::spawn(move || {
        entropy::seed_thread(plan.seed);
        World::new(plan, &spool, make_runtime).run()
    });
    thread.join().unwrap_or_else(|_| Report {
        violation: Some("the simulation itself failed".to_owned()),
        operations: 0,
        revisions: 0,
        faults: 0,
        changes: 0,
        moves: 0,
        starts: 0,
        milliseconds: 0,
        trace: 0,
    })
}

fn new_host(id: HostId, net: &Net, rng: Rng, spool: &Path, make_runtime: MakeRuntime) -> Host {
    let spool = spool.join(id.to_string());
    // Received snapshots are written to files in this directory. If it is missing, receiving fails.
    let _ = std::fs::create_dir_all(&spool);
    Host::new(id, net.clone(), rng, spool, make_runtime)
}

/// Returns a random rate of a clock in thousandths of real time.
fn fault_rate(plan: &Plan, rng: &mut Rng) -> u64 {
    match plan.drift {
        0 => 1_000,
        drift => 1_000 - drift + rng.below(2 * drift + 1),
    }
}

struct World {
    plan: Plan,
    rng: Rng,
    /// Generator for features that were added later, so that existing seeds keep their meaning.
    later_rng: Rng,
    net: Net,
    hosts: BTreeMap<HostId, Host>,
    identities: BTreeMap<HostId, Identity>,
    orders: Orders,
    achieved: AchievedCounts,
    make_runtime: MakeRuntime,
    spool: PathBuf,
    clients: Host,
    /// Restart times of hosts.
    restarts: BTreeMap<HostId, u64>,
    /// Times at which killed hosts lose power.
    blackouts: Vec<(u64, HostId)>,
    /// Time at which network and disks are repaired.
    repair: Option<u64>,
    /// For each member, the revision up to which it was compared with the ledger.
    compared: BTreeMap<HostId, i64>,
    ledger: Ledger,
    history: History,
    watches: Vec<WatchLog>,
    members: Arc<Mutex<Vec<HostId>>>,
    former: Arc<Mutex<(HostId, u64)>>,
    over: Arc<AtomicBool>,
    operator: Option<JoinHandle<()>>,
    /// Host from which further calls can be made.
    desk: Option<(Station, Handle)>,
    faults: u64,
    starts: u64,
}

impl World {
    fn new(plan: Plan, spool: &Path, make_runtime: MakeRuntime) -> World {
        let mut rng = Rng::new(plan.seed);
        let net = Net::new(rng.fork());
        net.set_weather(plan.longest_delay, plan.lost_once_in);
        let voters: BTreeSet<HostId> = (1..=plan.members).collect();
        let mut later_rng = Rng::new(plan.seed ^ 0x1a7e);
        let mut hosts: BTreeMap<HostId, Host> = voters
            .iter()
            .map(|id| (*id, new_host(*id, &net, rng.fork(), spool, make_runtime)))
            .collect();
        for host in hosts.values_mut() {
            host.set_rate(fault_rate(&plan, &mut later_rng));
        }
        let clients = new_host(CLIENTS, &net, rng.fork(), spool, make_runtime);
        let initial: Vec<_> = voters.iter().map(|id| host::member_record(*id)).collect();
        let founder = |id: &HostId| Identity {
            member: *id,
            begin: voters.clone(),
            initial: initial.clone(),
        };
        let identities = voters.iter().map(|id| (*id, founder(id))).collect();
        World {
            rng,
            later_rng,
            net,
            hosts,
            identities,
            orders: Orders::default(),
            achieved: AchievedCounts::default(),
            make_runtime,
            spool: spool.to_owned(),
            clients,
            restarts: BTreeMap::new(),
            blackouts: Vec::new(),
            repair: None,
            compared: BTreeMap::new(),
            members: Arc::new(Mutex::new(voters.iter().copied().collect())),
            former: Arc::default(),
            ledger: Ledger::default(),
            history: History::default(),
            watches: Vec::new(),
            over: Arc::default(),
            operator: None,
            desk: None,
            faults: 0,
            starts: 0,
            plan,
        }
    }

    fn run(mut self) -> Report {
        self.start_clients();
        for id in self.identities.keys().copied().collect::<Vec<_>>() {
            self.start_host(id);
        }
        let violation = self.run_to_end().and_then(|()| self.check_results()).err();
        let report = Report {
            violation,
            operations: self.history.len(),
            revisions: self.ledger.last_revision(),
            faults: self.faults,
            changes: self.achieved.counts().0,
            moves: self.achieved.counts().1,
            starts: self.starts,
            milliseconds: self.net.now(),
            trace: self.net.trace_hash(),
        };
        self.clients.crash(false);
        for host in self.hosts.values_mut() {
            host.crash(false);
        }
        report
    }

    fn start_clients(&mut self) {
        let (station, runtime) = self.clients.start_clients();
        self.desk = Some((station.clone(), runtime.clone()));
        let around = Surroundings {
            station,
            history: self.history.clone(),
            plan: self.plan.clone(),
            members: self.members.clone(),
            former: self.former.clone(),
            over: self.over.clone(),
        };
        for id in 1..=4 {
            runtime.spawn(Client::new(id, around.clone(), self.rng.fork()).run());
        }
        runtime.spawn(
            Holder {
                id: 9,
                around: around.clone(),
                rng: self.rng.fork(),
            }
            .run(),
        );
        for next in [0, 1] {
            let log = WatchLog::default();
            self.watches.push(log.clone());
            let (around, rng) = (around.clone(), self.rng.fork());
            runtime.spawn(
                Watching {
                    around,
                    rng,
                    log,
                    next,
                    compactions: 0,
                }
                .run(),
            );
        }
        if self.plan.change_every > 0 {
            let started: BTreeSet<HostId> = self.hosts.keys().copied().collect();
            let (rng, orders, achieved) = (
                self.later_rng.fork(),
                self.orders.clone(),
                self.achieved.clone(),
            );
            let next = self.plan.members + 1;
            self.operator = Some(
                runtime.spawn(
                    Operator {
                        around,
                        rng,
                        orders,
                        achieved,
                        started,
                        next,
                    }
                    .run(),
                ),
            );
        }
    }

    fn start_host(&mut self, id: HostId) {
        if let (Some(host), Some(identity)) = (self.hosts.get_mut(&id), self.identities.get(&id)) {
            host.start_member(&self.plan, identity);
            self.compared.remove(&id);
            self.starts += 1;
        }
    }

    /// Starts added members and removes hosts whose members were removed and have noticed it.
    fn change_members(&mut self) {
        let orders = std::mem::take(&mut *self.orders.lock());
        for Order {
            host: id,
            member,
            members,
        } in orders
        {
            let mut host = new_host(
                id,
                &self.net,
                self.later_rng.fork(),
                &self.spool,
                self.make_runtime,
            );
            host.set_rate(fault_rate(&self.plan, &mut self.later_rng));
            self.hosts.insert(id, host);
            self.identities.insert(
                id,
                Identity {
                    member,
                    begin: BTreeSet::new(),
                    initial: members,
                },
            );
            self.members.lock().push(id);
            self.start_host(id);
        }
        let removed: Vec<HostId> = self
            .hosts
            .iter()
            .filter(|(_, host)| host.is_removed())
            .map(|(id, _)| *id)
            .collect();
        for id in removed {
            self.members.lock().retain(|member| *member != id);
            if let Some(mut host) = self.hosts.remove(&id) {
                host.crash(false);
            }
        }
    }

    fn crash_host(&mut self, id: HostId, power: bool, away: u64) {
        if let Some(host) = self.hosts.get_mut(&id).filter(|host| host.is_up()) {
            host.crash(power);
            self.restarts.insert(id, self.net.now() + away);
        }
    }

    fn run_to_end(&mut self) -> Result<(), String> {
        let until = self.plan.faults_for;
        while self.net.now() < until {
            if self.rng.once_in(self.plan.fault_every) {
                self.inject_fault();
            }
            self.run_step()?;
        }
        self.repair_faults();
        self.blackouts.clear();
        self.net.set_weather(2, 0);
        for at in self.restarts.values_mut() {
            *at = 0;
        }
        // The workload continues for a while on the healthy cluster.
        for _ in 0..300 {
            self.run_step()?;
        }
        self.over.store(true, Ordering::Relaxed);
        for _ in 0..REST {
            self.run_step()?;
            if self.net.now().is_multiple_of(50) && self.at_rest() {
                self.hosts
                    .values()
                    .for_each(|host| host.disk.cancel_failures());
                return self.hand_on().and_then(|()| self.hand_on());
            }
        }
        Err(format!(
            "not at rest {} s after the last fault: {}",
            REST / 1_000,
            self.describe_hosts()
        ))
    }

    /// Checks on a healthy cluster that the leader can transfer leadership, and that the new leader
    /// can do so right after its election. Two failures are tolerated: an election or a disk
    /// failure may have been in progress.
    fn hand_on(&mut self) -> Result<(), String> {
        let mut failed = String::new();
        for _ in 0..3 {
            match self.hand_on_once()? {
                Ok(()) => return Ok(()),
                Err(reason) => failed = reason,
            }
            for _ in 0..1_000 {
                self.run_step()?;
            }
        }
        Err(failed)
    }

    fn hand_on_once(&mut self) -> Result<Result<(), String>, String> {
        let Some((from, before)) = self.find_leader() else {
            return Ok(Err(format!(
                "there is no leader: {}",
                self.describe_hosts()
            )));
        };
        let others = self
            .hosts
            .keys()
            .filter(|id| **id != from)
            .map(|id| self.member_at(*id));
        let Some(to) = others.filter(|id| before.voters.contains(id)).max() else {
            return Ok(Ok(()));
        };
        let Some((station, runtime)) = &self.desk else {
            return Ok(Ok(()));
        };
        let mut line = MaintenanceClient::new(station.line(from, Port::Client));
        let asked = runtime.spawn(async move {
            line.move_leader(MoveLeaderRequest { target_id: to })
                .await
                .map(drop)
        });
        for _ in 0..REST {
            self.run_step()?;
            if asked.is_finished() {
                break;
            }
        }
        match asked.now_or_never() {
            Some(Ok(Ok(()))) => {}
            other => {
                return Ok(Err(format!(
                    "{from} does not hand leadership on to {to:x} ({other:?}): {}",
                    self.describe_hosts()
                )));
            }
        }
        Ok(match self.find_leader() {
            Some((id, _)) if self.member_at(id) == to => Ok(()),
            _ => Err(format!(
                "{from} has handed leadership on to {to:x}, who does not lead: {}",
                self.describe_hosts()
            )),
        })
    }

    fn member_at(&self, host: HostId) -> u64 {
        self.identities.get(&host).map_or(0, |who| who.member)
    }

    /// Returns the host of the leader.
    fn find_leader(&self) -> Option<(HostId, Status)> {
        let statuses = self
            .hosts
            .iter()
            .filter_map(|(id, host)| Some((*id, host.member()?.status())));
        statuses
            .filter(|(_, status)| status.leading)
            .max_by_key(|(_, status)| status.term)
    }

    fn describe_hosts(&self) -> String {
        let members = self.hosts.iter().map(|(id, host)| match host.member() {
            Some(member) => {
                let status = member.status();
                format!(
                    "{id}: revision {}, term {}, leader {:?}, applied {}, stopped {:?}",
                    member.machine().store().current_revision(),
                    status.term,
                    status.leader,
                    status.applied,
                    status.stopped
                )
            }
            None => format!("{id}: up {}", host.is_up()),
        });
        let watches: Vec<i64> = self.watches.iter().map(WatchLog::last_received).collect();
        format!(
            "{}; watchers at {watches:?} of {}",
            members.collect::<Vec<_>>().join("; "),
            self.ledger.last_revision()
        )
    }

    /// Advances the world by one millisecond.
    fn run_step(&mut self) -> Result<(), String> {
        let now = self.net.now();
        if self.repair.is_some_and(|at| at <= now) {
            self.repair_faults();
        }
        for (_, id) in self
            .blackouts
            .extract_if(.., |(at, _)| *at <= now)
            .collect::<Vec<_>>()
        {
            let away = self.rng.range(1, 300);
            self.crash_host(id, true, away);
        }
        let due: Vec<HostId> = self
            .restarts
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.restarts.remove(&id);
            self.start_host(id);
        }
        self.change_members();
        for (to, number, packet) in self.net.tick() {
            match self.hosts.get_mut(&to) {
                Some(host) => host.receive(number, packet),
                None if to == CLIENTS => self.clients.receive(number, packet),
                None => {}
            }
        }
        self.clients.tick();
        for host in self.hosts.values_mut() {
            host.tick();
        }
        self.check_invariants()
    }
}
