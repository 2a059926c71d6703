//! The desired Node object: pure functions.

use crate::config::Settings;
use crate::context::KubeletContext;
use crate::node::Machine;
use api_meta::Quantity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints,
    NodeSpec, NodeStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use node_runtime::v1::{Image, RuntimeStatus};
use std::collections::BTreeMap;

/// Maximum number of images in the status.
const MAX_IMAGES: usize = 50;

/// Features of the kubelet that API servers require for changes of a pod (KEP-5328), in order.
const DECLARED_FEATURES: [&str; 2] = [
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
];
/// State that changes between two status updates.
pub(crate) struct NodeObservation<'a> {
    pub(crate) machine: &'a Machine,
    /// None if the runtime does not respond.
    pub(crate) runtime: Option<&'a RuntimeStatus>,
    pub(crate) images: &'a [Image],
    pub(crate) port: u16,
    pub(crate) now: Timestamp,
}

/// Returns the standard labels and those from the settings.
pub(crate) fn build_labels(settings: &Settings, machine: &Machine) -> BTreeMap<String, String> {
    let arch = machine.info.architecture.clone();
    let mut all: BTreeMap<String, String> = [
        ("kubernetes.io/hostname", settings.node_name.clone()),
        ("kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/arch", arch.clone()),
        ("beta.kubernetes.io/os", "linux".to_owned()),
        ("beta.kubernetes.io/arch", arch),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into();
    // Last, so that an administrator can override the detected ones.
    all.extend(settings.labels.clone());
    all
}

/// Builds the Node object for registration.
pub(crate) fn new_node(context: &KubeletContext, observation: &NodeObservation<'_>) -> Node {
    let settings = &context.settings;
    let annotations = [(
        "volumes.kubernetes.io/controller-managed-attach-detach".to_owned(),
        "true".to_owned(),
    )];
    Node {
        metadata: ObjectMeta {
            name: Some(settings.node_name.clone()),
            labels: Some(build_labels(settings, observation.machine)),
            annotations: Some(annotations.into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: (!settings.taints.is_empty()).then(|| settings.taints.clone()),
            ..NodeSpec::default()
        }),
        status: Some(build_status(context, observation, &NodeStatus::default())),
    }
}

fn to_api_quantities(map: &BTreeMap<String, Quantity>) -> BTreeMap<String, ApiQuantity> {
    map.iter()
        .map(|(name, amount)| (name.clone(), ApiQuantity(amount.to_string())))
        .collect()
}

/// Computes the status.
pub(crate) fn build_status(
    context: &KubeletContext,
    observation: &NodeObservation<'_>,
    before: &NodeStatus,
) -> NodeStatus {
    NodeStatus {
        addresses: Some(list_addresses(context)),
        allocatable: Some(to_api_quantities(&context.allocatable)),
        capacity: Some(to_api_quantities(&context.capacity)),
        // The node lifecycle controller reads the heartbeat of these conditions besides the Lease.
        conditions: Some(build_conditions(observation, before)),
        declared_features: Some(DECLARED_FEATURES.map(str::to_owned).to_vec()),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: i32::from(observation.port),
            }),
        }),
        images: Some(list_images(observation.images)),
        node_info: Some(observation.machine.info.clone()),
        ..NodeStatus::default()
    }
}

fn list_addresses(context: &KubeletContext) -> Vec<NodeAddress> {
    let internal = context.ips.iter().map(|ip| NodeAddress {
        type_: "InternalIP".into(),
        address: ip.clone(),
    });
    let name = NodeAddress {
        type_: "Hostname".into(),
        address: context.settings.node_name.clone(),
    };
    internal.chain([name]).collect()
}

fn list_images(all: &[Image]) -> Vec<ContainerImage> {
    let mut all: Vec<&Image> = all.iter().collect();
    // The scheduler prefers nodes that have a pod's image, and large images matter most.
    all.sort_by_key(|i| (std::cmp::Reverse(i.size), i.id.clone()));
    let names = |i: &Image| {
        i.repo_digests
            .iter()
            .chain(&i.repo_tags)
            .take(5)
            .cloned()
            .collect::<Vec<_>>()
    };
    all.into_iter()
        .map(|i| ContainerImage {
            names: Some(names(i)),
            size_bytes: i64::try_from(i.size).ok(),
        })
        .filter(|i| i.names.as_ref().is_some_and(|n| !n.is_empty()))
        .take(MAX_IMAGES)
        .collect()
}

