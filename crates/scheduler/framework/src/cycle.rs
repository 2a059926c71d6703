//! The scheduling cycle of one pod: filter, score, choose. Pure.
//!
//! The walk over nodes starts where the last one ended, so that all nodes get their turn when only
//! a part of them is scored. Nominated pods of equal or higher priority count as running on their
//! node.

use std::collections::HashSet;
use std::sync::Arc;

use rand::Rng;

use crate::MAX_NODE_SCORE;
use crate::diagnosis::{Code, Diagnosis, Rejection};
use crate::node::NodeInfo;
use crate::plugin::{PluginsRunner, PostFilterResult, PreFilterResult};
use crate::pod::PodInfo;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::state::CycleState;

const FEWEST_NODES_TO_FIND: usize = 100;

/// The nominator: nominated pods by node.
pub trait PodNominator {
    /// Returns the pods nominated to a node.
    fn pods_on(&self, node: &str) -> Vec<Arc<PodInfo>>;
    /// Returns the node that a pod is nominated to.
    fn node_of(&self, uid: &str) -> Option<Arc<str>>;
    /// Returns whether there are no nominations.
    fn is_empty(&self) -> bool;
}

/// No nominations.
pub struct NoNominatedPods;

impl PodNominator for NoNominatedPods {
    fn pods_on(&self, _node: &str) -> Vec<Arc<PodInfo>> {
        Vec::new()
    }

    fn node_of(&self, _uid: &str) -> Option<Arc<str>> {
        None
    }

    fn is_empty(&self) -> bool {
        true
    }
}

/// Runs filters for nodes, for the cycle itself and for PostFilter plugins that try out changes.
pub struct Feasibility<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    nominations: &'a dyn PodNominator,
}

impl<'a> Feasibility<'a> {
    /// Creates filters over a snapshot.
    pub fn new(
        profile: &'a Profile,
        snapshot: &'a Snapshot,
        nominations: &'a dyn PodNominator,
    ) -> Self {
        Self {
            profile,
            snapshot,
            nominations,
        }
    }

    /// Runs the filters with the node as it is.
    pub fn run_filters(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<(), Rejection> {
        let active = |name| !state.skip_filters.contains(name);
        for entry in self
            .profile
            .points
            .filter
            .iter()
            .filter(|entry| active(entry.name))
        {
            // The first rejection ends the walk: a node is reported with the reason of one plugin,
            // as upstream does, so the order of the profile decides which reason users see.
            entry.plugin.filter(state, pod, node)?;
        }
        Ok(())
    }
}

impl PluginsRunner for Feasibility<'_> {
    fn snapshot(&self) -> &Snapshot {
        self.snapshot
    }

    fn nominated_node(&self, pod: &PodInfo) -> Option<Arc<str>> {
        self.nominations.node_of(pod.uid())
    }

    fn run_filters_with_nominated_pods(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<(), Rejection> {
        // Most clusters have no nomination at any time. Without this shortcut every node would take
        // the lock of the nominator once per attempt.
        let nominated: Vec<Arc<PodInfo>> = if self.nominations.is_empty() {
            Vec::new()
        } else {
            let matter = |other: &Arc<PodInfo>| {
                // Pods of lower priority do not count: this pod may take the room that was freed
                // for them, and they are preempted again.
                other.priority() >= pod.priority() && other.uid() != pod.uid()
            };
            self.nominations
                .pods_on(&node.name)
                .into_iter()
                .filter(matter)
                .collect()
        };
        if !nominated.is_empty() {
            // The additions must not leak into the state of the next node, so they work on copies.
            let (mut state, mut node) = (state.clone(), node.clone());
            for other in nominated {
                self.add_pod(&mut state, pod, &other, &mut node);
            }
            // Both passes are needed: the nominated pods may never arrive, and with them inter-pod
            // affinity can be satisfied that is not without them.
            self.run_filters(&state, pod, &node)?;
        }
        self.run_filters(state, pod, node)
    }

    fn add_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        added: &Arc<PodInfo>,
        node: &mut NodeInfo,
    ) {
        node.add_pod(added.clone());
        for entry in self
            .profile
            .points
            .pre_filter
            .iter()
            .filter(|entry| !state.skip_filters.contains(entry.name))
            // Collected first, because the plugins get the state whose set of skipped filters the
            // iterator reads.
            .collect::<Vec<_>>()
        {
            entry.plugin.add_pod(state, pod, added, node);
        }
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &Arc<PodInfo>,
        node: &mut NodeInfo,
    ) {
        node.remove_pod(removed.uid());
        for entry in self
            .profile
            .points
            .pre_filter
            .iter()
            .filter(|entry| !state.skip_filters.contains(entry.name))
            .collect::<Vec<_>>()
        {
            entry.plugin.remove_pod(state, pod, removed, node);
        }
    }
}

