//! A host: a disk, and a process that can be started and crashed.

use crate::disk::SimDisk;
use crate::engine::SimEngine;
use crate::entropy::Rng;
use crate::net::{HostId, Net, Port};
use crate::plan::{Plan, Plant};
use crate::serve::Station;
use kv_machine::{Machine, Options};
use kv_raft::{Clock, Config, Dial};
use kv_service::{Member, Tuning};
use kv_wal::{Frame, SegmentMaintenance, Wal, WalError, Writer};
use parking_lot::Mutex;
use proto_etcd::etcdserverpb;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

/// Small segments, so that the log rolls and recycles them often.
const SEGMENT_BYTES: u64 = 8 << 10;
const CLUSTER: u64 = 0xc1;

/// Creates a runtime with a paused clock.
pub(crate) type MakeRuntime = fn() -> Runtime;

/// State of a process that the world can see.
#[derive(Default)]
pub(crate) struct Signs {
    /// The process exited, as it must when writing the log fails.
    exited: AtomicBool,
    /// The member was removed from the cluster.
    removed: AtomicBool,
    /// A violation that the process detected.
    broken: Mutex<Option<String>>,
    member: Mutex<Option<Arc<Member>>>,
}

/// A running process.
struct Process {
    runtime: Runtime,
    started: Instant,
    ticks: u64,
    station: Station,
    signs: Arc<Signs>,
}

/// A host.
pub(crate) struct Host {
    pub id: HostId,
    pub disk: SimDisk,
    engine: SimEngine,
    net: Net,
    rng: Rng,
    spool: PathBuf,
    make_runtime: MakeRuntime,
    process: Option<Process>,
    /// Rate of its clock in thousandths of real time.
    rate: u64,
    /// Remaining milliseconds of its suspension.
    asleep: u64,
    /// Milliseconds that its process was suspended, during which its clock stood still.
    slept: Arc<AtomicU64>,
}

/// Start parameters of a host.
#[derive(Clone)]
pub(crate) struct Identity {
    pub member: u64,
    /// Voters of a new cluster; empty: the host joins a cluster.
    pub begin: BTreeSet<u64>,
    /// Initial members.
    pub initial: Vec<etcdserverpb::Member>,
}

/// Returns the member in the form of the cluster's list.
pub(crate) fn member_record(id: HostId) -> etcdserverpb::Member {
    let url = |port: &str| vec![format!("http://{id}:{port}")];
    etcdserverpb::Member {
        id,
        name: format!("m{id}"),
        peer_ur_ls: url("1"),
        client_ur_ls: url("2"),
        is_learner: false,
    }
}

impl Host {
    pub fn new(
        id: HostId,
        net: Net,
        mut rng: Rng,
        spool: PathBuf,
        make_runtime: MakeRuntime,
    ) -> Self {
        let (disk, engine) = (SimDisk::new(rng.fork()), SimEngine::new(rng.fork()));
        Host {
            id,
            disk,
            engine,
            net,
            rng,
            spool,
            make_runtime,
            process: None,
            rate: 1_000,
            asleep: 0,
            slept: Arc::default(),
        }
    }

