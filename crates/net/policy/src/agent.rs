//! The agent of a node: informers record changed objects, and the agent applies the difference.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base_task::Tasks;
use base_telemetry::Metrics;
use client::events::Recorder;
use client::{Client, Event, Informer, ListParams, ObjectExt, Store, object_reference};
use k8s_openapi::api::core::v1::{Container, Namespace, Pod, PodSpec, PodStatus};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use net_nft::{Error, Family, TableWatch, TableWork, apply_commands};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior};

use crate::base_chains::{GuardedNetwork, TABLE, count_installed_objects, have_base_chains};
use crate::bridge::enable_bridge_filtering;
use crate::closing::ClosingReason;
use crate::connections::ConnectionCleaner;
use crate::dirty::DirtyObjects;
use crate::metrics::PolicyMetrics;
use crate::pod::PolicyPod;
use crate::policy::Policy;
use crate::state::PolicyState;
use crate::sync::apply_state;

/// Changes within this time are applied together.
const BATCH_DELAY: Duration = Duration::from_millis(10);
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The agent's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// Name of the node.
    pub node_name: String,
    /// Network of the node's pods.
    pub network: GuardedNetwork,
    /// Interval at which bridges are checked and closed namespaces are tried again; not 0. If the
    /// kernel does not notify of changed rules, these are checked, too.
    pub check_interval: Duration,
}

/// Enforces NetworkPolicies on this node until shutdown. The rules stay.
///
/// If there are no tables, the caller must have installed closed ones: see [`close_new_tables`].
pub async fn run_agent(
    client: Client,
    settings: AgentSettings,
    metrics: Arc<Metrics>,
    tasks: Tasks,
) {
    let dirty = Arc::new(DirtyObjects::default());
    let families = net_nft::supported_families();
    let state = PolicyState::new(families.clone(), settings.network.clone());
    let metrics = PolicyMetrics::new(&metrics);
    let events = Recorder::new(client.clone(), "kube-proxy", &settings.node_name);
    let (pods, namespaces, policies) = start_informers(&client, &dirty, &tasks);
    let mut agent = Agent {
        checks: schedule_checks(settings.check_interval),
        watch: TableWatch::open(TABLE, settings.check_interval),
        settings,
        families,
        pods,
        namespaces,
        policies,
        state,
        cleaner: Arc::default(),
        events,
        metrics,
        bridge_problem: None,
    };
    let shutdown = tasks.shutdown().clone();
    let cleaner = agent.cleaner.clone();
    tokio::select! {
        () = agent.follow_changes(&dirty) => {}
        () = cleaner.delete_entries() => {}
        () = shutdown.cancelled() => {}
    }
}

/// Installs tables that drop packets of this node's pods, if there are none: after a reboot, pods
/// must not start without their policies. Tables of an earlier process stay.
///
/// # Errors
/// `nft` failed.
pub async fn close_new_tables(network: &GuardedNetwork) -> Result<(), Error> {
    let families = net_nft::supported_families();
    if have_base_chains(&families).await {
        return Ok(());
    }
    let state = PolicyState::new(families, network.clone());
    apply_commands(&state.closed_commands()).await
}

/// Event that ends a wait of the agent.
#[derive(Debug, PartialEq, Eq)]
enum Wakeup {
    /// Objects have changed.
    Changes,
    /// Bridges must be checked, and closed namespaces are tried again.
    Check,
    /// The table needs work.
    Table(TableWork),
}

/// Waits for changes, the next check, or work on the table. Changes come last: pods that change all
/// the time would otherwise delay the repair of removed rules without end.
async fn wait_for_wakeup(
    changes: &Notify,
    checks: &mut Interval,
    work: impl Future<Output = TableWork>,
) -> Wakeup {
    tokio::select! {
        biased;
        work = work => Wakeup::Table(work),
        _ = checks.tick() => Wakeup::Check,
        () = changes.notified() => Wakeup::Changes,
    }
}

/// Returns the times of checks; the first one is due after the interval.
fn schedule_checks(interval: Duration) -> Interval {
    let mut checks = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    checks
}

/// The state of the loop.
struct Agent {
    settings: AgentSettings,
    families: Vec<Family>,
    pods: Store<Pod>,
    namespaces: Store<Namespace>,
    policies: Store<NetworkPolicy>,
    state: PolicyState,
    cleaner: Arc<ConnectionCleaner>,
    events: Recorder,
    metrics: PolicyMetrics,
    /// Times of checks.
    checks: Interval,
    watch: TableWatch,
    /// The last problem of bridges that was logged.
    bridge_problem: Option<String>,
}

