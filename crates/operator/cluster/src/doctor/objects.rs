//! Problems that show in the objects of the API. All functions are decisions without IO.

use std::time::Duration;

use api_semantics::pods::condition;
use client::{ApiResource, DynamicObject, ObjectExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ContainerStatus, Namespace, Node, NodeCondition, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::finding::{Finding, Severity};
use crate::node_state::lacks_pod_network;

/// Time in seconds after which a state that should pass is a problem.
const PATIENCE: i64 = 60;
/// The remedy for a node without a pod network.
const NETWORK_REMEDY: &str =
    "ironclad status: ironclad-cni's log; with --cni none, install a pod network";
/// Time for an election, beside the duration of the former leader's Lease, for which candidates
/// wait. They attempt it every 2 s, and their informers and connections begin, too.
const ELECTION: Duration = Duration::from_secs(15);
/// Names of the Leases of components that need a leader.
const LEADERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];
/// Reasons of containers that wait for a person. The others pass by themselves.
// The reasons of upstream's kubelet: pkg/kubelet/images/types.go, container/sync_result.go and
// kuberuntime.
const STUCK: [&str; 9] = [
    "CrashLoopBackOff",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "CreatePodSandboxError",
    "RunContainerError",
];

pub(super) fn api_services() -> ApiResource {
    ApiResource {
        group: "apiregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "APIService".to_owned(),
        plural: "apiservices".to_owned(),
        namespaced: false,
    }
}

fn has_passed(since: Timestamp, seconds: i64, now: Timestamp) -> bool {
    now.as_second() - since.as_second() > seconds
}

pub(super) fn examine_node(node: &Node) -> Vec<Finding> {
    let name = node.name();
    let subject = format!("node {name}");
    let show = format!("kubectl describe node {name}");
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default();
    let finding = |condition: &NodeCondition| {
        let message = condition.message.as_deref().unwrap_or_default();
        let (severity, problem) = match (condition.type_.as_str(), condition.status.as_str()) {
            ("Ready", "True") => return None,
            // Also Unknown, which the node lifecycle controller sets if the kubelet does not
            // report.
            ("Ready", _) if lacks_pod_network(condition) => {
                let problem = format!("has no pod network: {message}");
                return Some(Finding::new(
                    Severity::Error,
                    &subject,
                    problem,
                    NETWORK_REMEDY,
                ));
            }
            ("Ready", _) => (Severity::Error, format!("is not ready: {message}")),
            // The others are problems if they are true.
            (kind, "True") => (Severity::Warning, format!("has {kind}: {message}")),
            _ => return None,
        };
        Some(Finding::new(severity, &subject, problem, &show))
    };
    let mut findings: Vec<Finding> = conditions.iter().filter_map(finding).collect();
    if !conditions
        .iter()
        .any(|condition| condition.type_ == "Ready")
    {
        let problem = "its kubelet has not reported yet";
        findings.push(Finding::new(Severity::Error, &subject, problem, &show));
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        let problem = "is cordoned: it gets no new pods";
        let remedy = format!("kubectl uncordon {name}");
        findings.push(Finding::new(Severity::Warning, &subject, problem, remedy));
    }
    findings
}

pub(super) fn examine_pod(pod: &Pod, now: Timestamp) -> Option<Finding> {
    let (namespace, name) = (pod.namespace(), pod.name());
    // The deletion first: a pod that is to be deleted needs neither its containers nor a node.
    let problem = find_long_deletion(&pod.metadata, now)
        .or_else(|| find_stuck_container(pod))
        .or_else(|| find_unscheduled(pod, now))?;
    let (problem, is_crashing) = problem;
    let remedy = match is_crashing {
        true => format!("kubectl logs -n {namespace} {name} --all-containers --previous"),
        false => format!("kubectl describe pod -n {namespace} {name}"),
    };
    let subject = format!("pod {namespace}/{name}");
    Some(Finding::new(Severity::Warning, subject, problem, remedy))
}

/// Returns the problem, and whether earlier containers of the pod have logs.
type PodProblem = (String, bool);

fn find_long_deletion(meta: &ObjectMeta, now: Timestamp) -> Option<PodProblem> {
    // The time of a pod's deletion is the end of its grace period.
    let since = meta.deletion_timestamp.as_ref()?.0;
    if !has_passed(since, PATIENCE, now) {
        return None;
    }
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let why = match finalizers {
        [] => "its kubelet has not confirmed the end".to_owned(),
        all => format!("its finalizers were not removed: {}", all.join(", ")),
    };
    Some((
        format!(
            "should have been deleted at {}; {why}",
            api_meta::time::format(since)
        ),
        false,
    ))
}

fn find_stuck_container(pod: &Pod) -> Option<PodProblem> {
    let status = pod.status.as_ref()?;
    let of = |statuses: &Option<Vec<ContainerStatus>>| statuses.clone().unwrap_or_default();
    let all = [
        of(&status.init_container_statuses),
        of(&status.container_statuses),
    ];
    all.concat().into_iter().find_map(|container| {
        let waiting = container.state?.waiting?;
        let reason = waiting.reason.unwrap_or_default();
        let message = waiting.message.unwrap_or_default();
        STUCK.contains(&reason.as_str()).then(|| {
            let problem = format!("container {}: {reason}: {message}", container.name);
            (problem, reason == "CrashLoopBackOff")
        })
    })
}

