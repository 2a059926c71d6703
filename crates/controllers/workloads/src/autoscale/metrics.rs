//! Usage of a target's pods, as the resource metrics API reports it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_meta::Quantity;
use client::{Client, Request};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, MetricSpec};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use controllers_runtime::{Meta, pods as pod_state};

/// One metric as read: usage against the target, as a ratio, or what is wrong.
#[derive(Clone, Debug)]
pub struct Reading {
    /// `cpu` or `memory`; another metric's type otherwise.
    pub name: String,
    /// Usage over target; above one means too few pods.
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

/// Reads every metric the autoscaler names.
pub async fn read(client: &Client, scaler: &HorizontalPodAutoscaler, scale: &Scale, pods: &[Arc<Pod>]) -> Vec<Reading> {
    let specs = scaler.spec.metrics.clone().unwrap_or_default();
    let selector = scale.status.as_ref().and_then(|s| s.selector.clone()).unwrap_or_default();
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", scaler.namespace());
    let usage = client.request::<PodMetricsList>(Request::get(path)).await.map_err(|e| match e.code() {
        Some(404) => "the server could not find the requested resource (get pods.metrics.k8s.io)".to_owned(),
        _ => e.to_string(),
    });
    let mine: Vec<_> = pods.iter().filter(|p| pod_state::is_active(p) && selected(&selector, p)).collect();
    specs.iter().map(|spec| one(spec, &usage, &mine)).collect()
}

/// Whether `a=b,c=d` takes the pod.
fn selected(selector: &str, pod: &Pod) -> bool {
    let mut pairs = selector.split(',').filter_map(|p| p.split_once('='));
    !selector.is_empty() && pairs.all(|(k, v)| pod.label(k) == Some(v.trim_start_matches('=')))
}

fn one(spec: &MetricSpec, usage: &Result<PodMetricsList, String>, pods: &[&Arc<Pod>]) -> Reading {
    let Some(resource) = &spec.resource else {
        return Reading {
            name: spec.type_.clone(),
            ratio: Err(format!("no adapter serves metrics of type {}", spec.type_)),
        };
    };
    let name = resource.name.clone();
    let ratio = match usage {
        Err(problem) => Err(format!(
            "unable to get metrics for resource {name}: unable to fetch metrics from resource metrics API: {problem}"
        )),
        Ok(list) => ratio(&name, resource, list, pods),
    };
    Reading { name, ratio }
}

fn ratio(
    name: &str,
    resource: &k8s_openapi::api::autoscaling::v2::ResourceMetricSource,
    list: &PodMetricsList,
    pods: &[&Arc<Pod>],
) -> Result<f64, String> {
    let mut used = 0;
    let mut asked = 0;
    let mut count: i64 = 0;
    for pod in pods {
        let Some(metrics) = list.items.iter().find(|m| m.metadata.name == pod.name()) else { continue };
        let values = metrics.containers.iter().filter_map(|c| c.usage.get(name)?.parse::<Quantity>().ok());
        used += values.map(|q| q.milli_value()).sum::<i64>();
        asked += requested(pod, name).ok_or_else(|| format!("missing request for {name} in pod {}", pod.name()))?;
        count += 1;
    }
    if count == 0 {
        return Err(format!("no metrics returned for resource {name}"));
    }
    let target = &resource.target;
    if let Some(percent) = target.average_utilization {
        return Ok(used as f64 * 100.0 / asked.max(1) as f64 / f64::from(percent.max(1)));
    }
    let value = target.average_value.as_ref().and_then(|q| q.0.parse::<Quantity>().ok());
    let value = value.ok_or_else(|| format!("no target for resource {name}"))?;
    Ok(used as f64 / count as f64 / value.milli_value().max(1) as f64)
}

fn requested(pod: &Pod, name: &str) -> Option<i64> {
    let containers = &pod.spec.as_ref()?.containers;
    let each = containers.iter().map(|c| {
        let quantity = c.resources.as_ref()?.requests.as_ref()?.get(name)?;
        quantity.0.parse::<Quantity>().ok().map(|q| q.milli_value())
    });
    each.sum()
}