impl Agent {
    async fn follow_changes(&mut self, dirty: &DirtyObjects) {
        self.check_bridges().await;
        // All three: a policy without the pods that it allows would drop their packets.
        self.pods.wait_until_synced().await;
        self.namespaces.wait_until_synced().await;
        self.policies.wait_until_synced().await;
        // The first sync installs everything: the tables may be those of an earlier process.
        let mut needs_full_install = true;
        loop {
            if !needs_full_install {
                needs_full_install = self.wait_for_work(dirty).await;
            }
            let began = Instant::now();
            // Authors of policies decide how long it takes: it must not delay other tasks.
            base_task::blocking(|| self.read_changes(dirty));
            match self.apply(needs_full_install).await {
                Ok(()) => {
                    needs_full_install = false;
                    self.metrics.syncs.inc();
                    self.metrics.duration.observe_duration(began.elapsed());
                }
                Err(error) => {
                    tracing::error!(
                        %error,
                        "rules of NetworkPolicies could not be applied; until all of them are installed again, they are older than the policies \
                         (metric network_policy_enforced)"
                    );
                    needs_full_install = true;
                    self.metrics.failures.inc();
                }
            }
            self.report_state(needs_full_install);
            if needs_full_install {
                tokio::time::sleep(RETRY_DELAY).await;
                self.watch.begin_repair();
            }
        }
    }

    /// Sets the metrics of the state, and records an event for each policy that was closed.
    fn report_state(&mut self, needs_full_install: bool) {
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.policies.set(gauge(self.state.policy_count()));
        self.metrics
            .closed
            .set(gauge(self.state.count_closed_policies()));
        let enforced = !needs_full_install && self.bridge_problem.is_none();
        self.metrics.enforced.set(i64::from(enforced));
        for (key, reason) in self.state.take_newly_closed() {
            let message = match reason {
                ClosingReason::Limit => {
                    "The policies of the namespace exceed a limit. This policy allows nothing on this node"
                }
                ClosingReason::Transaction => {
                    "The rules of the namespace could not be applied. This policy allows nothing on this node"
                }
            };
            tracing::warn!(policy = %key, message);
            if let Some(policy) = self.policies.get(&key) {
                let regarding = object_reference(&*policy);
                self.events.warning(&regarding, "PolicyClosed", message);
            }
        }
    }

    /// Waits for changes; returns true if everything must be installed again.
    async fn wait_for_work(&mut self, dirty: &DirtyObjects) -> bool {
        loop {
            let work = self.watch.wait_for_work();
            match wait_for_wakeup(&dirty.wake, &mut self.checks, work).await {
                Wakeup::Changes => {
                    tokio::time::sleep(BATCH_DELAY).await;
                    return false;
                }
                Wakeup::Check => {
                    self.check_bridges().await;
                    if self.state.retry_closed() {
                        return false;
                    }
                }
                Wakeup::Table(work) => {
                    if self.needs_repair(work).await {
                        return true;
                    }
                }
            }
        }
    }

    /// Returns whether all rules must be installed again.
    async fn needs_repair(&mut self, work: TableWork) -> bool {
        if work == TableWork::Check {
            if self.has_all_objects().await {
                return false;
            }
            self.watch.begin_repair();
        }
        tracing::warn!(
            "another program may have changed rules of NetworkPolicies; all of them will be installed again"
        );
        true
    }

    /// Returns whether the tables have as many chains, rules and sets as the state. If `nft` fails,
    /// they count as complete.
    async fn has_all_objects(&self) -> bool {
        for family in &self.families {
            let expected = base_task::blocking(|| self.state.count_objects(*family));
            let installed = count_installed_objects(*family).await;
            if installed.is_some_and(|installed| installed != expected) {
                return false;
            }
        }
        true
    }

    /// Updates the state from the informers. Namespaces and policies come first, so that pods are
    /// compared with the current ones.
    fn read_changes(&mut self, dirty: &DirtyObjects) {
        for key in dirty.namespaces.take() {
            let object = self.namespaces.get(&key);
            let labels = object.map(|object| object.metadata.labels.clone().unwrap_or_default());
            self.state.set_namespace(&key, labels);
        }
        for key in dirty.policies.take() {
            let object = self.policies.get(&key);
            let policy = object.map(|object| Policy::new(&object));
            let ignored = policy.as_ref().map_or(0, |policy| policy.ignored_selectors);
            if ignored > 0 {
                tracing::warn!(policy = %key, ignored, "the policy has too many selectors; the last ones allow nothing");
            }
            self.state.set_policy(&key, policy);
        }
        for key in dirty.pods.take() {
            let object = self.pods.get(&key);
            let pod = object.and_then(|pod| PolicyPod::new(&pod, &self.settings.node_name));
            self.state.set_pod(&key, pod);
        }
    }

