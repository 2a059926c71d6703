//! The worker's loop.

use super::admit::Refusal;
use super::messages::{Done, Message};
use super::probing::Probes;
use super::registry::Shown;
use super::resize::Resizes;
use super::tell::Teller;
use crate::context::{Node, now};
use crate::make::fields::Addresses;
use crate::pod::memory::{Cause, ContainerMemory, Ending, Memory, Work};
use crate::pod::plan::{Facts, plan};
use crate::pod::spec;
use crate::pod::status::{Surroundings, status};
use crate::pod::view::{Instance, Observed, State};
use crate::pod::{Nanos, SECOND};
use crate::volumes::{Tokens, Volumes};
use base_task::CancellationToken;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{self, JoinSet};

/// How often an exit that was announced is looked for before it is left to the next listing.
const LOOKS: u32 = 10;
/// What the runtime says of a container that was ended for its memory.
const OUT_OF_MEMORY: &str = "OOMKilled";
/// Before the second look; doubled for each further one.
const NEXT_LOOK: Nanos = SECOND / 50;

/// One pod.
pub(crate) struct Worker {
    pub(super) node: Arc<Node>,
    pub(super) pod: Arc<Pod>,
    pub(super) uid: String,
    /// From a manifest on this node.
    pub(super) is_static: bool,
    pub(super) observed: Observed,
    pub(super) memory: Memory,
    pub(super) volumes: Volumes,
    pub(super) tokens: Arc<Tokens>,
    pub(super) inbox: UnboundedReceiver<Message>,
    pub(super) sender: UnboundedSender<Message>,
    pub(super) jobs: JoinSet<Done>,
    pub(super) probes: Probes,
    pub(super) teller: Teller,
    pub(super) told: PodStatus,
    pub(super) shown: Arc<RwLock<Shown>>,
    pub(super) first_seen: Nanos,
    /// Failures in a row of volumes and of the sandbox.
    pub(super) failures: (u32, u32),
    /// Ended through the API or by the manifest's removal: to be cleaned up when it has ended.
    pub(super) goes: bool,
    /// The API server has forgotten it.
    pub(super) forgotten: bool,
    /// The API's status is final and stays as it is.
    pub(super) frozen: bool,
    /// Cancelled when the pod's end begins: starts that still wait for an image or a hook are given up.
    pub(super) over: CancellationToken,
    pub(super) wake: Option<Nanos>,
    pub(super) looks: BTreeMap<String, u32>,
    /// Containers out of memory: the runtime may tell that they ended before it knows why.
    pub(super) starved: BTreeSet<String>,
    pub(super) backoffs_told: BTreeSet<String>,
    pub(super) resizes: Resizes,
    /// Something changed while the volumes were being made: they are made once more.
    pub(super) stale: bool,
    /// The work of jobs under way, for the case that one panics.
    pub(super) works: HashMap<task::Id, Work>,
}

/// Starts a pod's worker.
pub(crate) fn spawn(node: &Arc<Node>, pod: Arc<Pod>, is_static: bool) {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let (sender, inbox) = unbounded_channel();
    let told = pod.status.clone().unwrap_or_default();
    let shown = Shown {
        pod: pod.clone(),
        status: Arc::new(told.clone()),
        observed: Arc::default(),
        // A pod of an earlier life of the kubelet was admitted then; a new one counts from its admission on.
        active: told.start_time.is_some() && !matches!(told.phase.as_deref(), Some("Succeeded" | "Failed")),
        is_static,
        wanted: true,
    };
    let shown = Arc::new(RwLock::new(shown));
    node.workers.add(&uid, sender.clone(), shown.clone());
    node.objects.register(&pod);
    let worker = Worker {
        teller: Teller::spawn(node, &pod, is_static),
        node: node.clone(),
        pod,
        uid,
        is_static,
        observed: Observed::default(),
        memory: Memory::default(),
        volumes: Volumes::default(),
        tokens: Arc::default(),
        inbox,
        sender,
        jobs: JoinSet::new(),
        probes: Probes::default(),
        told,
        shown,
        first_seen: now(),
        failures: (0, 0),
        goes: false,
        forgotten: false,
        frozen: false,
        over: CancellationToken::new(),
        wake: None,
        looks: BTreeMap::new(),
        starved: BTreeSet::new(),
        backoffs_told: BTreeSet::new(),
        resizes: Resizes::default(),
        stale: false,
        works: HashMap::new(),
    };
    node.tasks.spawn("pod worker", worker.run());
}

impl Worker {
    async fn run(mut self) {
        let shutdown = self.node.tasks.shutdown().clone();
        self.begin().await;
        loop {
            self.step();
            if self.memory.ended && self.goes && self.jobs.is_empty() {
                break;
            }
            let sleep = self.sleep();
            let mut look = tokio::select! {
                () = shutdown.cancelled() => {
                    self.jobs.detach_all();
                    return;
                }
                Some(message) = self.inbox.recv() => self.take(message),
                Some(ended) = self.jobs.join_next_with_id() => self.take_in(ended),
                () = tokio::time::sleep(sleep) => self.wakes(),
            };
            while let Ok(message) = self.inbox.try_recv() {
                look |= self.take(message);
            }
            if look {
                self.look().await;
            }
        }
        self.clean_up().await;
    }