/// The result of a cycle that found a node.
pub struct ScheduleResult {
    /// The node.
    pub node: Arc<str>,
    /// The cycle's state, for Reserve, Permit and PreBind.
    pub state: CycleState,
    /// Number of filtered nodes.
    pub evaluated: usize,
    /// Number of feasible nodes.
    pub feasible: usize,
}

/// The result of a cycle that found no node.
pub struct FitError {
    /// The rejections.
    pub diagnosis: Diagnosis,
    /// The post-filter result.
    pub post_filter_result: PostFilterResult,
    /// An operation failed: retry without waiting for an event.
    pub error: Option<String>,
}

/// Chooses a node for a pod. `start` is the first node of the walk and is advanced.
pub fn schedule_pod(
    profile: &Profile,
    snapshot: &Snapshot,
    nominations: &dyn PodNominator,
    pod: &PodInfo,
    start: &mut usize,
) -> Result<ScheduleResult, Box<FitError>> {
    let mut state = CycleState::default();
    let feasibility = Feasibility::new(profile, snapshot, nominations);
    let mut diagnosis = Diagnosis {
        nodes: snapshot.nodes.len(),
        ..Diagnosis::default()
    };
    // Preemption cannot help without nodes, so PostFilter does not run.
    if snapshot.nodes.is_empty() {
        return Err(Box::new(FitError {
            diagnosis,
            post_filter_result: PostFilterResult::default(),
            error: None,
        }));
    }
    let found = match pre_filter(profile, snapshot, pod, &mut state, &mut diagnosis) {
        Ok(allowed) => find_nodes_that_fit(
            &feasibility,
            &state,
            pod,
            allowed.as_ref(),
            start,
            &mut diagnosis,
        ),
        Err(rejection) => {
            // PostFilter still runs: preemption may resolve what a PreFilter plugin
            // rejected.
            record_pre_filter_rejection(snapshot, rejection, &mut diagnosis);
            Found::default()
        }
    };
    // A failed filter fails the attempt even if other nodes fit: the choice would be made without
    // a node that may be better.
    if found.nodes.is_empty() || found.error.is_some() {
        return Err(Box::new(run_post_filters(
            &feasibility,
            &state,
            pod,
            diagnosis,
            found.error,
        )));
    }
    let evaluated = found.nodes.len() + diagnosis.rejections.len();
    let feasible = found.nodes.len();
    let node = choose_node(profile, snapshot, &mut state, pod, &found.nodes);
    Ok(ScheduleResult {
        node,
        state,
        evaluated,
        feasible,
    })
}

fn pre_filter(
    profile: &Profile,
    snapshot: &Snapshot,
    pod: &PodInfo,
    state: &mut CycleState,
    diagnosis: &mut Diagnosis,
) -> Result<Option<HashSet<String>>, Rejection> {
    let mut allowed: Option<HashSet<String>> = None;
    let mut narrowing = Vec::new();
    for entry in &profile.points.pre_filter {
        match entry.plugin.pre_filter(state, pod, snapshot) {
            PreFilterResult::All => {}
            // Skipping is decided once per pod, so that a pod without, say, host ports costs
            // nothing for each of thousands of nodes.
            PreFilterResult::Skip => drop(state.skip_filters.insert(entry.name)),
            PreFilterResult::Reject(rejection) => return Err(rejection),
            PreFilterResult::Nodes(nodes) => {
                narrowing.push(entry.name);
                allowed = Some(match allowed {
                    None => nodes,
                    Some(known) => known.intersection(&nodes).cloned().collect(),
                });
            }
        }
    }
    if let Some(allowed) = &allowed {
        // The excluded nodes never reach a filter. Without this the events of these plugins would
        // not requeue the pod.
        diagnosis.plugins.extend(narrowing.iter().copied());
        let present = allowed
            .iter()
            .filter(|name| snapshot.node(name).is_some())
            .count();
        let reason = format!("node(s) didn't satisfy plugin(s) [{}]", narrowing.join(" "));
        let rejection =
            Rejection::unresolvable(narrowing.first().copied().unwrap_or_default(), reason);
        diagnosis.absent =
            Some((snapshot.nodes.len() - present, rejection)).filter(|(count, _)| *count > 0);
    }
    Ok(allowed)
}

