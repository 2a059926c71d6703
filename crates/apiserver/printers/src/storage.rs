//! Volumes, storage drivers and devices.

use serde_json::{Value, json};

use crate::printer::{
    AGE, Column, NAME, Printer, boolean_column, integer_column, text_column, wide_column,
};
use crate::view::{View, join_members, join_texts, list_of, plain_text, text_of};

fn phase_cell(view: &View<'_>) -> Value {
    // As for pods, deletion overrides the phase: protection finalizers keep a volume that is in
    // use.
    json!(if view.has("/metadata/deletionTimestamp") {
        "Terminating"
    } else {
        view.text("/status/phase")
    })
}

/// Formats `RWO,ROX`; each mode once, in the fixed order of the modes.
fn access_modes(modes: &[Value]) -> String {
    // Upstream's order, whatever the order in the object.
    const MODES: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = MODES
        .iter()
        .filter(|(mode, _)| modes.iter().any(|item| item == mode));
    given.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

const STORAGE_CLASS_NAME: Column = text_column("StorageClass", "Class of the storage.");
const ATTRIBUTES_CLASS: Column =
    text_column("VolumeAttributesClass", "Class of the volume's attributes.");
const VOLUME_MODE: Column = wide_column("VolumeMode", "File system or block device.");

pub(crate) static PERSISTENT_VOLUME: Printer = Printer {
    columns: &[
        NAME,
        text_column("Capacity", "Size."),
        text_column("Access Modes", "How it can be mounted."),
        text_column("Reclaim Policy", "What happens when the claim is gone."),
        text_column("Status", "Phase of the volume."),
        text_column("Claim", "Claim that it is bound to."),
        STORAGE_CLASS_NAME,
        ATTRIBUTES_CLASS,
        text_column("Reason", "Why it is in this phase."),
        AGE,
        VOLUME_MODE,
    ],
    cells: |view| {
        // Also before the volume is bound: a claimRef may reserve it for one claim.
        let claim = view.has("/spec/claimRef").then(|| {
            format!(
                "{}/{}",
                view.text("/spec/claimRef/namespace"),
                view.text("/spec/claimRef/name")
            )
        });
        vec![
            view.name(),
            json!(
                view.at("/spec/capacity/storage")
                    .map_or_else(|| "0".to_owned(), plain_text)
            ),
            json!(access_modes(view.list("/spec/accessModes"))),
            json!(view.text("/spec/persistentVolumeReclaimPolicy")),
            phase_cell(view),
            json!(claim.unwrap_or_default()),
            json!(class_of_volume(view)),
            json!(view.text_or("/spec/volumeAttributesClassName", "<unset>")),
            json!(view.text("/status/reason")),
            view.age(),
            json!(view.text_or("/spec/volumeMode", "<unset>")),
        ]
    },
};

/// Returns the class, from the field or the older annotation.
fn class_of_volume<'a>(view: &View<'a>) -> &'a str {
    // The annotation wins, as in upstream's GetPersistentVolumeClass.
    let annotation = view.text("/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    if annotation.is_empty() {
        view.text("/spec/storageClassName")
    } else {
        annotation
    }
}

pub(crate) static PERSISTENT_VOLUME_CLAIM: Printer = Printer {
    columns: &[
        NAME,
        text_column("Status", "Phase of the claim."),
        text_column("Volume", "Volume that it is bound to."),
        text_column("Capacity", "Size."),
        text_column("Access Modes", "How it can be mounted."),
        STORAGE_CLASS_NAME,
        ATTRIBUTES_CLASS,
        AGE,
        VOLUME_MODE,
    ],
    cells: |view| {
        let bound = !view.text("/spec/volumeName").is_empty();
        let capacity = view
            .at("/status/capacity/storage")
            .filter(|_| bound)
            .map(plain_text);
        // Until a claim is bound, its status describes nothing that exists.
        let modes = if bound {
            access_modes(view.list("/status/accessModes"))
        } else {
            String::new()
        };
        vec![
            view.name(),
            phase_cell(view),
            json!(view.text("/spec/volumeName")),
            json!(capacity.unwrap_or_default()),
            json!(modes),
            json!(class_of_volume(view)),
            json!(view.text_or("/spec/volumeAttributesClassName", "<unset>")),
            view.age(),
            json!(view.text_or("/spec/volumeMode", "<unset>")),
        ]
    },
};

/// Formats the name; marks the default class.
fn class_name(view: &View<'_>, annotations: &[&str]) -> Value {
    // The default is an annotation, not a field, and may carry its beta name.
    let is_default = annotations
        .iter()
        .any(|name| view.text(&format!("/metadata/annotations/{name}")) == "true");
    let suffix = if is_default { " (default)" } else { "" };
    json!(format!("{}{suffix}", view.text("/metadata/name")))
}

pub(crate) static STORAGE_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text_column("Provisioner", "Who makes the volumes."),
        text_column("ReclaimPolicy", "What happens when a claim is gone."),
        text_column("VolumeBindingMode", "When volumes are bound."),
        text_column("AllowVolumeExpansion", "Whether volumes can grow."),
        AGE,
    ],
    cells: |view| {
        let annotations = [
            "storageclass.kubernetes.io~1is-default-class",
            "storageclass.beta.kubernetes.io~1is-default-class",
        ];
        vec![
            class_name(view, &annotations),
            json!(view.text("/provisioner")),
            // The API's defaults; upstream's printer falls back to them, too.
            json!(view.text_or("/reclaimPolicy", "Delete")),
            json!(view.text_or("/volumeBindingMode", "Immediate")),
            json!(view.bool("/allowVolumeExpansion")),
            view.age(),
        ]
    },
};

