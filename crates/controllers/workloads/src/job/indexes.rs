//! Completion indexes: which have succeeded, which are given up, which are next.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Meta, pods as pod_state};

use super::count::Tally;
use super::policy::{self, Verdict};
use super::{View, retry};

/// The annotation and label with a pod's index.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The state of all indexes.
#[derive(Debug, Default)]
pub struct Indexes {
    /// Indexes that have succeeded.
    pub succeeded: BTreeSet<usize>,
    /// Indexes given up, under `backoffLimitPerIndex`.
    pub failed: BTreeSet<usize>,
}

impl Indexes {
    /// Reads the status and the pods.
    pub fn of(view: &View<'_>, _tally: &Tally) -> Self {
        let total = view.completions().unwrap_or(0);
        let mut all = Self {
            succeeded: parse(view.old.completed_indexes.as_deref().unwrap_or_default(), total),
            failed: parse(view.old.failed_indexes.as_deref().unwrap_or_default(), total),
        };
        for pod in &view.pods {
            let Some(index) = index(pod).filter(|i| *i < total) else { continue };
            if pod_state::phase(pod) == "Succeeded" {
                all.succeeded.insert(index);
            } else if view.failed(pod) && given_up(view, pod) {
                all.failed.insert(index);
            }
        }
        let done = all.succeeded.clone();
        all.failed.retain(|i| !done.contains(i));
        all
    }

    /// The lowest indexes that need a pod.
    pub fn pending(&self, view: &View<'_>, count: usize) -> Vec<usize> {
        let busy: BTreeSet<usize> = view
            .pods
            .iter()
            .filter(|p| pod_state::is_active(p) || (view.only_failed() && pod_state::is_terminating(p)))
            .filter_map(|p| index(p))
            .collect();
        let free = |i: &usize| !busy.contains(i) && !self.succeeded.contains(i) && !self.failed.contains(i);
        (0..view.completions().unwrap_or(0)).filter(free).take(count).collect()
    }
}

/// Whether a pod's failure is the last that its index is allowed.
fn given_up(view: &View<'_>, pod: &Pod) -> bool {
    let Some(limit) = view.spec.backoff_limit_per_index else { return false };
    match policy::judge(view, pod) {
        Some(Verdict::FailIndex) => true,
        Some(Verdict::Ignore) => false,
        _ => retry::failures_before(pod) >= i64::from(limit),
    }
}

/// A pod's index.
pub fn index(pod: &Pod) -> Option<usize> {
    pod.annotation(INDEX)?.parse().ok()
}

/// Reads `0-2,5` up to a bound.
pub fn parse(text: &str, total: usize) -> BTreeSet<usize> {
    let mut set = BTreeSet::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<usize>(), to.parse::<usize>()) {
            set.extend(from..to.saturating_add(1).min(total));
        }
    }
    set.retain(|i| *i < total);
    set
}

/// Writes indexes as `0,2,3` or `0-2`: three and more in a row become a range.
pub fn format(set: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for index in set {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *index => *end = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let texts = runs.into_iter().map(|(from, to)| match to - from {
        0 => from.to_string(),
        1 => format!("{from},{to}"),
        _ => format!("{from}-{to}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_round_trip() {
        for (list, text) in
            [(vec![], ""), (vec![0, 2, 3], "0,2,3"), (vec![0, 1, 2], "0-2"), (vec![1, 3, 4, 5, 9], "1,3-5,9")]
        {
            let set: BTreeSet<usize> = list.into_iter().collect();
            assert_eq!(format(&set), text);
            assert_eq!(parse(text, 10), set);
        }
        assert_eq!(parse("0-100", 3).len(), 3);
    }
}
