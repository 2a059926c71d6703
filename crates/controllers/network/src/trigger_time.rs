//! Times of the changes of pods and Services that cause changes of their endpoints.
//!
//! kube-proxy measures the time from such a change to the rules on its node. The time is an
//! approximation, as in upstream: a change of a label has no timestamp, for instance.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use controllers_runtime::{Meta, labels};

use crate::backends;

/// The annotation with the time, in EndpointSlices and Endpoints.
pub const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The times that the last reconcile of a Service saw.
#[derive(Debug, Default)]
struct SeenTimes {
    service: Option<Timestamp>,
    pods: BTreeMap<String, Timestamp>,
}

/// The times that were seen, by Service.
#[derive(Debug, Default)]
pub struct TriggerTimes {
    seen: Mutex<HashMap<String, SeenTimes>>,
}

impl TriggerTimes {
    /// Returns the earliest time that is new since the last call for this Service, or the creation
    /// of the Service in the first call. `members` are the namespace's pods.
    pub fn record(&self, key: &str, service: &Service, members: &[Arc<Pod>]) -> Option<Timestamp> {
        let selector = backends::service_selector(service)?;
        let selected = members
            .iter()
            .filter(|pod| labels::labels_match_map(Some(selector), pod.meta().labels.as_ref()));
        let now = SeenTimes {
            service: read_creation(service),
            pods: selected.filter_map(|pod| read_ready_time(pod)).collect(),
        };
        let mut seen = self.seen.lock();
        let Some(before) = seen.get_mut(key) else {
            let created = now.service;
            seen.insert(key.to_owned(), now);
            return created;
        };
        let pods = now
            .pods
            .iter()
            .filter(|(name, time)| before.pods.get(*name).is_none_or(|old| *time > old))
            .map(|(_, time)| *time);
        let own = now.service.filter(|time| Some(*time) > before.service);
        let earliest = pods.chain(own).min();
        *before = now;
        earliest
    }

    /// Forgets the times of a deleted Service: a later one with its name is a new one.
    pub fn remove(&self, key: &str) {
        self.seen.lock().remove(key);
    }
}

/// Sets the annotation. Without a time it is removed: kube-proxy would count the former change
/// again.
pub fn annotate(metadata: &mut ObjectMeta, time: Option<Timestamp>) {
    if let Some(time) = time {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(TRIGGER_TIME.to_owned(), time.to_string());
    } else if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(TRIGGER_TIME);
    }
}

fn read_creation(service: &Service) -> Option<Timestamp> {
    let created = service.meta().creation_timestamp.as_ref();
    created.map(|time| time.0)
}