/// Records a PreFilter rejection for every node.
fn record_pre_filter_rejection(
    snapshot: &Snapshot,
    rejection: Rejection,
    diagnosis: &mut Diagnosis,
) {
    diagnosis.plugins.insert(rejection.plugin);
    diagnosis.pre_filter = rejection.reasons.join(", ");
    diagnosis.absent = Some((snapshot.nodes.len(), rejection));
}

#[derive(Default)]
struct Found {
    nodes: Vec<Arc<NodeInfo>>,
    error: Option<String>,
}

fn find_nodes_that_fit(
    feasibility: &Feasibility<'_>,
    state: &CycleState,
    pod: &PodInfo,
    allowed: Option<&HashSet<String>>,
    start: &mut usize,
    diagnosis: &mut Diagnosis,
) -> Found {
    let snapshot = feasibility.snapshot;
    let all = snapshot.nodes.len();
    let mut found = Found::default();
    // The nominated node comes first: preemption made room there for this pod.
    let nominated = feasibility
        .nominated_node(pod)
        .and_then(|name| snapshot.node(&name));
    if let Some(node) =
        nominated.filter(|node| allowed.is_none_or(|allowed| allowed.contains(&*node.name)))
        && feasibility
            .run_filters_with_nominated_pods(state, pod, node)
            .is_ok()
    {
        found.nodes.push(node.clone());
        return found;
    }
    let candidates = list_candidates(snapshot, allowed, *start);
    // In large clusters the walk stops early: scoring a part of the feasible nodes is enough.
    let wanted = nodes_to_find(
        feasibility.profile.percentage_of_nodes_to_score,
        candidates.len(),
    );
    let mut looked_at = 0;
    for node in candidates {
        looked_at += 1;
        match feasibility.run_filters_with_nominated_pods(state, pod, node) {
            Ok(()) => found.nodes.push(node.clone()),
            Err(rejection) => {
                diagnosis.plugins.insert(rejection.plugin);
                // A failed operation says nothing about the node; the attempt is repeated after the
                // back-off instead of waiting for an event.
                if rejection.code == Code::Error {
                    found.error = Some(rejection.reasons.join(", "));
                }
                diagnosis.rejections.insert(node.name.clone(), rejection);
            }
        }
        if found.nodes.len() >= wanted || found.error.is_some() {
            break;
        }
    }
    // With a set from PreFilter this advances by fewer nodes than the cluster has; upstream does
    // the same.
    *start = (*start + looked_at) % all;
    found
}

/// Returns the nodes to visit, in order.
fn list_candidates<'a>(
    snapshot: &'a Snapshot,
    allowed: Option<&HashSet<String>>,
    start: usize,
) -> Vec<&'a Arc<NodeInfo>> {
    let nodes = &snapshot.nodes;
    match allowed {
        // All nodes are visited from where the last attempt ended. A walk from the first node would
        // give the first nodes of a large cluster all of the pods.
        None => {
            let from = start % nodes.len().max(1);
            nodes.iter().cycle().skip(from).take(nodes.len()).collect()
        }
        Some(allowed) => nodes
            .iter()
            .filter(|node| allowed.contains(&*node.name))
            .collect(),
    }
}

