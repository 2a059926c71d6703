//! Reads the usage of a target's pods from the resource metrics API.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api_meta::{Quantity, Selector};
use api_semantics::resources::{
    Options, ResourceList, has_pod_level_requests, is_sidecar, pod_requests,
};
use client::{Client, Request};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, MetricSpec};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use controllers_runtime::{Meta, pods as pod_state};

/// One metric: the ratio of usage to target, or an error.
#[derive(Clone, Debug)]
pub struct Reading {
    /// `cpu` or `memory`; for another metric its type.
    pub name: String,
    /// Usage divided by target; above 1 means too few pods.
    pub ratio: Result<f64, String>,
}

#[derive(Deserialize)]
struct PodMetricsList {
    items: Vec<PodMetrics>,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: Named,
    containers: Vec<Usage>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Usage {
    usage: BTreeMap<String, String>,
}

/// Usage of containers by pod name.
type UsageByPod = HashMap<String, Vec<Usage>>;

/// Reads every metric of the autoscaler.
pub async fn read_metrics(
    client: &Client,
    scaler: &HorizontalPodAutoscaler,
    scale: &Scale,
    pods: &[Arc<Pod>],
) -> Vec<Reading> {
    let specs = scaler.spec.metrics.clone().unwrap_or_default();
    let selector = scale
        .status
        .as_ref()
        .and_then(|s| s.selector.clone())
        .unwrap_or_default();
    let mine = match select_pods(&selector, pods) {
        Ok(mine) => mine,
        Err(problem) => {
            return specs
                .iter()
                .map(|spec| failed_reading(spec, problem.clone()))
                .collect();
        }
    };
    let path = format!(
        "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods",
        scaler.namespace()
    );
    let usage = client
        .request::<PodMetricsList>(Request::get(path))
        .await
        .map_err(|e| match e.code() {
            // The metrics API is not installed. The message is that of upstream.
            Some(404) => {
                "the server could not find the requested resource (get pods.metrics.k8s.io)"
                    .to_owned()
            }
            _ => e.to_string(),
        });
    let usage = usage.map(|list| {
        list.items
            .into_iter()
            .map(|pod| (pod.metadata.name, pod.containers))
            .collect()
    });
    specs
        .iter()
        .map(|spec| read_metric(spec, &usage, &mine))
        .collect()
}

/// Returns the active pods that the target's selector matches. A target without a selector matches
/// no pods.
fn select_pods<'p>(selector: &str, pods: &'p [Arc<Pod>]) -> Result<Vec<&'p Arc<Pod>>, String> {
    // An empty selector would match every pod of the namespace.
    if selector.is_empty() {
        return Err("selector is required".to_owned());
    }
    let selector = Selector::parse(selector).map_err(|error| {
        format!("couldn't convert selector into a corresponding internal selector object: {error}")
    })?;
    Ok(pods
        .iter()
        .filter(|pod| pod_state::is_active(pod) && selector.matches(|key| pod.label(key)))
        .collect())
}

fn failed_reading(spec: &MetricSpec, problem: String) -> Reading {
    let name = spec
        .resource
        .as_ref()
        .map_or(&spec.type_, |resource| &resource.name);
    Reading {
        name: name.clone(),
        ratio: Err(problem),
    }
}

fn read_metric(
    spec: &MetricSpec,
    usage: &Result<UsageByPod, String>,
    pods: &[&Arc<Pod>],
) -> Reading {
    let Some(resource) = &spec.resource else {
        return failed_reading(
            spec,
            format!("no adapter serves metrics of type {}", spec.type_),
        );
    };
    let name = resource.name.clone();
    let ratio = match usage {
        Err(problem) => Err(format!(
            "unable to get metrics for resource {name}: unable to fetch metrics from resource metrics API: {problem}"
        )),
        Ok(usage) => usage_ratio(&name, resource, usage, pods),
    };
    Reading { name, ratio }
}

