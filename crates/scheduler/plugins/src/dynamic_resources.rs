//! DynamicResources: a pod's ResourceClaims need devices that its node can reach.
//!
//! PreFilter reads the claims, Filter allocates devices for each node, Reserve notes the allocation
//! of the chosen node in the ledger, and [`DynamicResourceBinder`] writes it before the pod is
//! bound.

mod binder;
mod claims;
mod conditions;
mod hard_claims;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_semantics::devices::{FINALIZER, claims_of_pod, is_allocated, is_reserved_for};
use api_semantics::selectors::node_matches;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use parking_lot::Mutex;
use scheduler_devices::{Allocator, Failure, Limits, Problem, Selectors};
use scheduler_framework::{
    Cluster, ClusterEvent, CycleState, Diagnosis, EventKind, ExtensionPoints, Filter, NodeInfo,
    Plugin, PluginsRunner, PodInfo, PostFilter, PostFilterResult, PreFilter, PreFilterResult,
    PreScore, Rejection, Reserve, Score, Snapshot,
};
use serde_json::Value;

use crate::score::default_normalize_scores;
pub use binder::DynamicResourceBinder;
use claims::read_claims;
use conditions::{Settings, has_failed};
use hard_claims::{HardClaims, MANY_STEPS};

const NAME: &str = "DynamicResources";
const NOT_HERE: &str = "resourceclaim not available on the node";
const NOT_LISTED: &str = "ResourceClaims, ResourceSlices and DeviceClasses are not listed yet";

/// Time for the claims of one pod on all nodes. One task schedules all pods, so that a claim that
/// needs longer would delay the pods of other tenants.
const ATTEMPT_TIME: Duration = Duration::from_secs(1);
/// Time for claims whose search came to no end before. Many pods may name one.
const HARD_ATTEMPT_TIME: Duration = Duration::from_millis(100);
/// Largest number of alternatives of a request.
const MAX_ALTERNATIVES: usize = 8;

pub(crate) struct DynamicResources {
    cluster: Arc<dyn Cluster>,
    selectors: Selectors,
    settings: Settings,
    hard: Arc<HardClaims>,
}

/// The claims of the pod of this attempt.
#[derive(Clone)]
struct PodDevices(Arc<Attempt>);

struct Attempt {
    claims: Vec<Arc<ResourceClaim>>,
    /// Allocates the claims without an allocation; None if there are none.
    allocator: Option<Allocator>,
    /// The claims without an allocation.
    free: Vec<Arc<ResourceClaim>>,
    hard: Arc<HardClaims>,
    time: Duration,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    spent: Duration,
    /// Results by node. The filters of a node run several times.
    nodes: HashMap<Arc<str>, Result<Arc<Vec<AllocationResult>>, Rejection>>,
    /// Indexes of allocated claims that a node can't use.
    unavailable: BTreeSet<usize>,
}

/// The claims with the allocations of the chosen node.
#[derive(Clone)]
struct Decided(Arc<Vec<(Arc<ResourceClaim>, Option<AllocationResult>)>>);

impl Plugin for DynamicResources {
    const NAME: &'static str = NAME;

    fn new(args: &Value, cluster: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self {
            cluster: cluster.clone(),
            selectors: Selectors::default(),
            settings: Settings::from_args(args)?,
            hard: Arc::default(),
        })
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_filter(&self);
        points.filter(&self);
        points.post_filter(&self);
        points.pre_score(&self);
        points.score(&self);
        points.reserve(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        &[
            EventKind::ResourceClaimChanged,
            EventKind::DevicesChanged,
            EventKind::NodeAdded,
            EventKind::NodeLabels,
            EventKind::PodUpdated,
            EventKind::AssignedPodDeleted,
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        match event {
            // Freed devices may help any pod, another change of a claim only its own ones.
            ClusterEvent::ResourceClaimChanged {
                namespace,
                name,
                freed,
            } => *freed || claims::uses_claim(pod, namespace, name),
            // Its binding may have failed, so that its devices were not allocated after all.
            ClusterEvent::AssignedPodDeleted(gone) => !claims_of_pod(&gone.pod).is_empty(),
            _ => true,
        }
    }
}

fn unresolvable(reason: impl Into<String>) -> Rejection {
    Rejection::unresolvable(NAME, reason.into())
}

impl DynamicResources {
    fn prepare_attempt(&self, pod: &PodInfo) -> Result<Attempt, Rejection> {
        let view = self.cluster.device_view();
        if !view.has_synced() {
            return Err(Rejection::error(NAME, NOT_LISTED));
        }
        let claims = read_claims(view, pod).map_err(unresolvable)?;
        let free = claims.iter().filter(|claim| !is_allocated(claim)).cloned();
        let free: Vec<_> = free.collect();
        let longest = if self.hard.contains_any(&free) {
            HARD_ATTEMPT_TIME
        } else {
            ATTEMPT_TIME
        };
        let given = self.settings.filter_timeout;
        let time = given.map_or(longest, |given| given.min(longest));
        let started = Instant::now();
        let allocator = if free.is_empty() {
            None
        } else {
            let is_expired = || started.elapsed() > time;
            let limits = Limits::new(&is_expired);
            let find_class = |name: &str| view.device_class(name);
            let devices = (view.pools(), view.allocated());
            let allocator = Allocator::new(&free, &find_class, &self.selectors, devices, &limits);
            Some(allocator.map_err(|problem| match problem {
                Problem::Wrong(_) => Rejection::error(NAME, problem.to_string()),
                _ => unresolvable(problem.to_string()),
            })?)
        };
        let found = Found {
            spent: started.elapsed(),
            ..Found::default()
        };
        Ok(Attempt {
            claims,
            allocator,
            free,
            hard: self.hard.clone(),
            time,
            found: Mutex::new(found),
        })
    }
}

impl PreFilter for DynamicResources {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, _: &Snapshot) -> PreFilterResult {
        if claims_of_pod(&pod.pod).is_empty() {
            return PreFilterResult::Skip;
        }
        match self.prepare_attempt(pod) {
            Ok(attempt) if attempt.claims.is_empty() => PreFilterResult::Skip,
            Ok(attempt) => {
                state.store_value(PodDevices(Arc::new(attempt)));
                PreFilterResult::All
            }
            Err(rejection) => PreFilterResult::Reject(rejection),
        }
    }
}

