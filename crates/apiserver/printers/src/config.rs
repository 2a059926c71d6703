//! Namespaces, configuration, events and leases.

use serde_json::{Value, json};

use crate::printer::{AGE, Column, NAME, Printer, text_column, wide_column};
use crate::view::{View, plain_text, text_of};

pub(crate) static NAMESPACE: Printer = Printer {
    columns: &[NAME, text_column("Status", "Phase of the namespace."), AGE],
    cells: |view| vec![view.name(), json!(view.text("/status/phase")), view.age()],
};

pub(crate) static CONFIG_MAP: Printer = Printer {
    columns: &[NAME, text_column("Data", "Number of entries."), AGE],
    cells: |view| {
        vec![
            view.name(),
            // Both maps share one set of keys.
            json!(view.count("/data") + view.count("/binaryData")),
            view.age(),
        ]
    },
};

pub(crate) static SECRET: Printer = Printer {
    columns: &[
        NAME,
        text_column("Type", "What the secret is for."),
        text_column("Data", "Number of entries."),
        AGE,
    ],
    cells: |view| {
        vec![
            view.name(),
            json!(view.text("/type")),
            json!(view.count("/data")),
            view.age(),
        ]
    },
};

pub(crate) static LEASE: Printer = Printer {
    columns: &[NAME, text_column("Holder", "Who holds the lease."), AGE],
    cells: |view| {
        vec![
            view.name(),
            json!(view.text("/spec/holderIdentity")),
            view.age(),
        ]
    },
};

pub(crate) static LEASE_CANDIDATE: Printer = Printer {
    columns: &[
        NAME,
        text_column("LeaseName", "Lease that the candidate wants to hold."),
        text_column("BinaryVersion", "Version of the candidate."),
        text_column("EmulationVersion", "Version that the candidate emulates."),
        AGE,
    ],
    cells: |view| {
        vec![
            view.name(),
            json!(view.text("/spec/leaseName")),
            json!(view.text("/spec/binaryVersion")),
            json!(view.text("/spec/emulationVersion")),
            view.age(),
        ]
    },
};

pub(crate) static COMPONENT_STATUS: Printer = Printer {
    columns: &[
        NAME,
        text_column("Status", "Whether the component is healthy."),
        text_column("Message", "What it said."),
        text_column("Error", "What went wrong."),
    ],
    cells: |view| {
        let condition = view.condition("Healthy");
        let member = |name: &str| text_of(condition.and_then(|condition| condition.get(name)));
        let status = match member("status") {
            "True" => "Healthy",
            "False" => "Unhealthy",
            _ => "Unknown",
        };
        vec![
            view.name(),
            json!(status),
            json!(member("message")),
            json!(member("error")),
        ]
    },
};

pub(crate) static RESOURCE_QUOTA: Printer = Printer {
    columns: &[
        NAME,
        text_column("Request", "Used, of what may be requested."),
        text_column("Limit", "Used, of what limits may add up to."),
        AGE,
    ],
    cells: |view| {
        let [request, limit] = [false, true].map(|limits| json!(quota_text(view, limits)));
        vec![view.name(), request, limit, view.age()]
    },
};

fn quota_text(view: &View<'_>, limits: bool) -> String {
    let hard = view.at("/status/hard").and_then(Value::as_object);
    let used = view.at("/status/used");
    let quota = |(name, hard): (&String, &Value)| {
        // Usage is missing until the quota controller has counted for the first time.
        let used = used
            .and_then(|used| used.get(name))
            .map_or_else(|| "0".to_owned(), plain_text);
        format!("{name}: {used}/{}", plain_text(hard))
    };
    // Everything without the prefix counts as a request, object counts included.
    let hard = hard
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("limits.") == limits);
    hard.map(quota).collect::<Vec<_>>().join(", ")
}

pub(crate) static EVENT: Printer = Printer {
    columns: &[
        text_column("Last Seen", "Time since it happened last."),
        text_column("Type", "Normal or Warning."),
        text_column("Reason", "Why, in one word."),
        text_column("Object", "Object that it is about."),
        wide_column("Subobject", "Part of the object."),
        wide_column("Source", "Who reported it."),
        text_column("Message", "What happened."),
        wide_column("First Seen", "Time since it happened first."),
        wide_column("Count", "How often it happened."),
        Column {
            // Names of events are generated, so that only the wide view has them.
            priority: 1,
            ..NAME
        },
    ],
    cells: event_cells,
};

/// Prints both versions of events: each value has one of two names.
fn event_cells(view: &View<'_>) -> Vec<Value> {
    let either = |a: &str, b: &str| {
        Some(view.text(a))
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| view.text(b))
    };
    let object = |member: &str| {
        either(
            &format!("/involvedObject/{member}"),
            &format!("/regarding/{member}"),
        )
    };
    // The group events.k8s.io has the old fields under names with `deprecated`.
    let first = either("/firstTimestamp", "/deprecatedFirstTimestamp");
    // Events of the new form have only eventTime.
    let first = if first.is_empty() {
        view.text("/eventTime")
    } else {
        first
    };
    let last = either("/lastTimestamp", "/deprecatedLastTimestamp");
    let last = if last.is_empty() { first } else { last };
    // A series replaces count and last timestamp in the new form of events.
    let series = view.has("/series");
    // An event without a count happened once.
    let count = view.int("/count").max(view.int("/deprecatedCount")).max(1);
    let kind = object("kind").to_lowercase();
    let target = if object("name").is_empty() {
        kind
    } else {
        format!("{kind}/{}", object("name"))
    };
    vec![
        json!(view.ago(if series {
            view.text("/series/lastObservedTime")
        } else {
            last
        })),
        json!(view.text("/type")),
        json!(view.text("/reason")),
        json!(target),
        json!(object("fieldPath")),
        json!(event_source(view)),
        // Reporters may end a message with a line break, which would split the row.
        json!(either("/message", "/note").trim()),
        json!(view.ago(first)),
        json!(if series {
            view.int("/series/count")
        } else {
            count
        }),
        view.name(),
    ]
}

fn event_source(view: &View<'_>) -> String {
    let first = |pointers: &[&str]| {
        pointers
            .iter()
            .map(|pointer| view.text(pointer))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    };
    // Older events name a source, newer ones a reporting controller; the first one that is set
    // counts.
    let component = first(&[
        "/source/component",
        "/deprecatedSource/component",
        "/reportingComponent",
        "/reportingController",
    ]);
    match first(&[
        "/source/host",
        "/deprecatedSource/host",
        "/reportingInstance",
    ]) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}
