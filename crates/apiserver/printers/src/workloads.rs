//! Workloads: desired and current replicas, and the template.

mod autoscaler;
mod jobs;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::printer::{
    AGE, CONTAINERS, IMAGES, NAME, Printer, SELECTOR, integer_column, text_column,
};
use crate::view::{View, plain_text};

pub(crate) use autoscaler::AUTOSCALER;
pub(crate) use jobs::{CRON_JOB, JOB};

const TEMPLATE: &str = "/spec/template/spec/containers";

fn workload_cells(
    first: impl IntoIterator<Item = Value>,
    view: &View<'_>,
    selector: Option<String>,
) -> Vec<Value> {
    let mut cells: Vec<Value> = first.into_iter().collect();
    cells.push(view.age());
    cells.extend(view.containers(TEMPLATE));
    cells.extend(selector.map(Value::from));
    cells
}

pub(crate) static DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        text_column("Ready", "Pods that are ready, of those wanted."),
        text_column("Up-to-date", "Pods made from the present template."),
        text_column("Available", "Pods that have been ready for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |view| {
        let ready = format!(
            "{}/{}",
            view.int("/status/readyReplicas"),
            view.int("/spec/replicas")
        );
        let first = [
            view.name(),
            json!(ready),
            json!(view.int("/status/updatedReplicas")),
            json!(view.int("/status/availableReplicas")),
        ];
        workload_cells(first, view, Some(view.selector("/spec/selector")))
    },
};

fn replicas(view: &View<'_>) -> [Value; 4] {
    [
        view.name(),
        json!(view.int("/spec/replicas")),
        json!(view.int("/status/replicas")),
        json!(view.int("/status/readyReplicas")),
    ]
}

pub(crate) static REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        integer_column("Desired", "Pods wanted."),
        integer_column("Current", "Pods there."),
        integer_column("Ready", "Pods that are ready."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |view| workload_cells(replicas(view), view, Some(view.selector("/spec/selector"))),
};

pub(crate) static REPLICATION_CONTROLLER: Printer = Printer {
    columns: REPLICA_SET.columns,
    // Its selector is a plain map, from before label selectors had expressions.
    cells: |view| workload_cells(replicas(view), view, Some(view.labels("/spec/selector"))),
};

pub(crate) static STATEFUL_SET: Printer = Printer {
    columns: &[
        NAME,
        text_column("Ready", "Pods that are ready, of those wanted."),
        AGE,
        CONTAINERS,
        IMAGES,
    ],
    cells: |view| {
        let ready = format!(
            "{}/{}",
            view.int("/status/readyReplicas"),
            view.int("/spec/replicas")
        );
        // Upstream's table of StatefulSets has no selector column either.
        workload_cells([view.name(), json!(ready)], view, None)
    },
};

pub(crate) static DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        integer_column("Desired", "Nodes that should run the pod."),
        integer_column("Current", "Nodes that run the pod."),
        integer_column("Ready", "Nodes on which it is ready."),
        integer_column("Up-to-date", "Nodes that run the present template."),
        integer_column(
            "Available",
            "Nodes on which it has been ready for long enough.",
        ),
        text_column("Node Selector", "Labels of the nodes."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |view| {
        let first = [
            view.name(),
            // From the status: only the controller knows which nodes match.
            json!(view.int("/status/desiredNumberScheduled")),
            json!(view.int("/status/currentNumberScheduled")),
            json!(view.int("/status/numberReady")),
            json!(view.int("/status/updatedNumberScheduled")),
            json!(view.int("/status/numberAvailable")),
            json!(view.labels("/spec/template/spec/nodeSelector")),
        ];
        workload_cells(first, view, Some(view.selector("/spec/selector")))
    },
};

pub(crate) static POD_TEMPLATE: Printer = Printer {
    columns: &[
        NAME,
        text_column("Containers", "Names of the containers in the template."),
        text_column("Images", "Images of the containers in the template."),
        text_column("Pod Labels", "Labels of the template."),
    ],
    cells: |view| {
        let [names, images] = view.containers("/template/spec/containers");
        vec![
            view.name(),
            names,
            images,
            json!(view.labels("/template/metadata/labels")),
        ]
    },
};

pub(crate) static CONTROLLER_REVISION: Printer = Printer {
    columns: &[
        NAME,
        text_column("Controller", "Object that the revision belongs to."),
        text_column("Revision", "Number of the revision."),
        AGE,
    ],
    cells: |view| {
        // Only the controller: other owners merely keep the revision from being collected.
        let owners = api_semantics::tree::owner_references(view.object);
        let controller = api_semantics::owners::find_controller(&owners)
            .map_or_else(|| "<none>".to_owned(), resource_name);
        vec![
            view.name(),
            json!(controller),
            json!(view.int("/revision")),
            view.age(),
        ]
    },
};

/// Formats `statefulset.apps/web`.
fn resource_name(owner: &OwnerReference) -> String {
    let kind = owner.kind.to_lowercase();
    let group = owner
        .api_version
        // The core group has no slash in its apiVersion, and no suffix here.
        .split_once('/')
        .map(|(group, _)| format!(".{group}"));
    format!("{kind}{}/{}", group.unwrap_or_default(), owner.name)
}

pub(crate) static DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        text_column("Min Available", "Pods that must stay available."),
        text_column("Max Unavailable", "Pods that may be unavailable."),
        integer_column("Allowed Disruptions", "Pods that may be disrupted now."),
        AGE,
    ],
    cells: |view| {
        // A budget has only one of both: validation rejects the other one.
        let limit = |pointer: &str| {
            json!(
                view.at(pointer)
                    .map_or_else(|| "N/A".to_owned(), plain_text)
            )
        };
        vec![
            view.name(),
            limit("/spec/minAvailable"),
            limit("/spec/maxUnavailable"),
            json!(view.int("/status/disruptionsAllowed")),
            view.age(),
        ]
    },
};