    /// Sets the rate of the host's clock in thousandths of real time.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
    }

    /// Suspends the host: its clock stands still, and its process does not notice.
    pub fn suspend(&mut self, milliseconds: u64) {
        self.asleep = milliseconds;
    }

    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    fn boot_process(&mut self) -> &mut Process {
        self.net.set_up(self.id);
        self.asleep = 0;
        self.slept = Arc::default();
        let runtime = (self.make_runtime)();
        let started = runtime.block_on(async { Instant::now() });
        let station = Station::new(self.net.clone(), self.id);
        self.process.insert(Process {
            runtime,
            started,
            ticks: 0,
            station,
            signs: Arc::default(),
        })
    }

    /// Starts a process without a member, for clients.
    pub fn start_clients(&mut self) -> (Station, tokio::runtime::Handle) {
        let process = self.boot_process();
        (process.station.clone(), process.runtime.handle().clone())
    }

    /// Starts the member.
    pub fn start_member(&mut self, plan: &Plan, identity: &Identity) {
        self.disk.start();
        let (disk, engine, rng, spool) = (
            self.disk.clone(),
            self.engine.clone(),
            self.rng.fork(),
            self.spool.clone(),
        );
        let (id, plan, identity) = (self.id, plan.clone(), identity.clone());
        self.boot_process();
        let slept = self.slept.clone();
        let Some(process) = &self.process else { return };
        let (station, signs) = (process.station.clone(), process.signs.clone());
        process.runtime.spawn(async move {
            let boot = Boot {
                id,
                plan,
                identity,
                slept,
                disk: disk.clone(),
                engine,
                rng,
                spool,
                station,
                signs: signs.clone(),
            };
            if let Err(error) = boot.run().await {
                signs.record_failure(&disk, &format!("member {id} can't start: {error:#}"));
            }
        });
    }

    /// Runs the process for one millisecond.
    pub fn tick(&mut self) {
        let Some(process) = &mut self.process else {
            return;
        };
        if self.asleep > 0 {
            self.asleep -= 1;
            self.slept.fetch_add(1, Ordering::Relaxed);
            return;
        }
        process.ticks += 1;
        let until = process.started + Duration::from_millis(process.ticks * self.rate / 1_000);
        process
            .runtime
            .block_on(async { tokio::time::sleep_until(until).await });
    }

    /// Delivers a packet.
    pub fn receive(&mut self, number: u64, packet: crate::net::Packet) {
        let Some(process) = &self.process else { return };
        let _entered = process.runtime.enter();
        process.station.receive(number, packet);
    }

    /// Ends the process at once, at any await of its tasks. `power` also simulates a loss of power.
    pub fn crash(&mut self, power: bool) {
        let Some(process) = self.process.take() else {
            return;
        };
        self.net.set_down(self.id, !power);
        *process.signs.member.lock() = None;
        drop(process);
        if power {
            self.disk.lose_power();
            // A memory engine can't fail.
            let _ = self.engine.lose_power();
        }
    }

    /// Returns whether the process has exited.
    pub fn has_exited(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.signs.exited.load(Ordering::Relaxed))
    }

    /// Returns whether the process has learned of its removal from the cluster.
    pub fn is_removed(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.signs.removed.load(Ordering::Relaxed))
    }

    /// Takes the violation that the process detected.
    pub fn take_violation(&self) -> Option<String> {
        self.process
            .as_ref()
            .and_then(|process| process.signs.broken.lock().take())
    }

    /// Returns whether the member serves clients.
    pub fn is_serving(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.station.serves_clients())
    }

    /// Returns the member, once it runs.
    pub fn member(&self) -> Option<Arc<Member>> {
        self.process
            .as_ref()
            .and_then(|process| process.signs.member.lock().clone())
    }
}

impl Signs {
    /// Records that the process can't continue, which only a failed disk justifies.
    fn record_failure(&self, disk: &SimDisk, reason: &str) {
        self.exited.store(true, Ordering::Relaxed);
        if !disk.at_fault() {
            self.broken.lock().get_or_insert_with(|| reason.to_owned());
        }
    }
}

/// Start of a member.
struct Boot {
    id: HostId,
    plan: Plan,
    identity: Identity,
    slept: Arc<AtomicU64>,
    disk: SimDisk,
    engine: SimEngine,
    rng: Rng,
    spool: PathBuf,
    station: Station,
    signs: Arc<Signs>,
}

impl Boot {
    /// Returns a clock that includes the time in which the host was suspended.
    fn make_clock(&self) -> Clock {
        let (started, slept) = (Instant::now(), self.slept.clone());
        let booted = Duration::from_millis(self.station.net.now());
        Clock::new(move || {
            booted + started.elapsed() + Duration::from_millis(slept.load(Ordering::Relaxed))
        })
    }

    /// Returns the connector to other hosts, whose URLs are `http://ID:PORT`.
    fn make_dialer(&self) -> Dial {
        let station = self.station.clone();
        Arc::new(move |url: &str| {
            let host = url
                .trim_start_matches("http://")
                .split(':')
                .next()
                .and_then(|id| id.parse().ok());
            tower::util::BoxCloneSyncService::new(
                station.line(host.unwrap_or_default(), Port::Peer),
            )
        })
    }

    fn raft_config(&self, sync_micros: Arc<AtomicU64>) -> Config {
        Config {
            cluster: CLUSTER,
            member: self.identity.member,
            heartbeat: Duration::from_millis(20),
            election_timeout: Duration::from_millis(200),
            snapshot_entries: self.plan.snapshot_entries,
            kept_entries: self.plan.snapshot_entries.min(5_000),
            spool: self.spool.clone(),
            tls: Arc::default(),
            trust: kv_raft::PeerTrust::Unverified,
            max_command: 1_572_864,
            dial: Some(self.make_dialer()),
            sync_micros,
            clock: self.make_clock(),
        }
    }

