//! Quota scopes.

use crate::context::{list_at, string_at};
use api_semantics::resources::{Options, pod_limits, pod_requests};
use api_semantics::tree;
use apiserver_request::AdmissionRequest;
use serde_json::Value;

/// Returns whether the object is in the quota's scopes.
pub fn matches_scopes(quota: &Value, request: &AdmissionRequest<'_>) -> bool {
    let plain = list_at(quota, "/spec/scopes")
        .iter()
        .filter_map(Value::as_str);
    let expressions = list_at(quota, "/spec/scopeSelector/matchExpressions");
    let mut scoped = plain.clone().peekable();
    if scoped.peek().is_none() && expressions.is_empty() {
        return true;
    }
    if !request.group.is_empty() || request.resource != "pods" {
        return false;
    }
    let pod = &request.object;
    let mut plain = plain;
    plain.all(|scope| in_scope(pod, scope, "Exists", &[]))
        && expressions.iter().all(|e| matches_expression(pod, e))
}

fn matches_expression(pod: &Value, expression: &Value) -> bool {
    in_scope(
        pod,
        string_at(expression, "/scopeName"),
        string_at(expression, "/operator"),
        list_at(expression, "/values"),
    )
}

fn in_scope(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let terminating = pod
        .pointer("/spec/activeDeadlineSeconds")
        .and_then(Value::as_i64)
        .is_some_and(|s| s >= 0);
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort(pod),
        "NotBestEffort" => !best_effort(pod),
        "PriorityClass" => priority_class(pod, operator, values),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

fn best_effort(pod: &Value) -> bool {
    let pod = tree::pod(pod);
    let options = Options::default();
    let sums = [pod_requests(&pod, &options), pod_limits(&pod, &options)];
    sums.iter()
        .all(|sum| sum.is_zero("cpu") && sum.is_zero("memory"))
}

fn priority_class(pod: &Value, operator: &str, values: &[Value]) -> bool {
    let class = string_at(pod, "/spec/priorityClassName");
    let held = values.iter().any(|v| v == class);
    match operator {
        "In" => !class.is_empty() && held,
        "NotIn" => !held,
        "DoesNotExist" => class.is_empty(),
        _ => !class.is_empty(),
    }
}

fn crosses_namespaces(pod: &Value) -> bool {
    const KINDS: [&str; 2] = ["podAffinity", "podAntiAffinity"];
    let crosses = |term: &Value| {
        !list_at(term, "/namespaces").is_empty()
            || term.get("namespaceSelector").is_some_and(|s| !s.is_null())
    };
    KINDS.iter().any(|kind| {
        let at = |field: &str| list_at(pod, &format!("/spec/affinity/{kind}/{field}")).to_vec();
        at("requiredDuringSchedulingIgnoredDuringExecution")
            .iter()
            .any(crosses)
            || at("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|t| t.get("podAffinityTerm").is_some_and(crosses))
    })
}