fn find_unscheduled(pod: &Pod, now: Timestamp) -> Option<PodProblem> {
    let condition = condition(pod, "PodScheduled").filter(|found| found.status == "False")?;
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    if !has_passed(created, PATIENCE, now) {
        return None;
    }
    let reason = condition.reason.as_deref().unwrap_or_default();
    let message = condition.message.as_deref().unwrap_or_default();
    Some((format!("has no node: {reason}: {message}"), false))
}

/// Examines the Lease of the scheduler or the controller manager: a process that hangs does not
/// renew it. `find_age` returns the age of the component or of the API server on this machine,
/// whichever started later: after a start, the Lease is still that of the former leader. It reads
/// files, so it is called only for a Lease that has expired.
pub(super) fn examine_lease(
    lease: &Lease,
    now: Timestamp,
    find_age: impl FnOnce() -> Option<Duration>,
) -> Option<Finding> {
    let name = lease.name();
    let spec = lease.spec.as_ref().filter(|_| LEADERS.contains(&name))?;
    let renewed = spec.renew_time.as_ref()?.0;
    let duration = spec.lease_duration_seconds.unwrap_or(0);
    if !has_passed(renewed, i64::from(duration), now) {
        return None;
    }
    let wait = Duration::from_secs(u64::try_from(duration).unwrap_or_default());
    if find_age().is_some_and(|age| age <= wait.saturating_add(ELECTION)) {
        return None;
    }
    let problem = format!(
        "has had no leader since {}: it hangs, or can't reach the API server",
        api_meta::time::format(renewed)
    );
    Some(Finding::new(
        Severity::Error,
        name,
        problem,
        "ironclad status",
    ))
}

/// Returns the names of the checks that fail, if the text is that of a `/readyz`, of which each
/// line names a check; otherwise the text itself.
pub(super) fn describe_unready(text: &str) -> String {
    // k8s.io/apiserver/pkg/server/healthz writes `[-]NAME failed: reason withheld` for each.
    let lines = text.lines().filter_map(|line| line.split_once("[-]"));
    let names: Vec<&str> = lines
        .filter_map(|(_, check)| check.split(' ').next())
        .collect();
    match names.as_slice() {
        [] => format!("does not answer: {text}"),
        names => format!("is not ready; these checks fail: {}", names.join(", ")),
    }
}

pub(super) fn examine_namespace(namespace: &Namespace, now: Timestamp) -> Option<Finding> {
    let since = namespace.metadata.deletion_timestamp.as_ref()?.0;
    if !has_passed(since, PATIENCE, now) {
        return None;
    }
    let conditions = namespace
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let messages = conditions
        .unwrap_or_default()
        .iter()
        // All conditions of a namespace, such as NamespaceDeletionContentFailure, are problems if
        // they are true.
        .filter(|condition| condition.status == "True")
        .filter_map(|condition| condition.message.clone());
    let messages = messages.collect::<Vec<_>>().join("; ");
    let name = namespace.name();
    Some(Finding::new(
        Severity::Warning,
        format!("namespace {name}"),
        format!(
            "should have been deleted at {}: {messages}",
            api_meta::time::format(since)
        ),
        format!("kubectl get namespace {name} -o yaml"),
    ))
}

