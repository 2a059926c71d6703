//! podFailurePolicy: the effect of a pod's failure on its Job.

use k8s_openapi::api::batch::v1::{PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Meta, pods as pod_state};

use super::view::View;

/// The action of the first matching rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Fail the Job, for this reason.
    FailJob(String),
    /// Fail the index.
    FailIndex,
    /// Replace the pod without counting the failure.
    Ignore,
    /// Count the failure.
    Count,
}

/// Returns the action for a failed pod; None without a matching rule.
pub fn match_failure_policy(view: &View<'_>, pod: &Pod) -> Option<Verdict> {
    let policy = view.spec.pod_failure_policy.as_ref()?;
    // Exit codes of a pod that is still being deleted are not final.
    if pod_state::phase(pod) != "Failed" {
        return None;
    }
    let matching = policy.rules.iter().enumerate();
    let (rule, text) = matching
        .into_iter()
        .find_map(|(index, rule)| Some((rule, match_rule(rule, index, pod)?)))?;
    Some(match rule.action.as_str() {
        "FailJob" => Verdict::FailJob(text),
        "FailIndex" => Verdict::FailIndex,
        "Ignore" => Verdict::Ignore,
        _ => Verdict::Count,
    })
}

fn match_rule(rule: &PodFailurePolicyRule, index: usize, pod: &Pod) -> Option<String> {
    if let Some(codes) = &rule.on_exit_codes {
        let (container, code) = exit_code(codes, pod)?;
        return Some(format!(
            "Container {container} for pod {} failed with exit code {code} matching {} rule at index {index}",
            pod.key(),
            rule.action
        ));
    }
    let patterns = rule.on_pod_conditions.iter().flatten();
    let mut hit = patterns.filter(|p| {
        let wanted = p.status.as_deref().unwrap_or("True");
        pod_state::condition(pod, &p.type_).is_some_and(|c| c.status == wanted)
    });
    let found = hit.next()?;
    Some(format!(
        "Pod {} has condition {} matching {} rule at index {index}",
        pod.key(),
        found.type_,
        rule.action
    ))
}

fn exit_code(wanted: &PodFailurePolicyOnExitCodesRequirement, pod: &Pod) -> Option<(String, i32)> {
    let status = pod.status.as_ref()?;
    let all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    let named = all.filter(|c| wanted.container_name.as_ref().is_none_or(|n| *n == c.name));
    let mut ended =
        named.filter_map(|c| Some((c, c.state.as_ref()?.terminated.as_ref()?.exit_code)));
    let hit = ended.find(|(_, code)| {
        let listed = wanted.values.contains(code);
        // Success never matches a rule, not even one with NotIn.
        *code != 0
            && if wanted.operator == "NotIn" {
                !listed
            } else {
                listed
            }
    })?;
    Some((hit.0.name.clone(), hit.1))
}