pub(crate) static VOLUME_ATTRIBUTES_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text_column("DriverName", "Driver that the attributes are for."),
        AGE,
    ],
    cells: |view| {
        let name = class_name(
            view,
            &["volumeattributesclass.kubernetes.io~1is-default-class"],
        );
        vec![name, json!(view.text("/driverName")), view.age()]
    },
};

pub(crate) static VOLUME_ATTACHMENT: Printer = Printer {
    columns: &[
        NAME,
        Column {
            // Upstream marks this column as a name, too, and clients receive the same definition.
            format: "name",
            ..text_column("Attacher", "Driver that attaches the volume.")
        },
        text_column("PV", "Volume."),
        text_column("Node", "Node that it is attached to."),
        boolean_column("Attached", "Whether it is attached."),
        AGE,
    ],
    cells: |view| {
        vec![
            view.name(),
            json!(view.text("/spec/attacher")),
            json!(view.text("/spec/source/persistentVolumeName")),
            json!(view.text("/spec/nodeName")),
            json!(view.bool("/status/attached")),
            view.age(),
        ]
    },
};

pub(crate) static CSI_DRIVER: Printer = Printer {
    columns: &[
        NAME,
        boolean_column("AttachRequired", "Whether volumes must be attached."),
        boolean_column(
            "PodInfoOnMount",
            "Whether the driver receives the pod's name, namespace and UID when it mounts a volume.",
        ),
        boolean_column("StorageCapacity", "Whether it publishes capacity."),
        text_column(
            "TokenRequests",
            "Audiences of the tokens that the driver requests.",
        ),
        boolean_column(
            "RequiresRepublish",
            "Whether the kubelet publishes mounted volumes periodically.",
        ),
        text_column("Modes", "Kinds of volumes."),
        AGE,
    ],
    cells: |view| {
        let tokens = join_members(view.list("/spec/tokenRequests"), "audience", ",");
        let modes = join_texts(view.list("/spec/volumeLifecycleModes"), ",");
        // true is the default of the field.
        let attach = view
            .at("/spec/attachRequired")
            .and_then(Value::as_bool)
            .unwrap_or(true);
        vec![
            view.name(),
            json!(attach),
            json!(view.bool("/spec/podInfoOnMount")),
            json!(view.bool("/spec/storageCapacity")),
            json!(if tokens.is_empty() {
                "<unset>".to_owned()
            } else {
                tokens
            }),
            json!(view.bool("/spec/requiresRepublish")),
            json!(if modes.is_empty() {
                "<none>".to_owned()
            } else {
                modes
            }),
            view.age(),
        ]
    },
};

pub(crate) static CSI_NODE: Printer = Printer {
    columns: &[NAME, integer_column("Drivers", "Drivers on the node."), AGE],
    cells: |view| vec![view.name(), json!(view.count("/spec/drivers")), view.age()],
};

pub(crate) static RESOURCE_CLAIM: Printer = Printer {
    columns: &[
        NAME,
        text_column("State", "Whether devices are allocated and used."),
        AGE,
    ],
    cells: |view| {
        // Upstream's order: a claim may be in several states at once.
        let states = [
            (view.has("/metadata/deletionTimestamp"), "deleted"),
            (view.has("/status/allocation"), "allocated"),
            (
                !list_of(view.at("/status/reservedFor")).is_empty(),
                "reserved",
            ),
        ];
        let states: Vec<&str> = states
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, name)| name)
            .collect();
        // Neither allocated nor deleted: the scheduler has still to act.
        let pending = !states.contains(&"allocated") && !states.contains(&"deleted");
        vec![
            view.name(),
            json!(if pending {
                "pending".to_owned()
            } else {
                states.join(",")
            }),
            view.age(),
        ]
    },
};

pub(crate) static TAINT_RULE: Printer = Printer {
    columns: &[
        NAME,
        text_column("Key", "Key of the taint."),
        text_column("Value", "Value of the taint."),
        text_column("Effect", "Effect of the taint on claims and pods."),
        text_column("TimeAdded", "Time since which the taint has its effect."),
        AGE,
    ],
    cells: |view| {
        let text = |name: &str| view.text(&format!("/spec/taint/{name}"));
        let added = match text("timeAdded") {
            "" => String::new(),
            time => view.ago(time),
        };
        vec![
            view.name(),
            json!(text("key")),
            json!(text("value")),
            json!(text("effect")),
            json!(added),
            view.age(),
        ]
    },
};

pub(crate) static RESOURCE_SLICE: Printer = Printer {
    columns: &[
        NAME,
        text_column("Node", "Node that has the devices."),
        text_column("Driver", "Driver of the devices."),
        text_column("Pool", "Pool of the devices."),
        AGE,
    ],
    cells: |view| {
        let member = |name: &str| json!(text_of(view.at(&format!("/spec/{name}"))));
        vec![
            view.name(),
            member("nodeName"),
            member("driver"),
            member("pool/name"),
            view.age(),
        ]
    },
};
