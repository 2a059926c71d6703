//! Cached numbers of pods that match a selector, by node.
//!
//! Pods of one workload are scheduled one after another and count the same pods. Only nodes that
//! changed since are counted again. A node's generation is never used twice, so a number cached for
//! it is right.

use std::collections::VecDeque;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use parking_lot::Mutex;
use scheduler_framework::{PodInfo, Snapshot};

use super::constraint::Constraint;

/// Maximum number of cached selectors: workloads whose pods are scheduled in turns.
const SELECTORS: usize = 16;

struct Entry {
    namespace: String,
    selector: Option<LabelSelector>,
    /// Generation and number of pods of each node, in the order of the snapshot.
    counts: Vec<(u64, i64)>,
}

/// Numbers for the most recently used selectors.
#[derive(Default)]
pub(super) struct Memo {
    entries: Mutex<VecDeque<Entry>>,
}

impl Memo {
    /// Returns the number of matching pods on each node of the snapshot.
    pub(super) fn count_pods(
        &self,
        constraint: &Constraint,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> Vec<i64> {
        let mut entries = self.entries.lock();
        let same = |entry: &Entry| {
            entry.namespace == pod.namespace() && entry.selector == constraint.selector
        };
        let known = entries
            .iter()
            .position(same)
            .and_then(|at| entries.remove(at));
        let mut entry = known.unwrap_or_else(|| Entry {
            namespace: pod.namespace().to_owned(),
            selector: constraint.selector.clone(),
            counts: Vec::new(),
        });
        // Nodes may have been added, removed or moved. A count is reused only if the
        // node at its position still has the same generation.
        entry.counts.resize(snapshot.nodes.len(), (0, 0));
        for (node, (generation, count)) in snapshot.nodes.iter().zip(&mut entry.counts) {
            if *generation != node.generation {
                (*generation, *count) = (node.generation, constraint.count_pods(pod, node));
            }
        }
        let counts = entry.counts.iter().map(|(_, count)| *count).collect();
        entries.push_front(entry);
        entries.truncate(SELECTORS);
        counts
    }
}