    async fn run(mut self) -> anyhow::Result<()> {
        let log = Wal::open_on(
            Arc::new(self.disk.clone()),
            Path::new("/wal"),
            SEGMENT_BYTES,
            Arc::new(|_| {}),
        );
        let (wal, contents, writer) = log.map_err(|error: WalError| anyhow::anyhow!("{error}"))?;
        let options = Options {
            member: self.identity.member,
            max_txn_ops: 128,
            max_learners: 1,
            value_cache: 2_000,
            own_thread: false,
            token_ttl: Duration::from_secs(300),
            on_store: Arc::new(|_| {}),
            slow_apply: Duration::MAX,
        };
        let machine = Machine::open(Arc::new(self.engine.clone()), options)?;
        let sync_micros = Arc::new(AtomicU64::new(0));
        let log = Log {
            writer,
            rng: self.rng.fork(),
            plan: self.plan.clone(),
            disk: self.disk.clone(),
            signs: self.signs.clone(),
            sync_micros: sync_micros.clone(),
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the task ends with the member's runtime, which a crash drops"
        )]
        tokio::spawn(log.run());
        #[expect(
            clippy::disallowed_methods,
            reason = "the task ends with the member's runtime, which a crash drops"
        )]
        tokio::spawn(drain_engine(machine.clone(), self.rng.fork()));
        let config = self.raft_config(sync_micros);
        let removed = self.signs.clone();
        let on_removed = Arc::new(move || removed.removed.store(true, Ordering::Relaxed));
        let tuning = Tuning {
            quota: self.plan.quota,
            checkpoint_every: Duration::from_millis(self.plan.checkpoint_every),
        };
        let initial = self.identity.initial.clone();
        let member = Member::start(
            machine,
            (wal, contents),
            config,
            tuning,
            initial,
            on_removed,
        )
        .await?;
        let member = Arc::new(member);
        self.station.serve_peers(member.peer_routes());
        *self.signs.member.lock() = Some(member.clone());
        member
            .join(
                &self.identity.begin,
                &format!("m{}", self.id),
                &[format!("http://{}:2", self.id)],
            )
            .await?;
        self.station.serve_clients(member.client_service());
        Ok(())
    }
}

/// Drives the log's writer, with time passing between its steps.
struct Log {
    writer: Writer,
    rng: Rng,
    plan: Plan,
    disk: SimDisk,
    signs: Arc<Signs>,
    sync_micros: Arc<AtomicU64>,
}

impl Log {
    async fn run(mut self) {
        loop {
            sleep(Duration::from_millis(1)).await;
            let Some(mut frame) = self.writer.next_frame() else {
                continue;
            };
            if let Err(error) = self.write(&mut frame).await {
                return self.stop_after_failure(error).await;
            }
            sleep(Duration::from_millis(self.rng.below(2))).await;
            frame.acknowledge();
            if let Some(Err(error)) = self.writer.take_maintenance().map(SegmentMaintenance::run) {
                return self.stop_after_failure(error).await;
            }
        }
    }

    /// The process exits here in production: nothing is acknowledged any more.
    async fn stop_after_failure(self, error: std::io::Error) {
        self.signs
            .record_failure(&self.disk, &format!("the log can't be written: {error}"));
        std::future::pending().await
    }

    async fn write(&mut self, frame: &mut Frame) -> std::io::Result<()> {
        self.writer.write_frame(frame)?;
        if self.plan.plant == Some(Plant::AcknowledgeBeforeSync) {
            frame.acknowledge();
        }
        let took = self.rng.below(self.plan.longest_sync + 1);
        sleep(Duration::from_millis(took)).await;
        self.writer.sync_frame(frame)?;
        let before = self.sync_micros.load(Ordering::Relaxed);
        self.sync_micros
            .store((before * 15 + took * 1_000) / 16, Ordering::Relaxed);
        Ok(())
    }
}

/// Writes applied changes to the engine, at random intervals.
async fn drain_engine(machine: Arc<Machine>, mut rng: Rng) {
    loop {
        while machine.drain_queue() {}
        sleep(Duration::from_millis(1 + rng.below(20))).await;
    }
}