pub(super) fn examine_api_service(service: &DynamicObject) -> Option<Finding> {
    let conditions = service.rest.get("status")?.get("conditions")?.as_array()?;
    let text = |condition: &serde_json::Value, key: &str| {
        condition
            .get(key)
            .and_then(|value| value.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let condition = conditions.iter().find(|condition| {
        text(condition, "type") == "Available" && text(condition, "status") != "True"
    })?;
    let name = service.name();
    let message = text(condition, "message");
    Some(Finding::new(
        Severity::Error,
        format!("APIService {name}"),
        format!("is not available, and neither are its kinds: {message}"),
        format!("kubectl describe apiservice {name}"),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn object<K: DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    #[test]
    fn node_is_reported_by_its_conditions() {
        let examine = |conditions: Value, cordoned: bool| {
            let node: Node = object(
                json!({"metadata": {"name": "n"}, "spec": {"unschedulable": cordoned},
                "status": {"conditions": conditions}}),
            );
            let found = examine_node(&node);
            found
                .into_iter()
                .map(|finding| (finding.severity, finding.problem))
                .collect::<Vec<_>>()
        };
        let ready = |status: &str| json!({"type": "Ready", "status": status, "message": "m"});
        assert!(
            examine(
                json!([ready("True"), {"type": "DiskPressure", "status": "False"}]),
                false
            )
            .is_empty()
        );
        for status in ["False", "Unknown"] {
            let found = examine(json!([ready(status)]), false);
            assert_eq!(found, [(Severity::Error, "is not ready: m".to_owned())]);
        }
        let found = examine(
            json!([ready("True"), {"type": "DiskPressure", "status": "True", "message": "full"}]),
            true,
        );
        let problems: Vec<_> = found.iter().map(|(_, problem)| problem.as_str()).collect();
        assert_eq!(
            problems,
            ["has DiskPressure: full", "is cordoned: it gets no new pods"]
        );
        assert_eq!(examine(json!([]), false).len(), 1, "no report");
    }

    #[test]
    fn pod_is_reported_when_it_waits_for_a_person() {
        let created = "2023-11-14T22:13:20Z";
        let examine = |seconds: i64, metadata: Value, status: Value| {
            let mut pod = json!({"metadata": {"name": "p", "namespace": "n", "creationTimestamp": created},
                "spec": {"containers": []}, "status": status});
            for (key, value) in metadata.as_object().unwrap() {
                pod["metadata"][key] = value.clone();
            }
            examine_pod(&object(pod), at(seconds)).map(|finding| (finding.problem, finding.remedy))
        };
        let unscheduled = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]});
        assert_eq!(
            examine(60, json!({}), unscheduled.clone()),
            None,
            "it is young"
        );
        let (problem, remedy) = examine(61, json!({}), unscheduled).unwrap();
        assert_eq!(problem, "has no node: Unschedulable: 0/1 nodes");
        assert_eq!(remedy, "kubectl describe pod -n n p");
        let waiting = |reason: &str| {
            json!({"containerStatuses": [{"name": "c", "ready": false, "restartCount": 0,
            "image": "i", "imageID": "", "state": {"waiting": {"reason": reason, "message": "m"}}}]})
        };
        let (problem, remedy) = examine(0, json!({}), waiting("CrashLoopBackOff")).unwrap();
        assert_eq!(problem, "container c: CrashLoopBackOff: m");
        assert!(
            remedy.starts_with("kubectl logs") && remedy.ends_with("--previous"),
            "{remedy}"
        );
        assert_eq!(examine(900, json!({}), waiting("ContainerCreating")), None);
        let deleted = json!({"deletionTimestamp": created, "finalizers": ["a.io/b"]});
        assert_eq!(examine(60, deleted.clone(), json!({})), None);
        let (problem, _) = examine(61, deleted, json!({})).unwrap();
        assert!(
            problem.ends_with("its finalizers were not removed: a.io/b"),
            "{problem}"
        );
    }

    #[test]
    fn namespace_that_is_not_deleted_is_reported_with_the_reason() {
        let namespace = |deleted: Value| -> Namespace {
            object(
                json!({"metadata": {"name": "n", "deletionTimestamp": deleted}, "status": {"conditions": [
                {"type": "NamespaceContentRemaining", "status": "True", "message": "pods. has 1 resource instances"},
                {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "ok"}]}}),
            )
        };
        let found = examine_namespace(&namespace(json!("2023-11-14T22:13:20Z")), at(61)).unwrap();
        assert!(
            found.problem.ends_with(": pods. has 1 resource instances"),
            "{}",
            found.problem
        );
        assert_eq!(examine_namespace(&namespace(Value::Null), at(61)), None);
    }

    #[test]
    fn leader_that_does_not_renew_its_lease_is_reported() {
        let lease = |name: &str| -> Lease {
            object(json!({"metadata": {"name": name}, "spec": {
                "leaseDurationSeconds": 15, "renewTime": "2023-11-14T22:13:20.000000Z"}}))
        };
        for (name, second, age, is_problem) in [
            ("kube-scheduler", 15, None, false),
            ("kube-scheduler", 16, None, true),
            ("apiserver-x", 16, None, false),
            // The candidates wait for the end of the former leader's Lease.
            ("kube-scheduler", 600, Some(3), false),
            ("kube-scheduler", 600, Some(30), false),
            ("kube-scheduler", 600, Some(31), true),
            ("kube-scheduler", 15, Some(100), false),
        ] {
            let age = age.map(Duration::from_secs);
            let is_read = std::cell::Cell::new(false);
            let found = examine_lease(&lease(name), at(second), || {
                is_read.set(true);
                age
            });
            assert_eq!(found.is_some(), is_problem, "{name} {second} {age:?}");
            let has_expired = name == "kube-scheduler" && second > 15;
            assert_eq!(is_read.get(), has_expired, "{name} {second} {age:?}");
        }
    }

    #[test]
    fn failed_checks_are_named() {
        let text =
            "GET /readyz: [+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\n[-]x/y failed: z";
        assert_eq!(
            describe_unready(text),
            "is not ready; these checks fail: etcd, x/y"
        );
        let text = "cannot connect to https://[::1]:1";
        assert_eq!(describe_unready(text), format!("does not answer: {text}"));
    }

    #[test]
    fn extension_server_that_does_not_answer_is_reported() {
        let service = |status: &str| -> DynamicObject {
            object(
                json!({"metadata": {"name": "v1.a.io"}, "status": {"conditions": [
                {"type": "Available", "status": status, "message": "no endpoints"}]}}),
            )
        };
        assert!(
            examine_api_service(&service("False"))
                .unwrap()
                .problem
                .ends_with("no endpoints")
        );
        assert_eq!(examine_api_service(&service("True")), None);
    }
}
