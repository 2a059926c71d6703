//! Fields of features that are off: by default in v1.36, and by `--feature-gates`.
//!
//! Such a field is dropped unless the old object has it, as a server with default feature gates
//! does: clients that send it see in the response that it has no effect.

mod gated;

pub use gated::{DisabledFields, field_gates};

use api_meta::Kind;
use api_meta::tree::{at_mut, each_mut, get, list, make, remove, set, text};
use serde_json::{Map, Value};

/// Stands for every element of a list, or every value of a map.
const EACH: &str = "*";

/// Fields of a pod's spec: gates `GenericWorkload`, `ClusterTrustBundleProjection` and
/// `PodCertificateRequest`.
const POD_FIELDS: [&[&str]; 3] = [
    &["schedulingGroup"],
    &[
        "volumes",
        EACH,
        "projected",
        "sources",
        EACH,
        "clusterTrustBundle",
    ],
    &[
        "volumes",
        EACH,
        "projected",
        "sources",
        EACH,
        "podCertificate",
    ],
];

/// Containers of a pod's spec.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Gate `ContainerStopSignals`.
const STOP_SIGNAL: &str = "stopSignal";

/// Gate `ImageVolumeWithDigest`.
const VOLUME_STATUSES: [&[&str]; 3] = [
    &[
        "status",
        "containerStatuses",
        EACH,
        "volumeMounts",
        EACH,
        "volumeStatus",
    ],
    &[
        "status",
        "initContainerStatuses",
        EACH,
        "volumeMounts",
        EACH,
        "volumeStatus",
    ],
    &[
        "status",
        "ephemeralContainerStatuses",
        EACH,
        "volumeMounts",
        EACH,
        "volumeStatus",
    ],
];

/// Gate `DRANodeAllocatableResources`, in the status of a pod.
const CLAIM_STATUSES: &[&str] = &["status", "nodeAllocatableResourceClaimStatuses"];

/// Gate `VolumeLimitScaling`.
const PREVENT_SCHEDULING: &[&str] = &["spec", "preventPodSchedulingIfMissing"];

/// Gate `DRAListTypeAttributes`.
const LIST_ATTRIBUTES: [&[&str]; 4] = [
    &["spec", "devices", EACH, "attributes", EACH, "bools"],
    &["spec", "devices", EACH, "attributes", EACH, "ints"],
    &["spec", "devices", EACH, "attributes", EACH, "strings"],
    &["spec", "devices", EACH, "attributes", EACH, "versions"],
];

/// Gate `DRANodeAllocatableResources`.
const MAPPINGS: &[&str] = &["spec", "devices", EACH, "nodeAllocatableResourceMappings"];

/// Gates `TopologyAwareWorkloadScheduling`, `DRAWorkloadResourceClaims` and
/// `WorkloadAwarePreemption`: fields of the templates of a Workload.
const TEMPLATE_FIELDS: [&[&str]; 5] = [
    &["spec", "podGroupTemplates", EACH, "schedulingConstraints"],
    &["spec", "podGroupTemplates", EACH, "resourceClaims"],
    &["spec", "podGroupTemplates", EACH, "disruptionMode"],
    &["spec", "podGroupTemplates", EACH, "priorityClassName"],
    &["spec", "podGroupTemplates", EACH, "priority"],
];

/// The same of a PodGroup. Its `disruptionMode` has a default, so that readers see it in any case.
const GROUP_FIELDS: [&[&str]; 4] = [
    &["spec", "schedulingConstraints"],
    &["spec", "resourceClaims"],
    &["spec", "priorityClassName"],
    &["spec", "priority"],
];

/// Gate `CoordinatedLeaderElection`.
const ELECTION: [&[&str]; 2] = [&["spec", "strategy"], &["spec", "preferredHolder"]];

/// Gate `MaxUnavailableStatefulSet`.
const MAX_UNAVAILABLE: &[&str] = &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];

