//! Pods and ResourceQuotas: the pods that a quota counts, its scopes, and the usage of a pod.

use std::collections::BTreeMap;

use api_meta::Quantity;
use api_meta::labels::Operator;
use jiff::{Timestamp, ToSpan};
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, ResourceQuotaSpec};

use crate::pods::is_terminal;
use crate::qos::pod_qos;
use crate::resources::{Options, pod_limits, pod_requests};

/// Resources that quotas bound by requests and by limits.
pub const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Returns whether the pod is charged: it has not terminated, and the time of its deletion has not
/// passed. A pod that can't be removed, because its node is lost, is no longer charged.
pub fn is_pod_charged(pod: &Pod, now: Timestamp) -> bool {
    if is_terminal(pod) {
        return false;
    }
    let (Some(at), Some(grace)) = (
        &pod.metadata.deletion_timestamp,
        pod.metadata.deletion_grace_period_seconds,
    ) else {
        return true;
    };
    // A pod on a lost node would otherwise hold its quota until the node returns.
    let end = at.0.checked_add(grace.seconds());
    end.is_err() || end.is_ok_and(|end| now <= end)
}

/// Returns the usage of a charged pod by the quota's resource names, without `count/pods`. Running
/// resizes count.
pub fn pod_usage(pod: &Pod) -> BTreeMap<String, Quantity> {
    let options = Options {
        use_status: true,
        ..Options::default()
    };
    let mut usage = BTreeMap::from([("pods".to_owned(), Quantity::from_millis(1000))]);
    for (name, amount) in pod_requests(pod, &options).iter() {
        // Quotas may name a resource alone, which means its requests.
        if COMPUTE.contains(&name) || name.starts_with("hugepages-") {
            usage.insert(name.to_owned(), amount);
        }
        usage.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in pod_limits(pod, &options).iter() {
        if COMPUTE.contains(&name) {
            usage.insert(format!("limits.{name}"), amount);
        }
    }
    usage
}

/// Returns whether the quota has scopes. Such a quota counts pods only.
pub fn has_scopes(quota: &ResourceQuotaSpec) -> bool {
    let expressions = quota
        .scope_selector
        .as_ref()
        .and_then(|selector| selector.match_expressions.as_ref());
    quota.scopes.as_ref().is_some_and(|all| !all.is_empty())
        || expressions.is_some_and(|all| !all.is_empty())
}

/// Returns whether the pod is in all scopes of the quota.
pub fn scopes_match(quota: &ResourceQuotaSpec, pod: &Pod) -> bool {
    let mut plain = quota.scopes.iter().flatten();
    let mut expressions = quota
        .scope_selector
        .iter()
        .flat_map(|selector| selector.match_expressions.iter().flatten());
    // A plain scope is short for an expression with Exists.
    plain.all(|scope| scope_matches(scope, "Exists", &[], pod))
        && expressions.all(|e| {
            let values = e.values.as_deref().unwrap_or_default();
            scope_matches(&e.scope_name, &e.operator, values, pod)
        })
}

/// Returns whether the pod is in a scope. Only the scope PriorityClass reads the operator.
pub fn scope_matches(scope: &str, operator: &str, values: &[String], pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    // The scope `Terminating` is about `activeDeadlineSeconds` and has nothing to do with deletion.
    let has_deadline = spec
        .and_then(|spec| spec.active_deadline_seconds)
        .is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => has_deadline,
        "NotTerminating" => !has_deadline,
        "BestEffort" => pod_qos(pod) == "BestEffort",
        "NotBestEffort" => pod_qos(pod) != "BestEffort",
        "PriorityClass" => {
            // A pod without a class has an empty name here, which `Exists` must not match.
            let class = spec
                .and_then(|spec| spec.priority_class_name.as_deref())
                .filter(|class| !class.is_empty());
            Operator::from_name(operator).is_some_and(|o| o.matches(values, class))
        }
        "CrossNamespacePodAffinity" => has_cross_namespace_affinity(pod),
        _ => false,
    }
}