fn nodes_to_find(percentage: u32, all: usize) -> usize {
    if all < FEWEST_NODES_TO_FIND || percentage >= 100 {
        return all;
    }
    let share = match percentage {
        // Upstream's adaptive share: 50 % of small clusters, falling by 1 % for each 125 nodes, at
        // least 5 %.
        0 => 50_usize.saturating_sub(all / 125).max(5),
        given => given as usize,
    };
    // Below 100 nodes scoring is cheap, and a better node is worth more than the time.
    (all * share / 100).max(FEWEST_NODES_TO_FIND)
}

fn run_post_filters(
    feasibility: &Feasibility<'_>,
    state: &CycleState,
    pod: &PodInfo,
    mut diagnosis: Diagnosis,
    error: Option<String>,
) -> FitError {
    let mut post_filter_result = PostFilterResult::default();
    // After an error no filter result is complete, so victims might be evicted for nothing.
    if error.is_none() {
        for entry in &feasibility.profile.points.post_filter {
            let next = entry
                .plugin
                .post_filter(state, pod, &diagnosis, feasibility);
            post_filter_result = merge_post_filter_results(post_filter_result, next);
            if post_filter_result
                .nominate
                .as_deref()
                // The first plugin that nominates a node wins. An empty name clears an earlier
                // nomination and lets the next plugin try.
                .is_some_and(|name| !name.is_empty())
            {
                break;
            }
        }
        diagnosis
            .post_filter
            .clone_from(&post_filter_result.message);
    }
    FitError {
        diagnosis,
        post_filter_result,
        error,
    }
}

/// Adds the result of a further plugin: what it nominates counts, and all claims and messages.
fn merge_post_filter_results(
    before: PostFilterResult,
    mut next: PostFilterResult,
) -> PostFilterResult {
    next.deallocate.splice(0..0, before.deallocate);
    let messages = [before.message, next.message];
    let messages = messages.into_iter().filter(|message| !message.is_empty());
    next.message = messages.collect::<Vec<_>>().join(" ");
    next
}

fn choose_node(
    profile: &Profile,
    snapshot: &Snapshot,
    state: &mut CycleState,
    pod: &PodInfo,
    nodes: &[Arc<NodeInfo>],
) -> Arc<str> {
    let [first, rest @ ..] = nodes else {
        return Arc::from("");
    };
    // One feasible node needs no score. Upstream skips PreScore and Score in this case, too.
    if rest.is_empty() {
        return first.name.clone();
    }
    for entry in &profile.points.pre_score {
        if !entry.plugin.pre_score(state, pod, nodes, snapshot) {
            // A plugin without an opinion on this pod must not shift the totals: its score of 0
            // would still be weighted after normalization.
            state.skip_scores.insert(entry.name);
        }
    }
    let mut totals = vec![0_i64; nodes.len()];
    for entry in profile
        .points
        .score
        .iter()
        .filter(|entry| !state.skip_scores.contains(entry.name))
    {
        let mut scores: Vec<i64> = nodes
            .iter()
            .map(|node| entry.plugin.score(state, pod, node, snapshot))
            .collect();
        entry
            .plugin
            .normalize_scores(state, pod, nodes, &mut scores);
        for (total, score) in totals.iter_mut().zip(scores) {
            // The range is enforced after normalization, so that a faulty plugin cannot outweigh
            // all others.
            *total =
                total.saturating_add(score.clamp(0, MAX_NODE_SCORE).saturating_mul(entry.weight));
        }
    }
    select_host(nodes, &totals)
}

/// Picks randomly among the highest-scoring nodes.
fn select_host(nodes: &[Arc<NodeInfo>], totals: &[i64]) -> Arc<str> {
    let most = totals.iter().max().copied().unwrap_or(0);
    let winners: Vec<&Arc<NodeInfo>> = nodes
        .iter()
        .zip(totals)
        .filter(|(_, total)| **total == most)
        .map(|(node, _)| node)
        .collect();
    // Equal nodes are chosen at random: always taking the first would pile pods onto one node while
    // the cache still lags behind.
    let lot = rand::rng().random_range(0..winners.len().max(1));
    winners
        .get(lot)
        .map_or_else(|| Arc::from(""), |node| node.name.clone())
}

#[cfg(test)]
mod tests;
