//! Reads metrics from the APIs of resource, custom and external metrics.

use api_meta::{Quantity, Selector};
use client::{Client, Error, Request};
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricSource, CrossVersionObjectReference, ExternalMetricSource,
    MetricIdentifier, MetricSpec, ObjectMetricSource, PodsMetricSource, ResourceMetricSource,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use super::replicas::Samples;
use super::resources::Resources;

mod wire;

use wire::{CustomValue, ExternalValue, Items, PodMetrics};

/// Values of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// One for each pod.
    Pods(Samples),
    /// A total, in thousandths.
    Total(i64),
}

/// A source of a metric's spec.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Usage of pods.
    Resource(&'a ResourceMetricSource),
    /// Usage of a container of each pod.
    Container(&'a ContainerResourceMetricSource),
    /// Custom metric of pods.
    Pods(&'a PodsMetricSource),
    /// Custom metric of an object.
    Object(&'a ObjectMetricSource),
    /// Metric without an object.
    External(&'a ExternalMetricSource),
}

impl<'a> Source<'a> {
    /// Returns the source that the metric's type names.
    pub fn of_spec(spec: &'a MetricSpec) -> Option<Self> {
        match spec.type_.as_str() {
            "Resource" => spec.resource.as_ref().map(Self::Resource),
            "ContainerResource" => spec.container_resource.as_ref().map(Self::Container),
            "Pods" => spec.pods.as_ref().map(Self::Pods),
            "Object" => spec.object.as_ref().map(Self::Object),
            "External" => spec.external.as_ref().map(Self::External),
            _ => None,
        }
    }
}

/// A reader of the metrics of one namespace.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// Client of the API server.
    pub client: &'a Client,
    /// Resources of the kinds of objects.
    pub(super) resources: &'a Resources,
    /// Namespace of the autoscaler.
    pub namespace: &'a str,
    /// Selector of the target's pods.
    pub selector: &'a str,
}

impl Reader<'_> {
    /// Reads a metric.
    ///
    /// # Errors
    /// The metric can't be read. The text is for users.
    pub async fn read_metric(&self, spec: &MetricSpec) -> Result<Reading, String> {
        match Source::of_spec(spec) {
            Some(Source::Resource(source)) => self.read_usage(&source.name, None).await,
            Some(Source::Container(source)) => {
                self.read_usage(&source.name, Some(&source.container)).await
            }
            Some(Source::Pods(source)) => {
                let read = self.read_pods(&source.metric).await;
                read.map_err(|e| format!("unable to get metric {}: {e}", source.metric.name))
            }
            Some(Source::Object(source)) => {
                let object = &source.described_object;
                let read = self.read_object(object, &source.metric).await;
                read.map_err(|error| {
                    let (kind, name) = (&object.kind, &object.name);
                    let (metric, namespace) = (&source.metric.name, self.namespace);
                    format!("unable to get metric {metric}: {error} on {kind} {namespace}/{name}")
                })
            }
            Some(Source::External(source)) => {
                let read = self.read_external(&source.metric).await;
                read.map_err(|error| {
                    let selector = describe_selector(source.metric.selector.as_ref());
                    let (metric, namespace) = (&source.metric.name, self.namespace);
                    format!(
                        "unable to get external metric {namespace}/{metric}/{selector}: {error}"
                    )
                })
            }
            None => Err(format!("unknown metric source type {:?}", spec.type_)),
        }
    }

    async fn read_usage(&self, name: &str, container: Option<&str>) -> Result<Reading, String> {
        let path = format!(
            "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods",
            self.namespace
        );
        let path = add_query(path, &[("labelSelector", self.selector)]);
        let failed = |problem| format!("unable to get metrics for resource {name}: {problem}");
        let list: Items<PodMetrics> =
            self.client.request(Request::get(path)).await.map_err(|e| {
                let problem = describe_error(&e, "pods.metrics.k8s.io");
                failed(format!(
                    "unable to fetch metrics from resource metrics API: {problem}"
                ))
            })?;
        if list.items.is_empty() {
            return Err(failed(
                "no metrics returned from resource metrics API".to_owned(),
            ));
        }
        let sample =
            |pod: PodMetrics| Some((pod.metadata.name.clone(), pod.sample(name, container)?));
        Ok(Reading::Pods(
            list.items.into_iter().filter_map(sample).collect(),
        ))
    }

    async fn read_pods(&self, metric: &MetricIdentifier) -> Result<Reading, String> {
        let objects = format!("namespaces/{}/pods/*", self.namespace);
        let values = self.read_custom(&objects, metric, self.selector).await?;
        if values.is_empty() {
            return Err("no metrics returned from custom metrics API".to_owned());
        }
        let sample = |value: CustomValue| {
            let sample = value.sample()?;
            Some((value.described_object.name, sample))
        };
        Ok(Reading::Pods(
            values.into_iter().filter_map(sample).collect(),
        ))
    }

    async fn read_object(
        &self,
        object: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
    ) -> Result<Reading, String> {
        let failed =
            |error: String| format!("unable to fetch metrics from custom metrics API: {error}");
        let version = object.api_version.as_deref().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let namespace = self.namespace;
        let path = if group.is_empty() && object.kind == "Namespace" {
            // Another namespace's value would be out of reach of the autoscaler's author.
            format!("namespaces/{namespace}/metrics")
        } else {
            let resource = self.resources.find(self.client, group, &object.kind).await;
            let resource = resource
                .map_err(|e| failed(e.to_string()))?
                .ok_or_else(|| {
                    failed(format!(
                        "no matches for kind {:?} in group {group:?}",
                        object.kind
                    ))
                })?;
            let dot = if group.is_empty() { "" } else { "." };
            let name = escape_segment(&object.name);
            format!(
                "namespaces/{namespace}/{}{dot}{}/{name}",
                resource.plural, resource.group
            )
        };
        let values = self.read_custom(&path, metric, "").await?;
        match values.as_slice() {
            [value] => {
                let value = value.value.parse::<Quantity>();
                let value = value.map_err(|e| failed(e.to_string()))?;
                Ok(Reading::Total(value.milli_value()))
            }
            _ => Err(failed(format!(
                "the custom metrics API server returned {} results when we asked for exactly one",
                values.len()
            ))),
        }
    }

    async fn read_custom(
        &self,
        objects: &str,
        metric: &MetricIdentifier,
        selector: &str,
    ) -> Result<Vec<CustomValue>, String> {
        let failed =
            |error: String| format!("unable to fetch metrics from custom metrics API: {error}");
        let version = self.find_custom_version().await.map_err(failed)?;
        let metric_selector = selector_text(metric.selector.as_ref()).map_err(failed)?;
        let name = escape_segment(&metric.name);
        let path = format!("/apis/custom.metrics.k8s.io/{version}/{objects}/{name}");
        let query = [
            ("labelSelector", selector),
            ("metricLabelSelector", &metric_selector),
        ];
        let list = self
            .get::<Items<CustomValue>>(add_query(path, &query))
            .await;
        list.map(|list| list.items)
            .map_err(|e| failed(e.to_string()))
    }

    /// Returns the version of the custom metrics API that the server prefers.
    async fn find_custom_version(&self) -> Result<&'static str, String> {
        let group = self
            .get::<wire::Group>("/apis/custom.metrics.k8s.io".to_owned())
            .await;
        let missing = || "no custom metrics API (custom.metrics.k8s.io) registered".to_owned();
        let group = group.map_err(|e| match e.code() {
            Some(404) => missing(),
            _ => e.to_string(),
        })?;
        let preferred = group.preferred_version.into_iter();
        let mut versions = preferred.chain(group.versions);
        let known = |version: wire::Version| {
            ["v1beta2", "v1beta1"]
                .into_iter()
                .find(|known| *known == version.version)
        };
        versions.find_map(known).ok_or_else(missing)
    }

    async fn read_external(&self, metric: &MetricIdentifier) -> Result<Reading, String> {
        let selector = selector_text(metric.selector.as_ref())?;
        let (namespace, name) = (self.namespace, escape_segment(&metric.name));
        let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}");
        let path = add_query(path, &[("labelSelector", &selector)]);
        let list = self.get::<Items<ExternalValue>>(path).await.map_err(|e| {
            let problem = describe_error(&e, &format!("{}.external.metrics.k8s.io", metric.name));
            format!("unable to fetch metrics from external metrics API: {problem}")
        })?;
        if list.items.is_empty() {
            return Err("no metrics returned from external metrics API".to_owned());
        }
        let values = list
            .items
            .iter()
            .filter_map(|item| item.value.parse::<Quantity>().ok());
        let total = values
            .map(|value| i128::from(value.milli_value()))
            .sum::<i128>();
        let most = i128::from(i64::MAX);
        Ok(Reading::Total(total.clamp(-most, most) as i64))
    }

    async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        let bytes = self.client.bytes(Request::get(path.clone())).await?;
        serde_json::from_slice(&bytes).map_err(|source| Error::Decode { what: path, source })
    }
}