fn has_cross_namespace_affinity(pod: &Pod) -> bool {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else {
        return false;
    };
    let near = affinity.pod_affinity.as_ref().map(|a| {
        (
            &a.required_during_scheduling_ignored_during_execution,
            &a.preferred_during_scheduling_ignored_during_execution,
        )
    });
    let away = affinity.pod_anti_affinity.as_ref().map(|a| {
        (
            &a.required_during_scheduling_ignored_during_execution,
            &a.preferred_during_scheduling_ignored_during_execution,
        )
    });
    near.into_iter().chain(away).any(|(required, preferred)| {
        // Preferred terms cost the scheduler as much as required ones, so upstream counts both.
        let preferred = preferred.iter().flatten().map(|w| &w.pod_affinity_term);
        required
            .iter()
            .flatten()
            .chain(preferred)
            .any(crosses_namespaces)
    })
}

// Such terms make the scheduler look at pods of other namespaces, which the quota scope limits.
fn crosses_namespaces(term: &PodAffinityTerm) -> bool {
    term.namespaces
        .as_ref()
        .is_some_and(|names| !names.is_empty())
        || term.namespace_selector.is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::qos::compute_pod_qos;
    use serde_json::{Value, json};

    const PLAIN: [&str; 6] = [
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
    ];

    #[test]
    fn classes_and_scopes_follow_the_table() {
        let cases: Vec<Value> = serde_json::from_str(crate::cases::POD_SCOPES).unwrap();
        for case in cases {
            let typed: Pod = serde_json::from_value(case["pod"].clone()).unwrap();
            for pod in [typed, crate::tree::pod(&case["pod"])] {
                assert_eq!(compute_pod_qos(&pod), case["qos"], "{case}");
                let scopes = PLAIN.map(|scope| (scope, scope_matches(scope, "Exists", &[], &pod)));
                let matching = scopes.iter().filter(|(_, is_in)| *is_in);
                let matching: Vec<&str> = matching.map(|(scope, _)| *scope).collect();
                assert_eq!(json!(matching), case["scopes"], "{case}");
            }
        }
    }

    #[test]
    fn priority_classes_match_by_operator() {
        let values = ["a".to_owned(), "b".to_owned()];
        for (class, operator, values, expected) in [
            ("a", "In", &values[..], true),
            ("c", "In", &values[..], false),
            ("", "In", &values[..], false),
            ("a", "NotIn", &values[..], false),
            ("c", "NotIn", &values[..], true),
            ("", "NotIn", &values[..], true),
            ("a", "Exists", &[], true),
            ("", "Exists", &[], false),
            ("a", "DoesNotExist", &[], false),
            ("", "DoesNotExist", &[], true),
            ("a", "Other", &[], false),
        ] {
            let pod = json!({"spec": {"containers": [], "priorityClassName": class}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let got = scope_matches("PriorityClass", operator, values, &pod);
            assert_eq!(got, expected, "{class} {operator}");
        }
    }

    #[test]
    fn terminated_and_lost_pods_are_not_charged() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let deleted = |at: &str| json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 30});
        for (metadata, phase, expected) in [
            (json!({}), "Running", true),
            (json!({}), "", true),
            (json!({}), "Succeeded", false),
            (json!({}), "Failed", false),
            (deleted("2026-01-01T00:00:30Z"), "Running", true),
            (deleted("2026-01-01T00:00:29Z"), "Running", false),
            (
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                "Running",
                true,
            ),
        ] {
            let tree = json!({"metadata": metadata, "status": {"phase": phase}});
            let typed: Pod = serde_json::from_value(tree.clone()).unwrap();
            for pod in [typed, crate::tree::pod(&tree)] {
                assert_eq!(is_pod_charged(&pod, now), expected, "{tree}");
            }
        }
    }
}