    async fn apply(&mut self, is_full: bool) -> Result<(), Error> {
        if is_full {
            self.watch.discard_changes();
        }
        // Transactions follow each other, so the lock is free each time.
        let watch = tokio::sync::Mutex::new(&mut self.watch);
        let watch = &watch;
        let apply = |commands: String| async move { watch.lock().await.apply(&commands).await };
        apply_state(&mut self.state, is_full, apply).await?;
        // After the rules, which decide about the next packet.
        self.cleaner.add(self.state.take_stale_addresses());
        Ok(())
    }

    async fn check_bridges(&mut self) {
        let problem = base_task::blocking(enable_bridge_filtering)
            .err()
            .map(|error| error.to_string());
        if let Some(problem) = &problem
            && self.bridge_problem.as_ref() != Some(problem)
        {
            tracing::error!("{problem}");
        }
        self.bridge_problem = problem;
    }
}

type Stores = (Store<Pod>, Store<Namespace>, Store<NetworkPolicy>);

fn start_informers(client: &Client, dirty: &Arc<DirtyObjects>, tasks: &Tasks) -> Stores {
    // The server leaves out pods that have terminated, and sends their end as a deletion.
    let running = ListParams::new().with_fields("status.phase!=Succeeded,status.phase!=Failed");
    let marks = dirty.clone();
    let pods = Informer::new(client.api::<Pod>(), running)
        .transform(trim_pod)
        .on_event(move |event: Event<Pod>| marks.mark_pod(event.object().key()))
        .spawn(tasks);
    let marks = dirty.clone();
    let namespaces = Informer::new(client.api::<Namespace>(), ListParams::new())
        .on_event(move |event: Event<Namespace>| marks.mark_namespace(event.object().key()))
        .spawn(tasks);
    let marks = dirty.clone();
    let policies = Informer::new(client.api::<NetworkPolicy>(), ListParams::new())
        .on_event(move |event: Event<NetworkPolicy>| marks.mark_policy(event.object().key()))
        .spawn(tasks);
    (pods, namespaces, policies)
}

/// Drops what the rules do not depend on: every node holds all pods of the cluster.
fn trim_pod(pod: &mut Pod) {
    pod.metadata.annotations = None;
    pod.metadata.owner_references = None;
    pod.metadata.finalizers = None;
    if let Some(spec) = pod.spec.take() {
        pod.spec = Some(PodSpec {
            containers: spec.containers.into_iter().map(trim_container).collect(),
            init_containers: spec
                .init_containers
                .map(|list| list.into_iter().map(trim_container).collect()),
            host_network: spec.host_network,
            node_name: spec.node_name,
            ..PodSpec::default()
        });
    }
    if let Some(status) = pod.status.take() {
        pod.status = Some(PodStatus {
            phase: status.phase,
            pod_ip: status.pod_ip,
            pod_ips: status.pod_ips,
            ..PodStatus::default()
        });
    }
}

fn trim_container(container: Container) -> Container {
    Container {
        ports: container.ports,
        restart_policy: container.restart_policy,
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn checks_are_due_while_changes_arrive() {
        const INTERVAL: Duration = Duration::from_secs(30);
        let changes = Notify::new();
        let mut checks = schedule_checks(INTERVAL);
        let began = tokio::time::Instant::now();
        for round in 1..3 {
            changes.notify_one();
            while wait_for_wakeup(&changes, &mut checks, pending()).await == Wakeup::Changes {
                // A sync, in which more objects change.
                tokio::time::sleep(Duration::from_millis(50)).await;
                changes.notify_one();
                assert!(began.elapsed() < (INTERVAL + BATCH_DELAY * 10) * round);
            }
        }
        let repair = std::future::ready(TableWork::Repair);
        let repaired = wait_for_wakeup(&changes, &mut checks, repair).await;
        assert_eq!(repaired, Wakeup::Table(TableWork::Repair));
        let changed = wait_for_wakeup(&changes, &mut checks, pending()).await;
        assert_eq!(changed, Wakeup::Changes, "the others lose no change");
    }
}