/// Returns the text of an error. An API that is not installed has the message of upstream.
fn describe_error(error: &Error, resource: &str) -> String {
    match error.code() {
        Some(404) => format!("the server could not find the requested resource (get {resource})"),
        _ => error.to_string(),
    }
}

/// Returns the selector in the form of a query; empty for none.
fn selector_text(selector: Option<&LabelSelector>) -> Result<String, String> {
    let Some(selector) = selector else {
        return Ok(String::new());
    };
    let tree = serde_json::to_value(selector).map_err(|e| e.to_string())?;
    let selector = Selector::from_label_selector(&tree).map_err(|e| e.to_string())?;
    Ok(selector.map(|s| s.to_string()).unwrap_or_default())
}

/// Returns the selector in the form of Go's type, which upstream's messages have.
pub fn describe_selector(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "nil".to_owned();
    };
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(k, v)| format!("{k}: {v},")).collect();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions: String = expressions
        .map(|e| {
            let values = e.values.as_deref().unwrap_or_default().join(" ");
            let (key, operator) = (&e.key, &e.operator);
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub(super) fn escape_segment(text: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Appends the parameters that are not empty.
fn add_query(mut path: String, parameters: &[(&str, &str)]) -> String {
    let mut separator = '?';
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        path.push(separator);
        path.push_str(name);
        path.push('=');
        path.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        separator = '&';
    }
    path
}

#[cfg(test)]
mod tests;
