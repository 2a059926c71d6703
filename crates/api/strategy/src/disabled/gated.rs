//! Fields of features that are on by default and that `--feature-gates` turns off.

use super::{drop_unless_one_used, find, find_mut, pod_spec_path};
use api_meta::Kind;
use serde_json::Value;

/// The objects that have the fields of a row.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The spec of a pod, also in templates.
    PodSpec,
    /// Objects of these groups and kinds.
    Objects(&'static [(&'static str, &'static str)]),
}

/// Fields of a gate. If the old object uses one of them, all are kept, as upstream.
#[derive(Debug)]
struct GatedFields {
    /// The fields are dropped if one of these gates is disabled.
    gates: &'static [&'static str],
    place: Place,
    paths: &'static [&'static [&'static str]],
}

const POD: Place = Place::Objects(&[("", "Pod")]);
const SLICE: Place = Place::Objects(&[("resource.k8s.io", "ResourceSlice")]);
const CLAIM: Place = Place::Objects(&[("resource.k8s.io", "ResourceClaim")]);
const CLAIM_TEMPLATE: Place = Place::Objects(&[("resource.k8s.io", "ResourceClaimTemplate")]);

/// The fields by gate. Each row is a condition of upstream's `dropDisabledFields`.
const FIELDS: &[GatedFields] = &[
    GatedFields {
        gates: &["HostnameOverride"],
        place: Place::PodSpec,
        paths: &[&["hostnameOverride"]],
    },
    GatedFields {
        gates: &["EnvFiles"],
        place: Place::PodSpec,
        paths: &[
            &["containers", "*", "env", "*", "valueFrom", "fileKeyRef"],
            &["initContainers", "*", "env", "*", "valueFrom", "fileKeyRef"],
            &[
                "ephemeralContainers",
                "*",
                "env",
                "*",
                "valueFrom",
                "fileKeyRef",
            ],
        ],
    },
    GatedFields {
        gates: &["PodLevelResources"],
        place: Place::PodSpec,
        paths: &[&["resources"]],
    },
    GatedFields {
        gates: &[POD_LEVEL_RESIZE],
        place: POD,
        paths: &[&["status", "resources"], &["status", "allocatedResources"]],
    },
    GatedFields {
        gates: &["DRAExtendedResource"],
        place: POD,
        paths: &[&["status", "extendedResourceClaimStatus"]],
    },
    GatedFields {
        gates: &["DRAExtendedResource"],
        place: Place::Objects(&[("resource.k8s.io", "DeviceClass")]),
        paths: &[&["spec", "extendedResourceName"]],
    },
    GatedFields {
        gates: &["ResourceHealthStatus"],
        place: POD,
        paths: &[
            &[
                "status",
                "containerStatuses",
                "*",
                "allocatedResourcesStatus",
            ],
            &[
                "status",
                "initContainerStatuses",
                "*",
                "allocatedResourcesStatus",
            ],
            &[
                "status",
                "ephemeralContainerStatuses",
                "*",
                "allocatedResourcesStatus",
            ],
        ],
    },
    GatedFields {
        gates: &["ResourceHealthStatusMessage"],
        place: POD,
        paths: &[
            &[
                "status",
                "containerStatuses",
                "*",
                "allocatedResourcesStatus",
                "*",
                "resources",
                "*",
                "message",
            ],
            &[
                "status",
                "initContainerStatuses",
                "*",
                "allocatedResourcesStatus",
                "*",
                "resources",
                "*",
                "message",
            ],
            &[
                "status",
                "ephemeralContainerStatuses",
                "*",
                "allocatedResourcesStatus",
                "*",
                "resources",
                "*",
                "message",
            ],
        ],
    },
    GatedFields {
        gates: &["DeploymentReplicaSetTerminatingReplicas"],
        place: Place::Objects(&[("apps", "Deployment"), ("apps", "ReplicaSet")]),
        paths: &[&["status", "terminatingReplicas"]],
    },
    GatedFields {
        gates: &["HPAConfigurableTolerance"],
        place: Place::Objects(&[("autoscaling", "HorizontalPodAutoscaler")]),
        paths: &[
            &["spec", "behavior", "scaleDown", "tolerance"],
            &["spec", "behavior", "scaleUp", "tolerance"],
        ],
    },
    GatedFields {
        gates: &["DRADeviceTaints"],
        place: SLICE,
        paths: &[&["spec", "devices", "*", "taints"]],
    },
    GatedFields {
        gates: &["DRADeviceTaints"],
        place: CLAIM,
        paths: &[
            &["spec", "devices", "requests", "*", "exactly", "tolerations"],
            &[
                "spec",
                "devices",
                "requests",
                "*",
                "firstAvailable",
                "*",
                "tolerations",
            ],
        ],
    },
    GatedFields {
        gates: &["DRADeviceTaints"],
        place: CLAIM_TEMPLATE,
        paths: &[
            &[
                "spec",
                "spec",
                "devices",
                "requests",
                "*",
                "exactly",
                "tolerations",
            ],
            &[
                "spec",
                "spec",
                "devices",
                "requests",
                "*",
                "firstAvailable",
                "*",
                "tolerations",
            ],
        ],
    },
    GatedFields {
        gates: &["DRAPartitionableDevices"],
        place: SLICE,
        paths: &[
            &["spec", "sharedCounters"],
            &["spec", "perDeviceNodeSelection"],
            &["spec", "devices", "*", "consumesCounters"],
            &["spec", "devices", "*", "nodeName"],
            &["spec", "devices", "*", "nodeSelector"],
            &["spec", "devices", "*", "allNodes"],
        ],
    },
    GatedFields {
        // Readers of the conditions write them to the status of the device.
        gates: &["DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"],
        place: SLICE,
        paths: &[
            &["spec", "devices", "*", "bindingConditions"],
            &["spec", "devices", "*", "bindingFailureConditions"],
            &["spec", "devices", "*", "bindsToNode"],
        ],
    },
    GatedFields {
        gates: &["DRADeviceBindingConditions"],
        place: CLAIM,
        paths: &[
            &[
                "status",
                "allocation",
                "devices",
                "results",
                "*",
                "bindingConditions",
            ],
            &[
                "status",
                "allocation",
                "devices",
                "results",
                "*",
                "bindingFailureConditions",
            ],
        ],
    },
    GatedFields {
        gates: &["DRAConsumableCapacity"],
        place: SLICE,
        paths: &[
            &["spec", "devices", "*", "allowMultipleAllocations"],
            &["spec", "devices", "*", "capacity", "*", "requestPolicy"],
        ],
    },
    GatedFields {
        gates: &["DRAConsumableCapacity"],
        place: CLAIM,
        paths: &[
            &["spec", "devices", "constraints", "*", "distinctAttribute"],
            &["spec", "devices", "requests", "*", "exactly", "capacity"],
            &[
                "spec",
                "devices",
                "requests",
                "*",
                "firstAvailable",
                "*",
                "capacity",
            ],
            &["status", "allocation", "devices", "results", "*", "shareID"],
            &[
                "status",
                "allocation",
                "devices",
                "results",
                "*",
                "consumedCapacity",
            ],
            &["status", "devices", "*", "shareID"],
        ],
    },
    GatedFields {
        gates: &["DRAConsumableCapacity"],
        place: CLAIM_TEMPLATE,
        paths: &[
            &[
                "spec",
                "spec",
                "devices",
                "constraints",
                "*",
                "distinctAttribute",
            ],
            &[
                "spec", "spec", "devices", "requests", "*", "exactly", "capacity",
            ],
            &[
                "spec",
                "spec",
                "devices",
                "requests",
                "*",
                "firstAvailable",
                "*",
                "capacity",
            ],
        ],
    },
];