impl Attempt {
    fn allocate_on(&self, node: &NodeInfo) -> Result<Arc<Vec<AllocationResult>>, Rejection> {
        let (Some(allocator), Some(object)) = (&self.allocator, &node.node) else {
            return Ok(Arc::default());
        };
        let mut found = self.found.lock();
        if let Some(known) = found.nodes.get(&node.name) {
            return known.clone();
        }
        let (started, spent) = (Instant::now(), found.spent);
        let is_expired = || spent + started.elapsed() > self.time;
        let new_id = || random_id();
        let limits = Limits::new(&is_expired);
        let result = allocator.allocate(object, &limits, &new_id);
        if matches!(result, Err(Failure::Expired)) && limits.steps() >= MANY_STEPS {
            self.hard.add_all(&self.free);
        }
        // Also a selector that fails: it is the node that publishes what the selector reads, and
        // other nodes may fit.
        let result = result
            .map(Arc::new)
            .map_err(|failure| unresolvable(failure.to_string()));
        found.spent += started.elapsed();
        found.nodes.insert(node.name.clone(), result.clone());
        result
    }

    /// Returns the indexes of the allocated claims that a node can't use.
    fn unavailable_on(&self, node: &NodeInfo, settings: &Settings) -> Vec<usize> {
        let claims = self.claims.iter().enumerate();
        let unavailable = claims.filter(|(_, claim)| {
            let status = claim.status.as_ref();
            let Some(allocation) = status.and_then(|status| status.allocation.as_ref()) else {
                return false;
            };
            let selector = allocation.node_selector.as_ref();
            let selected = selector
                .zip(node.node.as_ref())
                .is_none_or(|(selector, node)| node_matches(selector, node));
            !selected || has_failed(claim, settings, jiff::Timestamp::now())
        });
        unavailable.map(|(index, _)| index).collect()
    }
}

/// Returns the identifier of a share of a device, in the form of a UUID.
fn random_id() -> String {
    let mut hex = format!("{:032x}", rand::random::<u128>());
    hex.replace_range(12..13, "4");
    hex.replace_range(16..17, "8");
    for at in [20, 16, 12, 8] {
        hex.insert(at, '-');
    }
    hex
}

impl Filter for DynamicResources {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(PodDevices(attempt)) = state.get::<PodDevices>() else {
            return Ok(());
        };
        let unavailable = attempt.unavailable_on(node, &self.settings);
        if !unavailable.is_empty() {
            attempt.found.lock().unavailable.extend(unavailable);
            return Err(unresolvable(NOT_HERE));
        }
        attempt.allocate_on(node).map(drop)
    }
}

impl PostFilter for DynamicResources {
    fn post_filter(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        _: &Diagnosis,
        _: &dyn PluginsRunner,
    ) -> PostFilterResult {
        let Some(PodDevices(attempt)) = state.get::<PodDevices>() else {
            return PostFilterResult::default();
        };
        let unavailable = attempt.found.lock().unavailable.clone();
        let claims = unavailable
            .iter()
            .filter_map(|index| attempt.claims.get(*index));
        // One claim at a time: its devices may be all that is missing.
        let idle = claims
            .filter(|claim| is_idle(claim, pod.uid()))
            .take(1)
            .cloned();
        PostFilterResult {
            deallocate: idle.collect(),
            ..PostFilterResult::default()
        }
    }
}