/// Drops the fields that are not in use.
pub(crate) fn drop_disabled_fields(kind: Kind<'_>, new: &mut Value, old: Option<&Value>) {
    if let Some(pod_spec) = pod_spec_path(kind)
        && let Some(spec) = find_mut(new, pod_spec)
    {
        let old = old.and_then(|old| find(old, pod_spec));
        for path in POD_FIELDS {
            drop_unless_used(spec, old, path);
        }
        drop_stop_signals(spec, old);
    }
    match (kind.group, kind.kind) {
        ("apps", "StatefulSet") => drop_unless_used(new, old, MAX_UNAVAILABLE),
        ("coordination.k8s.io", "Lease") => {
            for path in ELECTION {
                drop_unless_used(new, old, path);
            }
        }
        ("resource.k8s.io", "ResourceSlice") => {
            drop_unless_used(new, old, MAPPINGS);
            drop_unless_one_used(new, old, &LIST_ATTRIBUTES);
        }
        ("storage.k8s.io", "CSIDriver") => drop_unless_used(new, old, PREVENT_SCHEDULING),
        ("scheduling.k8s.io", "Workload") => {
            for path in TEMPLATE_FIELDS {
                drop_unless_used(new, old, path);
            }
        }
        ("scheduling.k8s.io", "PodGroup") => {
            for path in GROUP_FIELDS {
                drop_unless_used(new, old, path);
            }
            if old.is_none()
                && let Some(spec) = make(new, "spec")
            {
                set(spec, "disruptionMode", "Pod");
            }
        }
        ("", "PersistentVolumeClaim") => drop_foreign_source(new, old),
        _ => {}
    }
}

fn pod_spec_path(kind: Kind<'_>) -> Option<&'static [&'static str]> {
    Some(match (kind.group, kind.kind) {
        ("", "Pod") => &["spec"],
        ("", "PodTemplate") => &["template", "spec"],
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet")
        | ("batch", "Job") => &["spec", "template", "spec"],
        ("batch", "CronJob") => &["spec", "jobTemplate", "spec", "template", "spec"],
        _ => return None,
    })
}

/// Drops a reference to another namespace (gate `CrossNamespaceVolumeDataSource`) as a whole:
/// without its namespace it would name another object.
fn drop_foreign_source(new: &mut Value, old: Option<&Value>) {
    let reference = |claim: &Value| get(get(claim, "spec"), "dataSourceRef").clone();
    if !text(&reference(new), "namespace").is_empty()
        && old.is_none_or(|old| reference(old).is_null())
    {
        remove_at(new, &["spec", "dataSourceRef"]);
    }
}

/// Drops the fields of a pod's status that are not in use.
pub(crate) fn drop_disabled_status(new: &mut Value, old: &Value) {
    drop_unless_one_used(new, Some(old), &VOLUME_STATUSES);
    // As upstream, an empty list is not in use.
    if list(get(old, "status"), "nodeAllocatableResourceClaimStatuses").is_empty() {
        remove_at(new, CLAIM_STATUSES);
    }
}

fn drop_stop_signals(spec: &mut Value, old: Option<&Value>) {
    let is_used = |old: &Value| {
        let mut kinds = CONTAINERS.iter();
        kinds.any(|kind| is_used(old, &[kind, EACH, "lifecycle", STOP_SIGNAL]))
    };
    if old.is_some_and(is_used) {
        return;
    }
    for container in CONTAINERS {
        for container in each_mut(spec, container) {
            let lifecycle = at_mut(container, "lifecycle");
            let removed = lifecycle.and_then(|lifecycle| remove(lifecycle, STOP_SIGNAL));
            let left = get(container, "lifecycle").as_object();
            // An empty lifecycle would be a difference to a pod without one.
            if removed.is_some() && left.is_some_and(Map::is_empty) {
                remove(container, "lifecycle");
            }
        }
    }
}

/// Drops fields unless one of them is in use, which keeps all.
fn drop_unless_one_used(new: &mut Value, old: Option<&Value>, paths: &[&[&str]]) {
    if old.is_some_and(|old| paths.iter().any(|path| is_used(old, path))) {
        return;
    }
    for path in paths {
        remove_at(new, path);
    }
}

fn find<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, name| value.get(*name))
}

fn find_mut<'v>(value: &'v mut Value, path: &[&str]) -> Option<&'v mut Value> {
    path.iter()
        .try_fold(value, |value, name| value.get_mut(*name))
}

fn drop_unless_used(new: &mut Value, old: Option<&Value>, path: &[&str]) {
    if !old.is_some_and(|old| is_used(old, path)) {
        remove_at(new, path);
    }
}

