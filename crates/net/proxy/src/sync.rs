//! The sync loop: recomputes the rules of changed Services and applies the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Store;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node as NodeObject, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use net_nft::Family;

use crate::backend::{Backend, Error, remove_other_mode};
use crate::base_chains::BaseChainOptions;
use crate::conntrack;
use crate::desired::DesiredRules;
use crate::detect_local::DetectLocal;
use crate::dirty_services::{DirtyServices, Triggers};
use crate::health::Health;
use crate::health_checks::Checks;
use crate::local::{LocalNode, all_addresses, primary_addresses};
use crate::metrics::ProxyMetrics;
use crate::retry::Retry;
use crate::service_rules::{ServiceRules, build_service_rules};
use crate::settings::Settings;

/// Changes within this time after a sync are applied together.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Time after a failed transaction: doubling from the first to the last.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Longest time between two attempts to remove rules of the other mode.
const LAST_REMOVAL: Duration = Duration::from_secs(600);

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
    pub(crate) backend: Backend,
    /// Families that are served.
    pub(crate) families: Vec<Family>,
    /// The next installation of families that failed while the other one succeeded.
    pub(crate) family_retry: Retry,
    /// The next removal of rules of the other mode.
    pub(crate) removal_retry: Retry,
    /// End of the last sync.
    pub(crate) synced: Option<tokio::time::Instant>,
}