/// Returns whether no other pod uses the claim.
fn is_idle(claim: &ResourceClaim, uid: &str) -> bool {
    let status = claim.status.as_ref();
    let reserved = status
        .and_then(|status| status.reserved_for.as_deref())
        .unwrap_or_default();
    reserved.is_empty() || reserved.len() == 1 && is_reserved_for(claim, uid)
}

impl PreScore for DynamicResources {
    fn pre_score(
        &self,
        state: &mut CycleState,
        _: &PodInfo,
        _: &[Arc<NodeInfo>],
        _: &Snapshot,
    ) -> bool {
        let attempt = state.get::<PodDevices>();
        attempt.is_some_and(|PodDevices(attempt)| {
            let mut claims = attempt.claims.iter();
            claims.any(|claim| claims::alternatives(claim).next().is_some())
        })
    }
}

impl Score for DynamicResources {
    fn score(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let Some(PodDevices(attempt)) = state.get::<PodDevices>() else {
            return 0;
        };
        let Ok(allocations) = attempt.allocate_on(node) else {
            return 0;
        };
        let mut allocations = allocations.iter();
        let scores = attempt.claims.iter().map(|claim| {
            let status = claim.status.as_ref();
            let allocation = status.and_then(|status| status.allocation.as_ref());
            allocation
                .or_else(|| allocations.next())
                .map_or(0, |allocation| score_claim(claim, allocation))
        });
        scores.sum()
    }

    fn normalize_scores(
        &self,
        _: &CycleState,
        _: &PodInfo,
        _: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) {
        default_normalize_scores(scores, false);
    }
}

/// Returns the score of an allocation: the earlier the alternative, the higher.
fn score_claim(claim: &ResourceClaim, allocation: &AllocationResult) -> i64 {
    let devices = allocation.devices.as_ref();
    let results = devices
        .and_then(|devices| devices.results.as_deref())
        .unwrap_or_default();
    let scores = claims::alternatives(claim).map(|(index, name)| {
        let chosen = results.iter().any(|result| result.request == name);
        if chosen {
            MAX_ALTERNATIVES.saturating_sub(index)
        } else {
            0
        }
    });
    i64::try_from(scores.sum::<usize>()).unwrap_or(0)
}

impl Reserve for DynamicResources {
    fn reserve(&self, state: &mut CycleState, _: &PodInfo, node: &str) -> Result<(), Rejection> {
        let Some(PodDevices(attempt)) = state.get::<PodDevices>().cloned() else {
            return Ok(());
        };
        let found = attempt.found.lock().nodes.get(node).cloned();
        let results = match found {
            Some(result) => result?,
            None if attempt.allocator.is_none() => Arc::default(),
            None => {
                return Err(Rejection::error(
                    NAME,
                    "claim allocation not found for node",
                ));
            }
        };
        let mut results = results.iter();
        let mut decided = Vec::new();
        for claim in &attempt.claims {
            if is_allocated(claim) {
                decided.push((claim.clone(), None));
                continue;
            }
            let missing = || Rejection::error(NAME, "claim allocation not found for node");
            decided.push((
                claim.clone(),
                Some(results.next().ok_or_else(missing)?.clone()),
            ));
        }
        let ledger = self.cluster.device_view().ledger();
        let mut added = Vec::new();
        for (claim, allocation) in &decided {
            let Some(allocation) = allocation else {
                continue;
            };
            if !ledger.add_pending(with_allocation(claim, allocation.clone())) {
                for uid in added {
                    ledger.remove_pending(uid);
                }
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                let text = format!("resourceclaim {name:?} got allocated in the meantime");
                return Err(Rejection::error(NAME, text));
            }
            added.push(claim.metadata.uid.as_deref().unwrap_or_default());
        }
        state.store_value(Decided(Arc::new(decided)));
        Ok(())
    }

    fn unreserve(&self, state: &mut CycleState, _: &PodInfo, _: &str) {
        // A reservation that was written stays until the pod's next attempt, which uses it or frees
        // it in PostFilter, or until the pod is deleted.
        let Some(Decided(decided)) = state.get::<Decided>() else {
            return;
        };
        let ledger = self.cluster.device_view().ledger();
        for (claim, _) in decided
            .iter()
            .filter(|(_, allocation)| allocation.is_some())
        {
            ledger.remove_pending(claim.metadata.uid.as_deref().unwrap_or_default());
        }
    }
}

/// Returns the claim with an allocation and its finalizer.
fn with_allocation(claim: &ResourceClaim, allocation: AllocationResult) -> ResourceClaim {
    let mut claim = claim.clone();
    let finalizers = claim.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    claim.status.get_or_insert_default().allocation = Some(allocation);
    claim
}
