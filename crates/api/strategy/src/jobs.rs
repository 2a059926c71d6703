//! The generated selector of a job.

use api_meta::tree::{equal, fill, flag, get, make, text};
use serde_json::{Value, json};

const UID: &str = "batch.kubernetes.io/controller-uid";
const NAME: &str = "batch.kubernetes.io/job-name";

/// Labels the pods with the job's name and UID, and selects them by UID, unless `manualSelector` is
/// set.
pub(crate) fn generate_selector(job: &mut Value) {
    // The user takes care that no two jobs select the same pods.
    if flag(get(job, "spec"), "manualSelector") {
        return;
    }
    let meta = get(job, "metadata");
    let (uid, name) = (text(meta, "uid").to_owned(), text(meta, "name").to_owned());
    let template = job
        .pointer("/spec/template/metadata/labels")
        .cloned()
        .unwrap_or(json!({}));
    // Labels that defaulted to the template's remain equal to them.
    let shared = !equal(&template, &Value::Null) && equal(get(meta, "labels"), &template);
    let pairs = [
        ("controller-uid", &uid),
        ("job-name", &name),
        (UID, &uid),
        (NAME, &name),
    ];
    let Some(spec) = make(job, "spec") else {
        return;
    };
    if let Some(labels) = make(spec, "template")
        .and_then(|t| make(t, "metadata"))
        .and_then(|m| make(m, "labels"))
    {
        // Labels of the author stay; validation rejects those of another job.
        pairs
            .iter()
            .for_each(|(key, value)| fill(labels, key, value.as_str()));
    }
    if let Some(labels) = make(spec, "selector").and_then(|s| make(s, "matchLabels")) {
        fill(labels, UID, uid.as_str());
    }
    if shared && let Some(labels) = make(job, "metadata").and_then(|m| make(m, "labels")) {
        pairs
            .iter()
            .for_each(|(key, value)| fill(labels, key, value.as_str()));
    }
}
