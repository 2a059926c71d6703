//! The sync loop: recomputes the rules of changed Services and applies the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Store;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node as NodeObject, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use net_nft::{TableWatch, TableWork};

use crate::base_chains::{BaseChainOptions, build_base_chains};
use crate::conntrack;
use crate::desired::DesiredRules;
use crate::detect_local::DetectLocal;
use crate::dirty_services::{DirtyServices, object_key};
use crate::health::Health;
use crate::health_checks::Checks;
use crate::local::{LocalNode, primary_addresses};
use crate::metrics::ProxyMetrics;
use crate::nft;
use crate::service_rules::{ServiceRules, build_service_rules};
use crate::settings::Settings;

/// Changes within this time are applied together.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Time after a failed transaction: doubling from the first to the last.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// The state of the loop.
pub(crate) struct Proxy {
    pub(crate) settings: Settings,
    pub(crate) services: Store<Service>,
    pub(crate) slices: Store<EndpointSlice>,
    pub(crate) nodes: Store<NodeObject>,
    pub(crate) service_ranges: Store<ServiceCIDR>,
    pub(crate) node: LocalNode,
    /// The own Node, as it was last.
    pub(crate) node_object: Option<Arc<NodeObject>>,
    pub(crate) desired: DesiredRules,
    pub(crate) checks: Checks,
    pub(crate) figures: ProxyMetrics,
    pub(crate) health: Arc<Health>,
    pub(crate) watch: TableWatch,
    /// End of the last sync.
    pub(crate) synced: Option<tokio::time::Instant>,
}

impl Proxy {
    /// Applies changes until the future is dropped.
    pub(crate) async fn follow_changes(&mut self, dirty: &DirtyServices) {
        // The first sync installs everything: the tables may be those of an earlier proxy with
        // other options.
        let mut whole = true;
        let mut removal = String::new();
        let mut retry_delay = FIRST_RETRY;
        loop {
            if !whole {
                whole = self.wait_for_work(dirty).await;
            }
            let began = Instant::now();
            self.health.record_queued();
            // Taken before the rules are computed, so that a change during the sync causes another
            // one.
            let node_changed = std::mem::take(&mut *dirty.node.lock());
            if whole || node_changed {
                let node = self.read_node();
                // The kubelet writes the Node every few minutes; only a property that the rules
                // depend on matters.
                whole |= node != self.node;
                self.node = node;
            }
            let (keys, triggers) = dirty.take_services();
            self.figures.record_queued(&self.node.families);
            let applied = if whole {
                self.install_all().await
            } else {
                self.apply_changes(&keys, &mut removal).await
            };
            match applied {
                Ok(()) => {
                    let families = &self.node.families;
                    self.figures.record_sync(families, whole, began.elapsed());
                    for (family, since) in triggers.into_values().flatten() {
                        self.figures.record_programming(family, since);
                    }
                    whole = false;
                    retry_delay = FIRST_RETRY;
                    self.synced = Some(tokio::time::Instant::now());
                    self.health.record_success();
                }
                Err(error) => {
                    tracing::error!(%error, "rules could not be applied; all of them will be installed again");
                    whole = true;
                    removal.clear();
                    dirty.restore_triggers(triggers);
                    self.figures.record_failure(&self.node.families);
                    tokio::time::sleep(retry_delay).await;
                    retry_delay = (retry_delay * 2).min(LAST_RETRY);
                    self.watch.begin_repair();
                }
            }
        }
    }

    /// Waits for changes; returns true if everything must be installed again.
    async fn wait_for_work(&mut self, dirty: &DirtyServices) -> bool {
        loop {
            tokio::select! {
                () = dirty.wake.notified() => {
                    self.wait_for_batch().await;
                    return false;
                }
                work = self.watch.wait_for_work() => {
                    if work == TableWork::Check {
                        if nft::are_installed(&self.node.families).await {
                            continue;
                        }
                        self.watch.begin_repair();
                    }
                    tracing::warn!(
                        "another program may have changed the table kube-proxy; all rules will be installed again"
                    );
                    return true;
                }
                () = self.checks.wait_for_retry() => self.checks.retry(),
            }
        }
    }

    /// Waits for more changes: 10 ms, and until the least time between two syncs has passed.
    async fn wait_for_batch(&self) {
        let now = tokio::time::Instant::now();
        let least = self.synced.map(|last| last + self.settings.min_sync_period);
        let soon = now + BATCH_DELAY;
        tokio::time::sleep_until(least.map_or(soon, |least| least.max(soon))).await;
    }

    fn read_node(&mut self) -> LocalNode {
        // A Node that was deleted keeps its last state, as in upstream: a kubelet that registers
        // again must not close node ports meanwhile.
        if let Some(node) = self.nodes.list().into_iter().next() {
            self.health.set_eligible(is_eligible(&node));
            self.node_object = Some(node);
        }
        let object = self.node_object.as_ref();
        let label = |name: &str| object?.metadata.labels.as_ref()?.get(name).cloned();
        let listed = object
            .and_then(|o| o.status.as_ref())
            .and_then(|s| s.addresses.as_deref());
        let settings = &self.settings;
        let own = primary_addresses(listed.unwrap_or_default(), settings.bind_address);
        let (pod_ranges, pod_interface) = match &settings.detect_local {
            DetectLocal::ClusterCidr(ranges) => (ranges.clone(), None),
            DetectLocal::NodeCidr => (
                object.map(|node| read_pod_ranges(node)).unwrap_or_default(),
                None,
            ),
            DetectLocal::Interface(pattern) => (Vec::new(), Some(pattern.clone())),
        };
        LocalNode {
            name: settings.node_name.clone(),
            zone: label("topology.kubernetes.io/zone"),
            families: net_nft::supported_families(),
            pod_ranges,
            pod_interface,
            masquerade_all: settings.masquerade_all,
            node_port_addresses: settings.node_port_addresses.select(&own),
            node_port_families: settings.node_port_addresses.whole_families(),
            service_ranges: read_service_ranges(&self.service_ranges.list()),
            node_addresses: own,
        }
    }