/// Gate of the resize of pods with resources of their own.
const POD_LEVEL_RESIZE: &str = "InPlacePodLevelResourcesVerticalScaling";

/// Gates whose fields are in the table, without those that only other gates' fields depend on.
pub fn field_gates() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().filter_map(|row| row.gates.first().copied())
}

/// The fields of gates that are disabled.
#[derive(Debug, Default)]
pub struct DisabledFields(Vec<&'static GatedFields>);

impl DisabledFields {
    /// Selects the fields by the gates.
    pub fn new(is_enabled: impl Fn(&str) -> bool) -> Self {
        let is_disabled = |row: &&GatedFields| !row.gates.iter().all(|gate| is_enabled(gate));
        DisabledFields(FIELDS.iter().filter(is_disabled).collect())
    }

    /// Returns whether pods with resources of their own can be resized.
    pub fn allows_pod_level_resize(&self) -> bool {
        !self
            .0
            .iter()
            .any(|row| row.gates.contains(&POD_LEVEL_RESIZE))
    }

    /// Drops the fields of a new or changed object, unless the old one uses them.
    pub fn drop_from(&self, kind: Kind<'_>, new: &mut Value, old: Option<&Value>) {
        for row in &self.0 {
            row.drop_from(kind, new, old);
        }
    }
}

impl GatedFields {
    fn drop_from(&self, kind: Kind<'_>, new: &mut Value, old: Option<&Value>) {
        match self.place {
            Place::Objects(kinds) => {
                if kinds.contains(&(kind.group, kind.kind)) {
                    drop_unless_one_used(new, old, self.paths);
                }
            }
            Place::PodSpec => {
                if let Some(path) = pod_spec_path(kind)
                    && let Some(spec) = find_mut(new, path)
                {
                    let old = old.and_then(|old| find(old, path));
                    drop_unless_one_used(spec, old, self.paths);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    /// Returns an object that has exactly the field `path`, in a list or map where there is `*`.
    fn object_with(path: &[&str]) -> Value {
        match path {
            [] => json!("value"),
            ["*", rest @ ..] => json!([object_with(rest)]),
            [name, rest @ ..] => json!({*name: object_with(rest)}),
        }
    }

    /// Returns the path of a row's fields in each kind that has them.
    fn places(row: &GatedFields) -> Vec<(Kind<'static>, Vec<&'static str>)> {
        let kind = |group, kind| Kind {
            group,
            version: "v1",
            kind,
            namespaced: true,
        };
        match row.place {
            Place::Objects(kinds) => kinds
                .iter()
                .map(|(group, name)| (kind(group, name), Vec::new()))
                .collect(),
            Place::PodSpec => [
                ("", "Pod"),
                ("", "PodTemplate"),
                ("", "ReplicationController"),
                ("apps", "Deployment"),
                ("apps", "ReplicaSet"),
                ("apps", "DaemonSet"),
                ("apps", "StatefulSet"),
                ("batch", "Job"),
                ("batch", "CronJob"),
            ]
            .into_iter()
            .map(|(group, name)| {
                let kind = kind(group, name);
                (kind, pod_spec_path(kind).unwrap_or_default().to_vec())
            })
            .collect(),
        }
    }

    #[test]
    fn fields_of_a_disabled_gate_are_dropped_unless_they_are_in_use() {
        for row in FIELDS {
            let gate = row.gates[0];
            let off = DisabledFields::new(|name| name != gate);
            for (kind, prefix) in places(row) {
                for path in row.paths {
                    let full = [&prefix, *path].concat();
                    let (object, old) = (object_with(&full), object_with(&prefix));
                    for old in [None, Some(&old)] {
                        let mut new = object.clone();
                        off.drop_from(kind, &mut new, old);
                        assert_ne!(new, object, "{gate} {} {path:?}", kind.kind);
                    }
                    // A field of the same gate is in use.
                    for used in row.paths {
                        let mut new = object.clone();
                        let old = object_with(&[&prefix, *used].concat());
                        off.drop_from(kind, &mut new, Some(&old));
                        assert_eq!(new, object, "{gate} {} {path:?}", kind.kind);
                    }
                    let mut new = object.clone();
                    DisabledFields::default().drop_from(kind, &mut new, None);
                    assert_eq!(new, object, "{gate} is enabled");
                }
            }
        }
    }

    #[test]
    fn rows_of_other_gates_stay() {
        let off = DisabledFields::new(|gate| gate != "HostnameOverride");
        let kind = Kind {
            group: "",
            version: "v1",
            kind: "Pod",
            namespaced: true,
        };
        let mut pod = json!({"spec": {"hostnameOverride": "h", "resources": {"limits": {}}}});
        off.drop_from(kind, &mut pod, None);
        assert_eq!(pod, json!({"spec": {"resources": {"limits": {}}}}));
    }

    #[test]
    fn gate_of_a_dependency_drops_the_fields_too() {
        let off = DisabledFields::new(|gate| gate != "DRAResourceClaimDeviceStatus");
        assert_eq!(off.0.len(), 1);
        let gates: BTreeSet<&str> = field_gates().collect();
        assert!(!gates.contains("DRAResourceClaimDeviceStatus"));
    }
}