fn is_used(value: &Value, path: &[&str]) -> bool {
    match (path, value) {
        ([], value) => !value.is_null(),
        ([EACH, rest @ ..], Value::Array(items)) => items.iter().any(|item| is_used(item, rest)),
        ([EACH, rest @ ..], Value::Object(map)) => map.values().any(|item| is_used(item, rest)),
        ([name, rest @ ..], value) => value.get(name).is_some_and(|item| is_used(item, rest)),
    }
}

fn remove_at(value: &mut Value, path: &[&str]) {
    match (path, value) {
        ([], _) => {}
        ([EACH, rest @ ..], Value::Array(items)) => {
            items.iter_mut().for_each(|item| remove_at(item, rest));
        }
        ([EACH, rest @ ..], Value::Object(map)) => {
            map.values_mut().for_each(|item| remove_at(item, rest));
        }
        ([name], value) => {
            remove(value, name);
        }
        ([name, rest @ ..], value) => {
            if let Some(item) = value.get_mut(*name) {
                remove_at(item, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dropped(group: &str, kind: &str, mut new: Value, old: Option<Value>) -> Value {
        let kind = Kind {
            group,
            version: "v1",
            kind,
            namespaced: true,
        };
        drop_disabled_fields(kind, &mut new, old.as_ref());
        new
    }

    #[test]
    fn scheduling_group_is_dropped_from_every_pod_spec() {
        let spec = json!({"schedulingGroup": {"podGroupName": "g"}, "nodeName": "n"});
        let kept = json!({"nodeName": "n"});
        let template = |spec: &Value| json!({"spec": {"template": {"spec": spec}}});
        for (group, kind, new, expect) in [
            ("", "Pod", json!({"spec": spec}), json!({"spec": kept})),
            ("apps", "Deployment", template(&spec), template(&kept)),
            ("batch", "Job", template(&spec), template(&kept)),
            (
                "batch",
                "CronJob",
                json!({"spec": {"jobTemplate": template(&spec)}}),
                json!({"spec": {"jobTemplate": template(&kept)}}),
            ),
            (
                "",
                "PodTemplate",
                json!({"template": {"spec": spec}}),
                json!({"template": {"spec": kept}}),
            ),
        ] {
            let same = dropped(group, kind, new.clone(), Some(new.clone()));
            assert_eq!(same, new, "{kind} that has it");
            assert_eq!(dropped(group, kind, new, None), expect, "new {kind}");
        }
    }

    #[test]
    fn maximum_of_a_stateful_set_is_dropped_unless_it_is_in_use() {
        let set = |max: Value| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1, "maxUnavailable": max}}}});
        let none = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}});
        for (old, expect) in [
            (None, none.clone()),
            (Some(none.clone()), none.clone()),
            (Some(json!({})), none.clone()),
            (Some(set(json!(1))), set(json!(2))),
        ] {
            let new = set(json!(2));
            assert_eq!(
                dropped("apps", "StatefulSet", new, old.clone()),
                expect,
                "{old:?}"
            );
        }
    }

    #[test]
    fn projected_sources_are_dropped_unless_one_of_the_kind_is_in_use() {
        let pod = |sources: Value| {
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}},
            {"name": "p", "projected": {"sources": sources}}]}})
        };
        let (bundle, certificate) = (
            json!({"clusterTrustBundle": {"name": "b", "path": "p"}}),
            json!({"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519"}}),
        );
        let secret = json!({"secret": {"name": "s"}});
        let new = pod(json!([bundle, secret, certificate]));
        for (old, expect) in [
            (None, pod(json!([{}, secret, {}]))),
            (Some(pod(json!([secret]))), pod(json!([{}, secret, {}]))),
            (Some(pod(json!([bundle]))), pod(json!([bundle, secret, {}]))),
            (
                Some(pod(json!([certificate]))),
                pod(json!([{}, secret, certificate])),
            ),
        ] {
            assert_eq!(
                dropped("", "Pod", new.clone(), old.clone()),
                expect,
                "{old:?}"
            );
        }
    }

    #[test]
    fn stop_signals_are_dropped_unless_one_is_in_use() {
        let pod = |init: Value, main: Value| {
            json!({"spec": {"initContainers": [{"name": "i", "lifecycle": init}],
            "containers": [{"name": "c", "lifecycle": main}]}})
        };
        let signal = json!({"stopSignal": "SIGUSR1"});
        let hook = json!({"stopSignal": "SIGUSR1", "preStop": {"sleep": {"seconds": 1}}});
        let new = pod(signal.clone(), hook.clone());
        let bare = json!({"spec": {"initContainers": [{"name": "i"}],
            "containers": [{"name": "c", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}]}});
        for (old, expect) in [
            (None, bare.clone()),
            (Some(bare.clone()), bare.clone()),
            (Some(pod(json!({}), signal.clone())), new.clone()),
            (Some(pod(signal.clone(), json!({}))), new.clone()),
        ] {
            assert_eq!(
                dropped("", "Pod", new.clone(), old.clone()),
                expect,
                "{old:?}"
            );
        }
        let empty = pod(json!({}), json!({}));
        assert_eq!(dropped("", "Pod", empty.clone(), None), empty);
    }

    #[test]
    fn csi_driver_loses_prevent_pod_scheduling_if_missing() {
        let driver = |spec: Value| json!({"spec": spec});
        let new = driver(json!({"attachRequired": true, "preventPodSchedulingIfMissing": true}));
        let (group, kind) = ("storage.k8s.io", "CSIDriver");
        assert_eq!(
            dropped(group, kind, new.clone(), None),
            driver(json!({"attachRequired": true}))
        );
        let used = driver(json!({"preventPodSchedulingIfMissing": false}));
        assert_eq!(dropped(group, kind, new.clone(), Some(used)), new);
    }

    #[test]
    fn status_of_a_pod_loses_fields_that_are_not_in_use() {
        let pod = |mount: Value, claims: Value| {
            json!({"status": {"initContainerStatuses": [{"name": "i", "volumeMounts": [mount]}],
            "nodeAllocatableResourceClaimStatuses": claims}})
        };
        let digest = json!({"name": "v", "volumeStatus": {"image": {"imageRef": "r"}}});
        let plain = json!({"name": "v"});
        let claims = json!([{"resourceClaimName": "c"}]);
        let new = pod(digest.clone(), claims.clone());
        let none =
            json!({"status": {"initContainerStatuses": [{"name": "i", "volumeMounts": [plain]}]}});
        for (old, expect) in [
            (json!({}), none.clone()),
            (pod(plain.clone(), json!([])), none.clone()),
            (pod(digest, claims), new.clone()),
        ] {
            let mut dropped = new.clone();
            drop_disabled_status(&mut dropped, &old);
            assert_eq!(dropped, expect, "{old}");
        }
    }

    #[test]
    fn lease_loses_fields_of_coordinated_election() {
        let lease = json!({"spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "b", "holderIdentity": "a"}});
        assert_eq!(
            dropped("coordination.k8s.io", "Lease", lease, None),
            json!({"spec": {"holderIdentity": "a"}})
        );
    }

    #[test]
    fn device_attributes_lose_their_lists_unless_one_is_in_use() {
        let slice = |attribute: Value| json!({"spec": {"devices": [{"name": "d", "attributes": {"a": attribute}}]}});
        let new = slice(json!({"int": 1, "ints": [1], "versions": ["1.0.0"]}));
        let used = slice(json!({"strings": ["x"]}));
        let group = "resource.k8s.io";
        assert_eq!(
            dropped(group, "ResourceSlice", new.clone(), None),
            slice(json!({"int": 1}))
        );
        assert_eq!(
            dropped(group, "ResourceSlice", new.clone(), Some(used)),
            new
        );
    }

    #[test]
    fn slice_loses_mappings_of_devices() {
        let slice = |device: Value| json!({"spec": {"devices": [device]}});
        let new = slice(
            json!({"name": "a", "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "m"}}}),
        );
        let (group, kind) = ("resource.k8s.io", "ResourceSlice");
        assert_eq!(
            dropped(group, kind, new.clone(), None),
            slice(json!({"name": "a"}))
        );
        assert_eq!(dropped(group, kind, new.clone(), Some(new.clone())), new);
    }

    #[test]
    fn claim_loses_a_source_in_another_namespace() {
        let claim = |namespace: &str| json!({"spec": {"dataSourceRef": {"kind": "A", "name": "a", "namespace": namespace}}});
        let kind = "PersistentVolumeClaim";
        assert_eq!(dropped("", kind, claim("n"), None), json!({"spec": {}}));
        assert_eq!(dropped("", kind, claim(""), None), claim(""));
        assert_eq!(dropped("", kind, claim("n"), Some(claim("n"))), claim("n"));
    }
}