    fn compute_rules(&self, key: &str) -> ServiceRules {
        let Some(service) = self.services.get(key) else {
            return ServiceRules::default();
        };
        build_service_rules(&service, &self.slices.by_index("service", key), &self.node)
    }

    /// Installs everything in one transaction: packets see the old rules or the new ones. Session
    /// affinity is kept.
    async fn install_all(&mut self) -> Result<(), net_nft::Error> {
        let mut desired = DesiredRules::default();
        // Connections that an earlier proxy translated may lead to endpoints that were removed
        // since.
        let mut fronts = BTreeMap::new();
        for service in self.services.list() {
            let key = object_key(&service.metadata);
            let now = self.compute_rules(&key);
            fronts.extend(now.udp.clone());
            desired.set_rules(&key, now);
        }
        let options = BaseChainOptions {
            masquerade_bit: self.settings.masquerade_bit,
            node_port_addresses: self.node.node_port_addresses.clone(),
            node_port_families: self.node.node_port_families.clone(),
            service_ranges: self.node.service_ranges.clone(),
        };
        let mut commands: String = self
            .node
            .families
            .iter()
            .map(|family| build_base_chains(*family, &options))
            .collect();
        commands += &desired.install_commands();
        // Listing all sets takes long on a node with many clients, and most clusters have no
        // affinity.
        if desired.has_affinity() {
            commands += &desired.keep_affinity(&nft::list_sets().await);
        }
        self.watch.discard_changes();
        self.watch.apply(&commands).await?;
        let checks = desired.rules_by_service();
        let checks = checks.filter_map(|(name, rules)| Some((name.clone(), rules.health.clone()?)));
        let addresses = self.node.check_addresses();
        self.checks.set_all(addresses, checks.collect());
        tracing::info!(
            services = desired.rules_by_service().count(),
            bytes = commands.len(),
            "rules installed"
        );
        self.figures.clear_no_local();
        for (_, rules) in desired.rules_by_service() {
            self.figures
                .update_no_local(&ServiceRules::default(), rules);
        }
        self.desired = desired;
        if !fronts.is_empty() {
            let began = Instant::now();
            let listing = conntrack::list_connections().await;
            let stale = conntrack::find_misrouted(&listing, &fronts);
            let deleted = conntrack::delete_connections(&stale).await;
            self.figures.record_conntrack(&deleted, began.elapsed());
        }
        Ok(())
    }

    /// Applies the changed Services only. Unused chains are removed in a second transaction; if
    /// that fails, with the next one.
    async fn apply_changes(
        &mut self,
        keys: &BTreeSet<String>,
        removal: &mut String,
    ) -> Result<(), net_nft::Error> {
        let mut change = String::new();
        let mut stale = Vec::new();
        let mut checks = BTreeMap::new();
        let mut unused = String::new();
        for key in keys {
            let now = self.compute_rules(key);
            let before = self.desired.rules_for(key).cloned().unwrap_or_default();
            if now == before {
                continue;
            }
            stale.extend(conntrack::find_stale(&before.udp, &now.udp));
            checks.insert(key.clone(), now.health.clone());
            self.figures.update_no_local(&before, &now);
            let commands = self.desired.set_rules(key, now);
            change += &commands.change;
            unused += &commands.removal;
        }
        // Before the health checks: a load balancer must not see endpoints that the rules do not
        // reach yet.
        self.watch.apply(&change).await?;
        if !change.is_empty() {
            tracing::debug!(
                services = checks.len(),
                bytes = change.len(),
                "rules changed"
            );
        }
        self.checks.set(checks);
        // After the rules: a client that sends at once would otherwise get an entry for the old
        // endpoint again.
        let began = Instant::now();
        let deleted = conntrack::delete_connections(&stale).await;
        self.figures.record_conntrack(&deleted, began.elapsed());
        // A failure here leaves only unused chains; they are removed with the next change or full
        // install.
        if !unused.is_empty() || !removal.is_empty() {
            removal.push_str(&unused);
            let removed = self.watch.apply(removal).await;
            removed.inspect_err(|_| self.figures.record_cleanup_failure(&self.node.families))?;
            removal.clear();
        }
        Ok(())
    }
}

/// Returns the ranges of all ServiceCIDRs, in a fixed order, so that equal ones cause no
/// installation.
fn read_service_ranges(objects: &[Arc<ServiceCIDR>]) -> Vec<IpNet> {
    let specs = objects.iter().filter_map(|object| object.spec.as_ref());
    let ranges = specs.flat_map(|spec| spec.cidrs.iter().flatten());
    let ranges: BTreeSet<IpNet> = ranges.flat_map(|range| range.parse()).collect();
    ranges.into_iter().collect()
}

fn read_pod_ranges(node: &NodeObject) -> Vec<IpNet> {
    let ranges = node
        .spec
        .as_ref()
        .and_then(|spec| spec.pod_cidrs.as_deref());
    let ranges = ranges.unwrap_or_default().iter();
    ranges.filter_map(|range| range.parse().ok()).collect()
}

/// Returns whether load balancers may send connections to the node: false if it is about to be
/// removed.
fn is_eligible(node: &NodeObject) -> bool {
    // Upstream's agreement with the cluster autoscaler: connections drain before the machine is
    // deleted.
    const REMOVAL: &str = "ToBeDeletedByClusterAutoscaler";
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    node.metadata.deletion_timestamp.is_none() && taints.iter().all(|taint| taint.key != REMOVAL)
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