impl Proxy {
    /// Applies changes until the future is dropped.
    pub(crate) async fn follow_changes(&mut self, dirty: &DirtyServices) {
        // The first sync installs everything: the tables may be those of an earlier proxy with
        // other options.
        let mut whole = true;
        let mut first = true;
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
                self.apply_changes(&keys).await
            };
            match applied {
                Ok(()) => {
                    self.record_sync(whole, began.elapsed(), triggers);
                    whole = false;
                    retry_delay = FIRST_RETRY;
                    if std::mem::take(&mut first) {
                        self.remove_other_mode().await;
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "rules could not be applied; all of them will be installed again");
                    whole = true;
                    dirty.restore_triggers(triggers);
                    self.figures.record_failure(&self.node.families);
                    tokio::time::sleep(retry_delay).await;
                    retry_delay = (retry_delay * 2).min(LAST_RETRY);
                    self.backend.begin_repair();
                }
            }
        }
    }

    fn record_sync(&mut self, whole: bool, took: Duration, triggers: Triggers) {
        let families = self.working_families();
        self.figures.record_sync(&families, whole, took);
        for (family, since) in triggers.into_values().flatten() {
            if families.contains(&family) {
                self.figures.record_programming(family, since);
            }
        }
        self.synced = Some(tokio::time::Instant::now());
        // With a family that failed, the start of the first sync without it counts on.
        if self.backend.failed_families().is_empty() {
            self.family_retry.clear();
            self.health.record_success();
        }
    }

    fn working_families(&self) -> Vec<Family> {
        let failed = self.backend.failed_families();
        let works = |family: &&Family| !failed.contains(family);
        self.node.families.iter().filter(works).copied().collect()
    }

    /// Installs the families again that failed while the other one succeeded.
    async fn retry_families(&mut self) {
        let began = Instant::now();
        let families = self.backend.failed_families().to_vec();
        let options = self.base_options();
        let applied = self.backend.install(&self.desired, &families, &options);
        match applied.await {
            Ok(applied) => {
                self.record_failures(applied.failures);
                self.record_sync(true, began.elapsed(), Triggers::default());
            }
            Err(error) => {
                let failures = families.into_iter().map(|family| (family, &error));
                failures.for_each(|(family, error)| self.record_failed_family(family, error));
            }
        }
    }

    fn record_failures(&mut self, failures: Vec<(Family, Error)>) {
        for (family, error) in failures {
            self.record_failed_family(family, &error);
        }
    }

    fn record_failed_family(&mut self, family: Family, error: &Error) {
        tracing::error!(%error, family = family.api_name(), "rules of one family could not be installed; that is tried again");
        self.figures.record_failure(&[family]);
        self.family_retry.schedule(FIRST_RETRY, LAST_RETRY);
    }

    /// Removes the rules of the other mode except in families whose own rules are not installed.
    /// They are older, and the connections that they translate are not translated again.
    async fn remove_other_mode(&mut self) {
        let failed = self.backend.failed_families();
        let complete = failed.is_empty();
        let mut families = net_nft::supported_families();
        families.retain(|family| !failed.contains(family));
        match remove_other_mode(&self.settings.mode, &families).await {
            Ok(()) if complete => self.removal_retry.clear(),
            Ok(()) => self.schedule_removal(),
            // A program that is not installed is not installed soon.
            Err(error) if error.is_absent() => {
                tracing::warn!(%error, "there may be rules of the other proxy mode, which translate connections to former endpoints; remove them with the program, or restart the node");
                self.removal_retry.clear();
            }
            Err(error) => {
                tracing::warn!(%error, "rules of the other proxy mode could not be removed; that is tried again");
                self.schedule_removal();
            }
        }
    }

    fn schedule_removal(&mut self) {
        let first = self.settings.sync_period;
        self.removal_retry.schedule(first, LAST_REMOVAL);
    }

    /// Waits for changes; returns true if everything must be installed again.
    async fn wait_for_work(&mut self, dirty: &DirtyServices) -> bool {
        loop {
            tokio::select! {
                // Changes last: a Service that changes all the time must not prevent repairs.
                biased;
                work = self.backend.wait_for_work() => {
                    if self.backend.needs_repair(work, &self.node.families).await {
                        tracing::warn!(
                            "another program may have changed the rules of kube-proxy; all of them will be installed again"
                        );
                        return true;
                    }
                }
                () = self.family_retry.wait() => self.retry_families().await,
                () = self.removal_retry.wait() => self.remove_other_mode().await,
                () = self.checks.wait_for_retry() => self.checks.retry(),
                () = dirty.wake.notified() => {
                    self.wait_for_batch().await;
                    return false;
                }
            }
        }
    }

    /// Waits until the least time between two syncs has passed. A change after a pause is applied
    /// at once, and those that follow it are applied together.
    async fn wait_for_batch(&self) {
        let least = self.settings.min_sync_period.max(BATCH_DELAY);
        if let Some(last) = self.synced {
            tokio::time::sleep_until(last + least).await;
        }
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
            families: self.families.clone(),
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

    fn base_options(&self) -> BaseChainOptions {
        BaseChainOptions {
            masquerade_bit: self.settings.masquerade_bit,
            node_port_addresses: self.node.node_port_addresses.clone(),
            node_port_families: self.node.node_port_families.clone(),
            service_ranges: self.node.service_ranges.clone(),
            masquerade: self.node.masquerade(),
        }
    }

    /// Installs everything, and starts what depends on it.
    async fn install_all(&mut self) -> Result<(), Error> {
        let mut desired = self.backend.desired_rules();
        // Connections that an earlier proxy translated may lead to endpoints that were removed
        // since.
        let mut fronts = BTreeMap::new();
        // One by one: the store decodes an object when it is read.
        for key in self.services.keys() {
            let now = self.compute_rules(&key);
            fronts.extend(now.udp.clone());
            desired.set_rules(&key, now);
        }
        let options = self.base_options();
        let families = self.node.families.clone();
        let applied = self.backend.install(&desired, &families, &options).await?;
        let checks = desired.rules_by_service();
        let checks =
            checks.filter_map(|(name, rules)| Some((name.to_string(), rules.health.clone()?)));
        let addresses = self.node.check_addresses();
        self.checks.set_all(addresses, checks.collect());
        tracing::info!(
            services = desired.rules_by_service().count(),
            bytes = applied.bytes,
            "rules installed"
        );
        self.record_failures(applied.failures);
        self.figures.clear_no_local();
        for (_, rules) in desired.rules_by_service() {
            self.figures
                .update_no_local(&ServiceRules::default(), rules);
        }
        self.desired = desired;
        if !fronts.is_empty() {
            let began = Instant::now();
            let listing = conntrack::list_connections().await;
            let fronts = conntrack::expand_fronts(&fronts, all_addresses);
            let stale = conntrack::find_misrouted(&listing, &fronts);
            let deleted = conntrack::delete_connections(&stale).await;
            self.figures.record_conntrack(&deleted, began.elapsed());
        }
        Ok(())
    }

    /// Applies the changed Services only. Unused chains are removed in a second transaction; if
    /// that fails, with the next one.
    async fn apply_changes(&mut self, keys: &BTreeSet<String>) -> Result<(), Error> {
        let mut changes = Vec::new();
        let mut stale = Vec::new();
        let mut checks = BTreeMap::new();
        for key in keys {
            let mut now = self.compute_rules(key);
            let before = self.desired.rules_for(key).cloned().unwrap_or_default();
            now.keep_order(&before);
            if now == before {
                continue;
            }
            let expand = |rules: &ServiceRules| conntrack::expand_fronts(&rules.udp, all_addresses);
            stale.extend(conntrack::find_stale(&expand(&before), &expand(&now)));
            checks.insert(key.clone(), now.health.clone());
            self.figures.update_no_local(&before, &now);
            changes.push(self.desired.set_rules(key, now));
        }
        // Before the health checks: a load balancer must not see endpoints that the rules do not
        // reach yet.
        let applied = self.backend.change(&changes).await?;
        if applied.bytes > 0 {
            tracing::debug!(
                services = checks.len(),
                bytes = applied.bytes,
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
        let removed = self.backend.remove_unused().await;
        removed.inspect_err(|_| self.figures.record_cleanup_failure(&self.node.families))?;
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