/// Returns the name of a pod with the time at which it became ready or stopped to be.
fn read_ready_time(pod: &Pod) -> Option<(String, Timestamp)> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready")?;
    let time = ready.last_transition_time.as_ref()?.0;
    Some((pod.name().to_owned(), time))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    const DAY: &str = "2026-01-01";

    fn service(created: Option<&str>) -> Service {
        let created = created.map(|time| format!("{DAY}T00:{time}Z"));
        let tree = json!({ "metadata": { "name": "s", "namespace": "n",
            "creationTimestamp": created }, "spec": { "selector": { "app": "a" } } });
        serde_json::from_value(tree).unwrap()
    }

    /// Builds pods from `NAME=TIME`, of which those named `other` have another label.
    fn pods(list: &str) -> Vec<Arc<Pod>> {
        let build = |entry: &str| {
            let (name, time) = entry.split_once('=').unwrap();
            let app = if name == "other" { "b" } else { "a" };
            let time = (!time.is_empty()).then(|| format!("{DAY}T00:{time}Z"));
            let tree = json!({ "metadata": { "name": name, "namespace": "n",
                "labels": { "app": app } }, "spec": { "containers": [] },
                "status": { "conditions": [
                    { "type": "PodScheduled", "status": "True",
                        "lastTransitionTime": "2026-01-09T00:00:00Z" },
                    { "type": "Ready", "status": "True", "lastTransitionTime": time }] } });
            Arc::new(serde_json::from_value(tree).unwrap())
        };
        list.split_whitespace().map(build).collect()
    }

    /// The creation of the Service, the pods, and the expected time of each reconcile.
    type Steps = &'static [(Option<&'static str>, &'static str, Option<&'static str>)];

    #[test]
    fn time_is_the_earliest_that_is_new() {
        const CREATED: Option<&str> = Some("00:00");
        let cases: &[(&str, Steps)] = &[
            ("no pods", &[(CREATED, "", CREATED)]),
            (
                "a new Service counts from its creation",
                &[(CREATED, "a=01:00 b=02:00", CREATED)],
            ),
            (
                "a Service that is first seen again after a restart",
                &[(CREATED, "a=09:00", CREATED), (CREATED, "a=09:00", None)],
            ),
            (
                "a pod is added",
                &[
                    (CREATED, "a=01:00", CREATED),
                    (CREATED, "a=01:00 b=02:00", Some("02:00")),
                ],
            ),
            (
                "two pods change at once",
                &[
                    (CREATED, "a=01:00 b=01:00", CREATED),
                    (CREATED, "a=04:00 b=03:00", Some("03:00")),
                ],
            ),
            (
                "a pod is deleted, which has no time",
                &[
                    (CREATED, "a=01:00 b=02:00", CREATED),
                    (CREATED, "a=01:00", None),
                ],
            ),
            (
                "a deleted pod returns with a later time",
                &[
                    (CREATED, "a=01:00", CREATED),
                    (CREATED, "", None),
                    (CREATED, "a=05:00", Some("05:00")),
                ],
            ),
            (
                "a clock that is set back",
                &[(CREATED, "a=03:00", CREATED), (CREATED, "a=02:00", None)],
            ),
            (
                "a pod that the Service does not select",
                &[
                    (CREATED, "a=01:00", CREATED),
                    (CREATED, "a=01:00 other=02:00", None),
                ],
            ),
            (
                "a condition without a time",
                &[(CREATED, "a=", CREATED), (CREATED, "a= b=", None)],
            ),
            (
                "the Service is replaced",
                &[
                    (CREATED, "a=01:00", CREATED),
                    (Some("06:00"), "a=01:00", Some("06:00")),
                ],
            ),
            (
                "the Service is replaced after a pod changed",
                &[
                    (CREATED, "a=01:00", CREATED),
                    (Some("06:00"), "a=05:00", Some("05:00")),
                ],
            ),
            ("no creation time", &[(None, "a=01:00", None)]),
        ];
        for (case, steps) in cases {
            let times = TriggerTimes::default();
            for (number, (created, list, expect)) in steps.iter().enumerate() {
                let found = times.record("n/s", &service(*created), &pods(list));
                let expect = expect.map(|time| format!("{DAY}T00:{time}Z"));
                let found = found.map(|time| time.to_string());
                assert_eq!(found, expect, "{case}, step {number}");
            }
        }
    }

    #[test]
    fn deleted_service_is_forgotten() {
        let times = TriggerTimes::default();
        let first = times.record("n/s", &service(Some("00:00")), &[]);
        assert!(times.record("n/s", &service(Some("00:00")), &[]).is_none());
        times.remove("n/s");
        let again = times.record("n/s", &service(Some("00:00")), &[]);
        assert_eq!(again, first);
    }

    #[test]
    fn annotation_is_replaced_or_removed() {
        let time: Timestamp = "2026-01-01T00:00:00.25Z".parse().unwrap();
        let mut metadata = ObjectMeta::default();
        for (time, expect) in [
            (None, None),
            (Some(time), Some("2026-01-01T00:00:00.25Z")),
            (None, None),
        ] {
            annotate(&mut metadata, time);
            let found = metadata.annotations.as_ref();
            let found = found.and_then(|all| all.get(TRIGGER_TIME));
            assert_eq!(found.map(String::as_str), expect);
        }
    }
}