    /// What is there already, and whether the pod may run at all.
    async fn begin(&mut self) {
        // A new pod has nothing at the runtime: it need not be asked.
        if self.told.start_time.is_some() || self.is_static {
            // Nothing may be made before it is known what there is.
            while !self.look().await {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        if matches!(self.told.phase.as_deref(), Some("Succeeded" | "Failed")) {
            self.frozen = true;
            self.end(Cause::Finished, 0);
        } else if self.observed.sandboxes.is_empty()
            && self.told.start_time.is_none()
            && let Some(refusal) = self.admit()
        {
            let about = crate::context::reference(&self.pod, None);
            self.node.recorder.warning(&about, &refusal.reason, refusal.message.clone());
            self.end(Cause::Failed { reason: refusal.reason, message: refusal.message }, 0);
        } else {
            self.shown.write().active = true;
            // A change that was made while no kubelet ran.
            self.resize();
        }
        self.wanted();
    }

    /// Decides whether the node takes the pod, and counts it from then on.
    fn admit(&self) -> Option<Refusal> {
        let _turn = self.node.workers.admission();
        let refusal = super::admit(&self.node, &self.pod);
        self.shown.write().active = refusal.is_none();
        refusal
    }

    /// Until the next time something is due.
    fn sleep(&self) -> Duration {
        let refresh = self.volumes.refresh_at.and_then(|t| i64::try_from(t.as_nanosecond()).ok());
        let due = [self.wake, refresh, self.deadline(), self.resizes.again].into_iter().flatten().min();
        let wait = due.map_or(3_600 * SECOND, |due| due - now());
        Duration::from_nanos(u64::try_from(wait).unwrap_or_default()).max(Duration::from_millis(1))
    }

    /// When activeDeadlineSeconds is over.
    fn deadline(&self) -> Option<Nanos> {
        if self.memory.ending.is_some() {
            return None;
        }
        let limit = spec::spec(&self.pod).active_deadline_seconds?;
        let begun = self.told.start_time.as_ref().map_or(self.first_seen, |t| t.0.as_second() * SECOND);
        Some(begun + limit * SECOND)
    }

    fn wakes(&mut self) -> bool {
        let time = now();
        let over = |at: Option<Nanos>| at.is_some_and(|at| at <= time);
        if over(self.deadline()) {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            let about = crate::context::reference(&self.pod, None);
            self.node.recorder.normal(&about, "DeadlineExceeded", message.clone());
            self.end(Cause::Failed { reason: "DeadlineExceeded".into(), message }, spec::grace(&self.pod));
        }
        if over(self.volumes.refresh_at.and_then(|t| i64::try_from(t.as_nanosecond()).ok())) {
            self.refresh();
        }
        if over(self.resizes.again) {
            self.resize();
        }
        !self.looks.is_empty()
    }

    /// Plans, starts the work, tells the status.
    fn step(&mut self) {
        self.wake = self.looks.values().map(|looks| now() + (NEXT_LOOK << (*looks).min(6))).min();
        self.replace_changed();
        loop {
            let facts = Facts { pod: &self.pod, observed: &self.observed, memory: &self.memory, now: now() };
            let commands = plan(facts);
            let mut again = false;
            for command in commands {
                again |= self.execute(command);
            }
            if !again {
                break;
            }
        }
        self.probe();
        self.say();
    }

    pub(super) fn addresses(&self) -> Addresses {
        let host_ips = self.node.ips.clone();
        let pod_ips = match self.observed.sandbox() {
            _ if spec::host_network(&self.pod) => host_ips.clone(),
            Some(sandbox) => sandbox.ips.clone(),
            None => Vec::new(),
        };
        Addresses { pod_ips, host_ips }
    }

    /// Computes the status and hands it on if it is new.
    pub(super) fn say(&mut self) {
        let facts = Facts { pod: &self.pod, observed: &self.observed, memory: &self.memory, now: now() };
        let around = Surroundings {
            node_ips: &self.node.ips,
            runtime: &self.node.runtime_name,
            before: &self.told,
            first_seen: self.first_seen,
        };
        let new = if self.frozen { self.told.clone() } else { status(facts, around) };
        if new != self.told {
            self.teller.tell(new.clone());
            self.told = new;
        }
        let mut shown = self.shown.write();
        shown.pod = self.pod.clone();
        shown.status = Arc::new(self.told.clone());
        shown.observed = Arc::new(self.observed.clone());
        shown.active = !self.memory.ended && !matches!(self.told.phase.as_deref(), Some("Succeeded" | "Failed"));
        shown.wanted = !self.goes;
        drop(shown);
        let running = self.observed.all().filter(|i| i.running());
        for id in running.filter(|i| self.node.workers.ended_early(&i.id)).map(|i| i.id.clone()).collect::<Vec<_>>() {
            // The worker's own inbox: it lives as long as the worker.
            let _ = self.sender.send(Message::Changed(Some(id)));
        }
    }

    /// Asks the runtime for everything of the pod; false when it does not answer.
    async fn look(&mut self) -> bool {
        match super::observe::observe(&self.node, &self.pod, &self.observed, &self.starved).await {
            Ok(observed) => self.observed = observed,
            Err(e) => {
                tracing::warn!(pod = spec::full_name(&self.pod), error = %e, "the runtime can't be asked");
                self.wake = Some(now() + SECOND);
                return false;
            }
        }
        let (observed, starved) = (&self.observed, &self.starved);
        let unsure = |i: &Instance| i.running() || (starved.contains(&i.id) && i.reason != OUT_OF_MEMORY);
        self.looks.retain(|id, looks| {
            *looks += 1;
            *looks <= LOOKS && observed.by_id(id).is_some_and(unsure)
        });
        self.starved.retain(|id| self.looks.contains_key(id));
        self.adopt();
        true
    }

    /// Instances that this worker did not start itself: those of an earlier life of the kubelet.
    fn adopt(&mut self) {
        for (_, name) in spec::names(&self.pod) {
            let Some(latest) = self.observed.latest(&name) else { continue };
            if self.memory.busy_with(&name) || self.memory.of_instance(&name, &latest.id).is_some() {
                continue;
            }
            let full = format!("{}://{}", self.node.runtime_name, latest.id);
            let lists = [&self.told.container_statuses, &self.told.init_container_statuses];
            let before = lists.into_iter().flatten().flatten().find(|s| s.container_id.as_deref() == Some(&full));
            let (id, running) = (latest.id.clone(), latest.running());
            let verdicts = before.filter(|_| running).map(|s| (s.started, s.ready));
            let memory = self.memory.of(&name);
            memory.instance = id;
            memory.hooked = true;
            memory.started = verdicts.and_then(|v| v.0);
            memory.ready = verdicts.map(|v| v.1);
        }
    }

    /// Begins the pod's end, or shortens what is left of it; `grace` in seconds.
    pub(super) fn end(&mut self, cause: Cause, grace: i64) {
        self.over.cancel();
        let deadline = if grace <= 0 { 0 } else { now() + grace * SECOND };
        match &mut self.memory.ending {
            None => self.memory.ending = Some(Ending { cause, deadline }),
            Some(ending) if deadline < ending.deadline => {
                ending.deadline = deadline;
                self.hurry(grace);
            }
            Some(_) => {}
        }
    }

    /// What the pod object asks for beside its spec.
    fn wanted(&mut self) {
        if self.pod.metadata.deletion_timestamp.is_some() {
            self.goes = true;
            let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or_else(|| spec::grace(&self.pod));
            self.end(Cause::Deleted, grace);
        }
    }

    /// True when the runtime must be asked.
    fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Pod(pod) => self.update(pod),
            Message::Removed(pod) => {
                let given = pod.metadata.deletion_grace_period_seconds.unwrap_or_else(|| spec::grace(&self.pod));
                (self.goes, self.forgotten) = (true, true);
                self.end(Cause::Removed, given.max(1));
            }
            Message::Changed(id) => {
                if let Some(id) = id {
                    self.looks.insert(id, 0);
                }
                return true;
            }
            Message::OutOfMemory(id) => {
                self.starved.insert(id.clone());
                self.looks.insert(id, 0);
                return true;
            }
            Message::Refresh => self.refresh(),
            Message::Mirrored => self.teller.tell(self.told.clone()),
            Message::Started(instance) => self.observed.put(instance),
            Message::Probe { name, id, kind, report } => self.report(&name, &id, kind, report),
            Message::Evict(reason, message) => {
                let about = crate::context::reference(&self.pod, None);
                self.node.recorder.warning(&about, &reason, message.clone());
                self.end(Cause::Failed { reason, message }, 0);
            }
        }
        false
    }

    fn update(&mut self, pod: Arc<Pod>) {
        let metadata = |p: &Pod| (p.metadata.labels.clone(), p.metadata.annotations.clone());
        let changed = metadata(&pod) != metadata(&self.pod);
        let spec_changed = pod.spec != self.pod.spec;
        self.pod = pod;
        self.wanted();
        if spec_changed {
            self.node.objects.register(&self.pod);
            self.resize();
        }
        if changed {
            self.refresh();
        }
    }

    /// The memory of a container whose instance is `id`.
    pub(super) fn memory_of(&mut self, name: &str, id: &str) -> Option<&mut ContainerMemory> {
        self.memory.containers.get_mut(name).filter(|m| m.instance == id)
    }

    pub(super) fn ended_instances(&self, name: &str) -> Vec<Instance> {
        let all = self.observed.instances.get(name).into_iter().flatten();
        all.filter(|i| i.state == State::Exited).cloned().collect()
    }
}
