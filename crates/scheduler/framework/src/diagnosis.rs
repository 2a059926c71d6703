//! The diagnosis of an unschedulable pod, in upstream's words.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The kind of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Removing pods from the node could help.
    Unschedulable,
    /// Removing pods from the node does not help.
    UnschedulableAndUnresolvable,
    /// An operation failed; the attempt is retried.
    Error,
}

/// A rejection by a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Kind of the rejection.
    pub code: Code,
    /// Reasons, one for each unmet requirement.
    pub reasons: Vec<Cow<'static, str>>,
    /// The plugin.
    pub plugin: &'static str,
}

impl Rejection {
    /// Builds a rejection that could be resolved by removing pods.
    pub fn unschedulable(plugin: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: Code::Unschedulable,
            reasons: vec![reason.into()],
            plugin,
        }
    }

    /// Builds a rejection that removing pods does not resolve.
    pub fn unresolvable(plugin: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: Code::UnschedulableAndUnresolvable,
            reasons: vec![reason.into()],
            plugin,
        }
    }

    /// Builds a rejection for a failed operation.
    pub fn error(plugin: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: Code::Error,
            reasons: vec![reason.into()],
            plugin,
        }
    }
}

/// The rejections by all nodes.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// Number of nodes in the cluster.
    pub nodes: usize,
    /// Rejections by node.
    pub rejections: HashMap<Arc<str>, Rejection>,
    /// Number of nodes that PreFilter plugins excluded, with their common rejection.
    pub absent: Option<(usize, Rejection)>,
    /// Message of a PreFilter plugin that rejected the pod on all nodes.
    pub pre_filter: String,
    /// Message of the PostFilter.
    pub post_filter: String,
    /// Plugins that rejected the pod; their events requeue it.
    pub plugins: HashSet<&'static str>,
}

impl Diagnosis {
    /// Formats `0/N nodes are available: ...`, as in the event and in the condition.
    pub fn message(&self) -> String {
        // Users and tests search for these sentences, so they are upstream's to the letter.
        if self.nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut text = format!("0/{} nodes are available:", self.nodes);
        // A rejection by PreFilter applies to the pod as a whole; counts of nodes would only repeat
        // it.
        if self.pre_filter.is_empty() {
            text.push_str(&format!(" {}.", self.reason_histogram()));
        } else {
            text.push_str(&format!(" {}.", self.pre_filter));
        }
        if !self.post_filter.is_empty() {
            text.push_str(&format!(" {}", self.post_filter));
        }
        text
    }

    fn reason_histogram(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let each = self.rejections.values().map(|rejection| (1, rejection));
        let absent = self
            .absent
            .iter()
            .map(|(count, rejection)| (*count, rejection));
        for (count, rejection) in each.chain(absent) {
            for reason in &rejection.reasons {
                *counts.entry(reason).or_default() += count;
            }
        }
        let mut lines: Vec<String> = counts
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        // Sorted as text, not by number: upstream sorts the finished strings. An equal message lets
        // the event be counted instead of repeated.
        lines.sort();
        lines.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_counts_the_reasons_of_all_nodes() {
        let mut diagnosis = Diagnosis {
            nodes: 3,
            ..Diagnosis::default()
        };
        let cpu = Rejection::unschedulable("Fit", "Insufficient cpu");
        let taint = Rejection::unresolvable("Taint", "node(s) had untolerated taint(s)");
        diagnosis.rejections.insert("a".into(), cpu.clone());
        diagnosis.rejections.insert("b".into(), taint);
        diagnosis.rejections.insert("c".into(), cpu);
        diagnosis.post_filter = "preemption: x".into();
        assert_eq!(
            diagnosis.message(),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: x"
        );
        diagnosis.pre_filter = "no such claim".into();
        assert_eq!(
            diagnosis.message(),
            "0/3 nodes are available: no such claim. preemption: x"
        );
        assert_eq!(
            Diagnosis::default().message(),
            "no nodes available to schedule pods"
        );
    }
}