fn build_conditions(observation: &NodeObservation<'_>, before: &NodeStatus) -> Vec<NodeCondition> {
    let quiet = [
        (
            "MemoryPressure",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
    ];
    let mut all: Vec<NodeCondition> = quiet
        .into_iter()
        .map(|(kind, reason, message)| {
            build_condition(observation, before, kind, false, reason, message.to_owned())
        })
        .collect();
    let problem = find_problem(observation.runtime);
    all.push(match problem {
        None => build_condition(
            observation,
            before,
            "Ready",
            true,
            "KubeletReady",
            "kubelet is posting ready status".to_owned(),
        ),
        Some(why) => build_condition(observation, before, "Ready", false, "KubeletNotReady", why),
    });
    all
}

/// Returns why the node can't run pods.
fn find_problem(runtime: Option<&RuntimeStatus>) -> Option<String> {
    let Some(runtime) = runtime else {
        return Some("container runtime is down".into());
    };
    let bad = runtime
        .conditions
        .iter()
        .filter(|c| !c.status && matches!(c.r#type.as_str(), "RuntimeReady" | "NetworkReady"));
    let texts: Vec<String> = bad
        .map(|c| {
            format!(
                "container runtime {} not ready: reason:{} message:{}",
                c.r#type, c.reason, c.message
            )
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn build_condition(
    observation: &NodeObservation<'_>,
    before: &NodeStatus,
    kind: &str,
    holds: bool,
    reason: &str,
    message: String,
) -> NodeCondition {
    let status = if holds { "True" } else { "False" };
    let now = Timestamp::from_second(observation.now.as_second())
        .map(Time)
        .ok();
    let same = before
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == kind && c.status == status);
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: now.clone(),
        last_transition_time: same.and_then(|c| c.last_transition_time.clone()).or(now),
    }
}

/// Returns whether the status that the API has lacks anything of `desired` but the heartbeat times.
/// It may have more: conditions and resources of other writers.
pub(crate) fn is_outdated(stored: &NodeStatus, desired: &NodeStatus) -> bool {
    let has_condition = |desired: &NodeCondition| {
        let stored = stored.conditions.iter().flatten();
        let mut same_type = stored.filter(|stored| stored.type_ == desired.type_);
        same_type.next().is_some_and(|stored| {
            let stored = NodeCondition {
                last_heartbeat_time: desired.last_heartbeat_time.clone(),
                ..stored.clone()
            };
            stored == *desired
        })
    };
    let has_amounts = |stored: &Amounts, desired: &Amounts| {
        let mut desired = desired.iter().flatten();
        desired.all(|(name, amount)| stored.as_ref().and_then(|all| all.get(name)) == Some(amount))
    };
    let is_current = desired.conditions.iter().flatten().all(has_condition)
        && has_amounts(&stored.capacity, &desired.capacity)
        && has_amounts(&stored.allocatable, &desired.allocatable)
        && stored.addresses == desired.addresses
        && stored.daemon_endpoints == desired.daemon_endpoints
        && stored.node_info == desired.node_info
        && stored.images.as_deref().unwrap_or_default()
            == desired.images.as_deref().unwrap_or_default();
    !is_current
}

/// Amounts of resources in a status.
type Amounts = Option<BTreeMap<String, ApiQuantity>>;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing;
    use node_runtime::v1::RuntimeCondition;
    use std::sync::Arc;

    fn context() -> (tempfile::TempDir, Arc<KubeletContext>) {
        let dir = tempfile::tempdir().unwrap();
        let context = testing::context(testing::settings(dir.path()));
        (dir, context)
    }

    fn status(
        runtime: Option<&RuntimeStatus>,
        images: &[Image],
        before: &NodeStatus,
    ) -> NodeStatus {
        let (_dir, context) = context();
        let observation = NodeObservation {
            machine: &Machine::default(),
            runtime,
            images,
            port: 10250,
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        build_status(&context, &observation, before)
    }

    fn ready(status: &NodeStatus) -> NodeCondition {
        let mut all = status.conditions.iter().flatten();
        all.find(|c| c.type_ == "Ready").unwrap().clone()
    }

    fn runtime(conditions: &[(&str, bool)]) -> RuntimeStatus {
        let conditions = conditions.iter().map(|(kind, status)| RuntimeCondition {
            r#type: (*kind).into(),
            status: *status,
            reason: "Why".into(),
            message: "text".into(),
        });
        RuntimeStatus {
            conditions: conditions.collect(),
        }
    }

    #[tokio::test]
    async fn node_is_ready_if_runtime_and_network_are() {
        for (conditions, expected) in [
            (vec![("RuntimeReady", true), ("NetworkReady", true)], "True"),
            (
                vec![("RuntimeReady", true), ("NetworkReady", false)],
                "False",
            ),
            (
                vec![("RuntimeReady", false), ("NetworkReady", true)],
                "False",
            ),
            // Conditions of the runtime's own say nothing about pods.
            (
                vec![("RuntimeReady", true), ("Deprecations", false)],
                "True",
            ),
        ] {
            let runtime = runtime(&conditions);
            let ready = ready(&status(Some(&runtime), &[], &NodeStatus::default()));
            assert_eq!(ready.status, expected, "{conditions:?}");
        }
        let down = ready(&status(None, &[], &NodeStatus::default()));
        assert_eq!(down.message.as_deref(), Some("container runtime is down"));
    }

    #[tokio::test]
    async fn heartbeat_changes_no_transition_time_and_no_status() {
        let up = runtime(&[("RuntimeReady", true)]);
        let mut before = status(Some(&up), &[], &NodeStatus::default());
        let earlier: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
        for condition in before.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = Some(Time(earlier));
            condition.last_transition_time = Some(Time(earlier));
        }
        let now = status(Some(&up), &[], &before);
        assert_eq!(ready(&now).last_transition_time, Some(Time(earlier)));
        assert_ne!(ready(&now).last_heartbeat_time, Some(Time(earlier)));
        assert!(!is_outdated(&before, &now));
        let down = status(None, &[], &before);
        assert_ne!(ready(&down).last_transition_time, Some(Time(earlier)));
        assert!(is_outdated(&before, &down));
    }

    #[tokio::test]
    async fn status_that_others_changed_is_outdated_and_what_they_added_is_not() {
        let up = runtime(&[("RuntimeReady", true)]);
        let desired = status(Some(&up), &[], &NodeStatus::default());
        type Change = fn(&mut NodeStatus);
        let cases: [(&str, Change, bool); 6] = [
            ("nothing", |_| {}, false),
            (
                "condition",
                |s| {
                    let mut all = s.conditions.iter_mut().flatten();
                    all.find(|c| c.type_ == "Ready").unwrap().status = "Unknown".into();
                },
                true,
            ),
            ("conditions", |s| s.conditions = None, true),
            ("capacity", |s| s.capacity.as_mut().unwrap().clear(), true),
            ("addresses", |s| s.addresses = None, true),
            (
                "more",
                |s| {
                    let amount = ApiQuantity("5".into());
                    s.capacity
                        .as_mut()
                        .unwrap()
                        .insert("example.com/dongle".into(), amount);
                    s.conditions.as_mut().unwrap().push(NodeCondition {
                        type_: "NetworkUnavailable".into(),
                        ..NodeCondition::default()
                    });
                },
                false,
            ),
        ];
        for (name, change, expect) in cases {
            let mut stored = desired.clone();
            change(&mut stored);
            assert_eq!(is_outdated(&stored, &desired), expect, "{name}");
        }
    }

    #[tokio::test]
    async fn largest_images_with_a_name_are_reported() {
        let image = |n: u64, tags: &[&str]| Image {
            id: format!("sha256:{n}"),
            size: n,
            repo_tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..Image::default()
        };
        let mut images: Vec<Image> = (0..60).map(|n| image(n, &["a:1"])).collect();
        images.push(image(1000, &[]));
        images.push(image(999, &["1", "2", "3", "4", "5", "6"]));
        let reported = status(None, &images, &NodeStatus::default())
            .images
            .unwrap();
        assert_eq!(reported.len(), MAX_IMAGES);
        let sizes = reported.iter().take(2).map(|i| i.size_bytes.unwrap());
        assert_eq!(sizes.collect::<Vec<_>>(), [999, 59]);
        assert_eq!(reported[0].names.as_ref().unwrap().len(), 5);
    }

    #[tokio::test]
    async fn node_is_registered_with_its_addresses_labels_and_taints() {
        let dir = tempfile::tempdir().unwrap();
        let taint = k8s_openapi::api::core::v1::Taint {
            key: "k".into(),
            effect: "NoSchedule".into(),
            ..Default::default()
        };
        let labels = [("zone", "z1"), ("kubernetes.io/os", "custom")];
        let settings = Settings {
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            taints: vec![taint.clone()],
            ..testing::settings(dir.path())
        };
        let observation = NodeObservation {
            machine: &Machine::default(),
            runtime: None,
            images: &[],
            port: 10250,
            now: Timestamp::now(),
        };
        let node = new_node(&testing::context(settings), &observation);
        let labels = node.metadata.labels.unwrap();
        assert_eq!(
            labels.get("kubernetes.io/hostname").map(String::as_str),
            Some("n1")
        );
        assert_eq!(labels.get("zone").map(String::as_str), Some("z1"));
        assert_eq!(
            labels.get("kubernetes.io/os").map(String::as_str),
            Some("custom")
        );
        assert_eq!(node.spec.unwrap().taints, Some(vec![taint]));
        let addresses = node.status.unwrap().addresses.unwrap();
        let addresses: Vec<_> = addresses
            .iter()
            .map(|a| (a.type_.as_str(), a.address.as_str()))
            .collect();
        assert_eq!(addresses, [("InternalIP", "192.0.2.1"), ("Hostname", "n1")]);
    }
}
