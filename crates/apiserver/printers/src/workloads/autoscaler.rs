//! Autoscalers; both versions are printed as v2.

use serde_json::{Value, json};

use crate::printer::{AGE, NAME, Printer, text_column};
use crate::view::{View, list_of, plain_text, text_of};

pub(crate) static AUTOSCALER: Printer = Printer {
    columns: &[
        NAME,
        text_column("Reference", "Object that is scaled."),
        text_column("Targets", "Metrics now, of what is aimed at."),
        text_column("MinPods", "Fewest pods."),
        text_column("MaxPods", "Most pods."),
        text_column("Replicas", "Pods now."),
        AGE,
    ],
    cells: |view| {
        if view.resource.version != "v1" {
            return autoscaler_cells(view);
        }
        // Only v2 holds all metrics; v1 keeps the others in annotations.
        let mut object = view.object.clone();
        if let Value::Object(map) = &mut object {
            map.insert("apiVersion".to_owned(), Value::from("autoscaling/v1"));
        }
        api_kinds::convert(view.resource, &mut object, "autoscaling/v2");
        autoscaler_cells(&View {
            object: &object,
            ..*view
        })
    },
};

fn autoscaler_cells(view: &View<'_>) -> Vec<Value> {
    let target = format!(
        "{}/{}",
        view.text("/spec/scaleTargetRef/kind"),
        view.text("/spec/scaleTargetRef/name")
    );
    vec![
        view.name(),
        json!(target),
        json!(metric_targets(view)),
        json!(
            view.at("/spec/minReplicas")
                .map_or_else(|| "<unset>".to_owned(), plain_text)
        ),
        json!(view.int("/spec/maxReplicas")),
        json!(view.int("/status/currentReplicas")),
        view.age(),
    ]
}

/// Maximum number of metrics shown.
const MOST: usize = 2;

fn metric_targets(view: &View<'_>) -> String {
    let specs = view.list("/spec/metrics");
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let statuses = list_of(view.at("/status/currentMetrics"));
    let texts: Vec<String> = specs
        .iter()
        .enumerate()
        // Statuses have the order of the specs, and may be missing at the end.
        .map(|(index, spec)| metric_target(spec, statuses.get(index)))
        .collect();
    // The same bound as upstream's keeps a row with many metrics on one line.
    let shown = texts
        .iter()
        .take(MOST)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if texts.len() > MOST {
        format!("{shown} + {} more...", texts.len() - MOST)
    } else {
        shown
    }
}

fn metric_target(spec: &Value, status: Option<&Value>) -> String {
    let (member, named) = match text_of(spec.get("type")) {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let aim = spec.get(member).and_then(|source| source.get("target"));
    // Missing until the controller has read the metric for the first time.
    let current = status.and_then(|status| status.get(member)?.get("current"));
    let at =
        |value: Option<&Value>, name: &str| value.and_then(|value| value.get(name)).map(plain_text);
    let unknown = || "<unknown>".to_owned();
    let text = if let Some(average) = at(aim, "averageValue") {
        // Pods and resources are always averages; for the others the text says so.
        let suffix = if named || member == "pods" {
            ""
        } else {
            " (avg)"
        };
        format!(
            "{}/{average}{suffix}",
            at(current, "averageValue").unwrap_or_else(unknown)
        )
    } else if named {
        // Utilization is relative to the pods' requests, so it has no unit but percent.
        let percent = |text: String| format!("{text}%");
        let aim = at(aim, "averageUtilization").map_or_else(|| "<auto>".to_owned(), percent);
        format!(
            "{}/{aim}",
            at(current, "averageUtilization").map_or_else(unknown, percent)
        )
    } else {
        format!(
            "{}/{}",
            at(current, "value").unwrap_or_else(unknown),
            at(aim, "value").unwrap_or_default()
        )
    };
    if named {
        format!(
            "{}: {text}",
            text_of(spec.get(member).and_then(|source| source.get("name")))
        )
    } else {
        text
    }
}
