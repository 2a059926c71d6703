//! Runs an [`Announcer`]: receives and sends frames, and reads the interfaces.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use base_task::CancellationToken;
use nix::sys::socket::LinkAddr;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::announcer::{Announcer, HEARTBEAT_INTERVAL};
use crate::claims::Desired;
use crate::ethernet::{ARP, HEARTBEAT, IPV6};
use crate::groups::Groups;
use crate::link_monitor::LinkMonitor;
use crate::links::{Link, LinkSelection};
use crate::members::MAX_MEMBERS;
use crate::metrics::AnnounceMetrics;
use crate::output::Output;
use crate::packet_socket::{FRAME_LENGTH, PacketSocket};

/// Delay after an error of a socket, so that a lasting one does not keep the process busy.
const ERROR_DELAY: Duration = Duration::from_millis(20);

const NO_LINK: &str = "no interface that is up has a network of --load-balancer-pool; this node announces nothing until there is one \
     (--load-balancer-interface names one)";

/// A node that can't announce addresses.
#[derive(Debug, thiserror::Error)]
#[error(
    "the addresses of load balancers can't be announced: {0}; start kube-proxy with CAP_NET_RAW, or without --load-balancer-pool"
)]
pub struct OpenError(#[from] io::Error);

/// The sockets of the protocols.
#[derive(Debug)]
pub(crate) struct Sockets {
    arp: PacketSocket,
    ipv6: PacketSocket,
    heartbeats: PacketSocket,
    changes: LinkMonitor,
}

impl Sockets {
    /// Opens the sockets.
    pub(crate) fn open() -> Result<Self, OpenError> {
        Ok(Self {
            arp: PacketSocket::open(ARP)?,
            ipv6: PacketSocket::open(IPV6)?,
            heartbeats: PacketSocket::open(HEARTBEAT)?,
            changes: LinkMonitor::open()?,
        })
    }

    fn set_links(&self, indexes: &[u32]) -> io::Result<()> {
        for socket in [&self.arp, &self.ipv6, &self.heartbeats] {
            socket.set_links(indexes)?;
        }
        Ok(())
    }

    async fn receive(&self, buffers: &mut [[u8; FRAME_LENGTH]; 3]) -> io::Result<(u32, Vec<u8>)> {
        let [a, b, c] = buffers;
        // In random order: a flood of one protocol does not stop the others.
        let (link, frame) = tokio::select! {
            received = self.heartbeats.receive(a) => received.map(|(l, n)| (l, a.get(..n)))?,
            received = self.arp.receive(b) => received.map(|(l, n)| (l, b.get(..n)))?,
            received = self.ipv6.receive(c) => received.map(|(l, n)| (l, c.get(..n)))?,
        };
        Ok((link, frame.unwrap_or_default().to_vec()))
    }
}

/// Announces the addresses of `desired` until `shutdown`, and releases them at the end.
///
/// # Errors
/// The process lacks CAP_NET_RAW.
pub async fn run_announcer(
    node: String,
    selection: LinkSelection,
    desired: watch::Receiver<Desired>,
    metrics: AnnounceMetrics,
    shutdown: CancellationToken,
) -> Result<(), OpenError> {
    let sockets = Sockets::open()?;
    Driver::new(node, selection, sockets, metrics)
        .run(desired, shutdown)
        .await;
    Ok(())
}

/// The state of the loop.
pub(crate) struct Driver {
    announcer: Announcer,
    selection: LinkSelection,
    sockets: Sockets,
    groups: Groups,
    links: Vec<Link>,
    owned: BTreeSet<(u32, IpAddr)>,
    /// The announcer's version that `owned` has.
    version: u64,
    /// The addresses of the last line of the log.
    logged: BTreeSet<IpAddr>,
    /// The interfaces have not changed since they were read.
    are_links_current: bool,
    /// The problem of the interfaces that was logged.
    problem: Option<&'static str>,
    /// A conflict was logged since the last tick.
    has_conflict: bool,
    has_too_many_members: bool,
    metrics: AnnounceMetrics,
}

impl Driver {
    pub(crate) fn new(
        node: String,
        selection: LinkSelection,
        sockets: Sockets,
        metrics: AnnounceMetrics,
    ) -> Self {
        Self {
            announcer: Announcer::new(node, read_clock()),
            selection,
            sockets,
            groups: Groups::default(),
            links: Vec::new(),
            owned: BTreeSet::new(),
            version: 0,
            logged: BTreeSet::new(),
            are_links_current: false,
            problem: None,
            has_conflict: false,
            has_too_many_members: false,
            metrics,
        }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(
        mut self,
        mut desired: watch::Receiver<Desired>,
        shutdown: CancellationToken,
    ) {
        let mut ticks = tokio::time::interval(HEARTBEAT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        desired.mark_changed();
        let mut buffers = [[0; FRAME_LENGTH]; 3];
        loop {
            let outputs = tokio::select! {
                // Frames come last: a flood of them must not stop the heartbeats.
                biased;
                () = shutdown.cancelled() => break,
                _ = ticks.tick() => {
                    // First, because it notices that the process was stopped.
                    let mut outputs = self.announcer.tick(read_clock());
                    outputs.extend(self.refresh_links());
                    self.log_changes();
                    outputs
                }
                changed = self.sockets.changes.wait_for_change() => {
                    // The next tick reads them: many may change at once.
                    self.are_links_current = false;
                    if let Err(error) = changed {
                        tracing::debug!(%error, "a message about interfaces could not be received");
                        tokio::time::sleep(ERROR_DELAY).await;
                    }
                    Vec::new()
                }
                changed = desired.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let value = desired.borrow_and_update().clone();
                    self.announcer.set_desired(value, read_clock())
                }
                received = self.sockets.receive(&mut buffers) => match received {
                    Ok((link, frame)) => self.announcer.receive(link, &frame, read_clock()),
                    Err(error) => {
                        tracing::debug!(%error, "a frame could not be received");
                        tokio::time::sleep(ERROR_DELAY).await;
                        Vec::new()
                    }
                },
            };
            self.perform(&outputs);
            self.follow_ownership();
        }
        let outputs = self.announcer.leave();
        self.perform(&outputs);
        self.follow_ownership();
        self.log_changes();
    }

    /// Reads the interfaces if one has changed.
    fn refresh_links(&mut self) -> Vec<Output> {
        if self.are_links_current {
            return Vec::new();
        }
        let read = base_task::blocking(|| self.selection.read_links());
        let (links, own) = match read {
            Ok(read) => read,
            Err(error) => {
                self.warn_once(
                    "can't list the interfaces; the known ones stay",
                    Some(error),
                );
                return Vec::new();
            }
        };
        if links != self.links {
            let indexes: Vec<_> = links.iter().map(|link| link.index).collect();
            if let Err(error) = self.sockets.set_links(&indexes) {
                let problem = "can't receive from changed interfaces; trying again";
                self.warn_once(problem, Some(error));
                return Vec::new();
            }
            self.links.clone_from(&links);
        }
        self.are_links_current = true;
        match links.is_empty() {
            true => self.warn_once(NO_LINK, None),
            false => self.problem = None,
        }
        self.announcer.set_links(links, own, read_clock())
    }

    fn warn_once(&mut self, problem: &'static str, error: Option<io::Error>) {
        if self.problem != Some(problem) {
            self.problem = Some(problem);
            let error = error.map(tracing::field::display);
            tracing::warn!(error, "{problem}");
        }
    }

    /// Logs the changes since the last tick in one line: a host of the link can cause many.
    fn log_changes(&mut self) {
        self.has_conflict = false;
        let is_full = self.announcer.count_members() >= MAX_MEMBERS;
        if is_full && !self.has_too_many_members {
            tracing::warn!(
                limit = MAX_MEMBERS,
                "too many nodes on the link of load balancers; some announce nothing: exclude nodes by the label \
                 node.kubernetes.io/exclude-from-external-load-balancers"
            );
        }
        self.has_too_many_members = is_full;
        let owned: BTreeSet<_> = self.owned.iter().map(|(_, address)| *address).collect();
        if owned == self.logged {
            return;
        }
        tracing::info!(
            added = list_first(owned.difference(&self.logged)),
            removed = list_first(self.logged.difference(&owned)),
            announced = owned.len(),
            "announced addresses of load balancers changed"
        );
        self.logged = owned;
    }

    fn perform(&mut self, outputs: &[Output]) {
        for output in outputs {
            match output {
                Output::Send { link, frame } => self.send_frame(*link, frame),
                Output::DuplicateName { mac } => tracing::warn!(
                    "{} has the name of this node, too, and announces the same addresses; rename one of them",
                    format_mac(mac)
                ),
                Output::Conflict { address, mac } => {
                    self.metrics.conflicts.inc();
                    if std::mem::replace(&mut self.has_conflict, true) {
                        continue;
                    }
                    let mac = format_mac(mac);
                    tracing::warn!(
                        %address,
                        "{mac} announces an address of this node, too; \
                         take it from that host or out of --load-balancer-pool"
                    );
                }
            }
        }
    }

    fn send_frame(&self, link: u32, frame: &[u8]) {
        let known = self.links.iter().find(|known| known.index == link);
        let device: Option<&LinkAddr> = known.and_then(|known| known.device.as_ref());
        if let Some(Err(error)) = device.map(|device| self.sockets.arp.send(device, frame)) {
            tracing::debug!(%error, link, "a frame could not be sent");
        }
    }

    /// Updates what depends on the addresses of this node.
    fn follow_ownership(&mut self) {
        let members = self.announcer.count_members();
        self.metrics
            .members
            .set(i64::try_from(members).unwrap_or(i64::MAX));
        if self.announcer.version() == self.version {
            return;
        }
        self.version = self.announcer.version();
        let owned: BTreeSet<_> = self.announcer.owned().collect();
        self.groups.update(owned.iter().copied());
        let count = i64::try_from(owned.len()).unwrap_or(i64::MAX);
        self.metrics.addresses.set(count);
        self.owned = owned;
    }
}

fn format_mac([a, b, c, d, e, f]: &[u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// Returns the text of the first 16 addresses.
fn list_first<'a>(addresses: impl Iterator<Item = &'a IpAddr>) -> String {
    let texts: Vec<_> = addresses.take(17).map(ToString::to_string).collect();
    match texts.split_at_checked(16) {
        Some((first, [_, ..])) => format!("{} ...", first.join(" ")),
        _ => texts.join(" "),
    }
}

/// Returns the time since the start of the machine, with the time for which it was suspended: other
/// nodes take the addresses of a suspended one.
fn read_clock() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(now.tv_sec.unsigned_abs(), nanoseconds)
}