fn usage_ratio(
    name: &str,
    resource: &k8s_openapi::api::autoscaling::v2::ResourceMetricSource,
    usage: &UsageByPod,
    pods: &[&Arc<Pod>],
) -> Result<f64, String> {
    let mut used = 0;
    let mut asked = 0;
    let mut count: i64 = 0;
    for pod in pods {
        // Left out of the ratio. Upstream assumes a usage for such pods, which damps the change;
        // that is not implemented.
        let Some(containers) = usage.get(pod.name()) else {
            continue;
        };
        let values = containers
            .iter()
            .filter_map(|c| c.usage.get(name)?.parse::<Quantity>().ok());
        used += values.map(|q| q.milli_value()).sum::<i64>();
        asked += requested_amount(pod, name)?;
        count += 1;
    }
    if count == 0 {
        return Err(format!("no metrics returned for resource {name}"));
    }
    let target = &resource.target;
    if let Some(percent) = target.average_utilization {
        return Ok(used as f64 * 100.0 / asked.max(1) as f64 / f64::from(percent.max(1)));
    }
    let value = target
        .average_value
        .as_ref()
        .and_then(|q| q.0.parse::<Quantity>().ok());
    let value = value.ok_or_else(|| format!("no target for resource {name}"))?;
    Ok(used as f64 / count as f64 / value.milli_value().max(1) as f64)
}

/// Returns the pod-level request, if the pod has pod-level requests, or else the sum over
/// containers and sidecars, in thousandths. Each of them must have a request.
fn requested_amount(pod: &Pod, name: &str) -> Result<i64, String> {
    // KEP-2837: pod-level requests replace the sum over containers.
    if has_pod_level_requests(pod) {
        let request = pod_requests(pod, &Options::default()).get(name);
        return request
            .map(|q| q.milli_value())
            .ok_or_else(|| format!("missing pod-level request for {name} in Pod {}", pod.name()));
    }
    let spec = pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| &spec.containers);
    let sidecars = spec
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let each = containers
        .chain(sidecars.filter(|c| is_sidecar(c)))
        .map(|c| {
            let requests = c.resources.as_ref().and_then(|r| r.requests.as_ref());
            // Utilization is relative to requests, so a single container without one leaves it
            // undefined.
            let request = ResourceList::new(requests).get(name);
            request.map(|q| q.milli_value()).ok_or_else(|| {
                format!(
                    "missing request for {name} in container {} of Pod {}",
                    c.name,
                    pod.name()
                )
            })
        });
    each.sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn request_is_that_of_the_pod_or_of_each_container() {
        let with = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"name": "s", "restartPolicy": "Always",
            "resources": {"requests": {"cpu": "1"}}});
        let none = json!({"name": "n"});
        let level = |name: &str| json!({"requests": {name: "3"}});
        for (spec, expected) in [
            (json!({"containers": [with("1"), with("500m")]}), Some(1500)),
            (
                json!({"containers": [with("1")], "initContainers": [none, sidecar]}),
                Some(2000),
            ),
            (json!({"containers": [with("1"), none]}), None),
            (
                json!({"containers": [none], "resources": level("cpu")}),
                Some(3000),
            ),
            (
                json!({"containers": [none], "resources": level("memory")}),
                None,
            ),
        ] {
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(requested_amount(&pod, "cpu").ok(), expected, "{spec}");
        }
    }

    #[test]
    fn selector_of_expressions_matches_only_its_pods() {
        let pod = |name: &str, tier: &str| -> Arc<Pod> {
            Arc::new(
                serde_json::from_value(
                    json!({"metadata": {"name": name, "labels": {"tier": tier}}}),
                )
                .unwrap(),
            )
        };
        let pods = [pod("a", "web"), pod("b", "db"), pod("c", "cache")];
        let cases = [
            ("tier in (web,db)", Some(vec!["a", "b"])),
            ("tier=web", Some(vec!["a"])),
            ("tier notin (web)", Some(vec!["b", "c"])),
            ("tier,tier!=cache", Some(vec!["a", "b"])),
            ("!tier", Some(vec![])),
            ("", None),
            ("tier in (", None),
        ];
        for (selector, expect) in cases {
            let got = select_pods(selector, &pods)
                .ok()
                .map(|found| found.iter().map(|p| p.name()).collect::<Vec<_>>());
            assert_eq!(got, expect, "{selector}");
        }
    }
}
