//! Nodes and related kinds.

use serde_json::{Value, json};

use crate::printer::{
    AGE, NAME, Printer, boolean_column, integer_column, text_column, wide_column,
};
use crate::view::{View, text_of};

pub(crate) static NODE: Printer = Printer {
    columns: &[
        NAME,
        text_column("Status", "Whether the node takes pods."),
        text_column("Roles", "Roles by label."),
        AGE,
        text_column("Version", "Version of the kubelet."),
        wide_column("Internal-IP", "Address within the cluster."),
        wide_column("External-IP", "Address from outside."),
        wide_column("OS-Image", "Operating system."),
        wide_column("Kernel-Version", "Version of the kernel."),
        wide_column("Container-Runtime", "Container runtime and version."),
    ],
    cells: |view| {
        let info =
            |name: &str| json!(view.text_or(&format!("/status/nodeInfo/{name}"), "<unknown>"));
        vec![
            view.name(),
            json!(node_status(view)),
            json!(node_roles(view)),
            view.age(),
            json!(view.text("/status/nodeInfo/kubeletVersion")),
            json!(node_address(view, "InternalIP")),
            json!(node_address(view, "ExternalIP")),
            info("osImage"),
            json!(kernel_version(view)),
            info("containerRuntimeVersion"),
        ]
    },
};

/// Returns the kernel's version and the architecture: `6.18.44 (amd64)`.
fn kernel_version(view: &View<'_>) -> String {
    let version = view.text_or("/status/nodeInfo/kernelVersion", "<unknown>");
    match view.text("/status/nodeInfo/architecture") {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    }
}

fn node_status(view: &View<'_>) -> String {
    // Only this condition decides: pressure conditions act through taints, which the column leaves
    // out.
    let ready = match view.condition("Ready") {
        Some(condition) if text_of(condition.get("status")) == "True" => "Ready",
        // Unknown, when the kubelet stopped reporting, is not ready as well.
        Some(_) => "NotReady",
        // The kubelet has not registered its conditions yet.
        None => "Unknown",
    };
    // A cordoned node may be ready all the same: its running pods stay.
    let suffix = if view.bool("/spec/unschedulable") {
        ",SchedulingDisabled"
    } else {
        ""
    };
    format!("{ready}{suffix}")
}

fn node_roles(view: &View<'_>) -> String {
    let labels = view.at("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                // The older label holds the role in its value.
                None if key == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    // A role can be given by both labels.
    roles.dedup();
    if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    }
}

fn node_address<'a>(view: &View<'a>, kind: &str) -> &'a str {
    let found = view
        .list("/status/addresses")
        .iter()
        .find(|address| text_of(address.get("type")) == kind);
    found.map_or("<none>", |address| text_of(address.get("address")))
}

pub(crate) static PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        integer_column("Value", "Priority of the class's pods."),
        boolean_column("Global-Default", "Whether pods without a class have it."),
        AGE,
        text_column("PreemptionPolicy", "Whether its pods preempt others."),
    ],
    cells: |view| {
        vec![
            view.name(),
            json!(view.int("/value")),
            json!(view.bool("/globalDefault")),
            view.age(),
            json!(view.text("/preemptionPolicy")),
        ]
    },
};

pub(crate) static POD_GROUP: Printer = Printer {
    columns: &[
        NAME,
        text_column(
            "Policy",
            "Scheduling of its pods: together (Gang) or one by one (Basic).",
        ),
        text_column("Workload", "Workload that has its template."),
        text_column(
            "Status",
            "Progress of its scheduling, or reason of its disruption.",
        ),
        AGE,
    ],
    cells: |view| {
        let policy = match view.has("/spec/schedulingPolicy/gang") {
            true => "Gang",
            false => "Basic",
        };
        let workload = match view.has("/spec/podGroupTemplateRef") {
            true => view.text("/spec/podGroupTemplateRef/workload/workloadName"),
            false => "<none>",
        };
        vec![
            view.name(),
            json!(policy),
            json!(workload),
            json!(find_group_state(view)),
            view.age(),
        ]
    },
};

/// Returns the state of a PodGroup. A disruption hides the others.
fn find_group_state<'a>(view: &View<'a>) -> &'a str {
    if let Some(disruption) = view.condition("DisruptionTarget") {
        return text_of(disruption.get("reason"));
    }
    match view.condition("PodGroupScheduled") {
        Some(condition) if text_of(condition.get("status")) == "True" => "Scheduled",
        Some(_) => "Unschedulable",
        None => "Pending",
    }
}

pub(crate) static RUNTIME_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text_column("Handler", "Handler in the container runtime."),
        AGE,
    ],
    cells: |view| vec![view.name(), json!(view.text("/handler")), view.age()],
};
