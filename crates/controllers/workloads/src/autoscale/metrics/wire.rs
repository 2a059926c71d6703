//! Responses of the APIs of metrics. Numbers in them are quantities.

use std::collections::BTreeMap;

use api_meta::Quantity;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::autoscale::replicas::Sample;

/// Seconds of a custom metric that does not give its window: upstream's.
const DEFAULT_WINDOW: i64 = 60;

/// A list.
#[derive(Deserialize)]
pub struct Items<T> {
    #[serde(default = "Vec::new")]
    pub items: Vec<T>,
}

/// Usage of a pod's containers.
#[derive(Deserialize)]
pub struct PodMetrics {
    pub metadata: Named,
    #[serde(default)]
    timestamp: Option<Timestamp>,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<Usage>,
}

/// An object with a name.
#[derive(Default, Deserialize)]
pub struct Named {
    #[serde(default)]
    pub name: String,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, String>,
}

impl PodMetrics {
    /// Returns the usage of a container, or of the pod. `None`: a value is missing.
    pub fn sample(&self, resource: &str, container: Option<&str>) -> Option<Sample> {
        let wanted = |usage: &&Usage| container.is_none_or(|name| name == usage.name);
        let values: Option<Vec<i64>> = self
            .containers
            .iter()
            .filter(wanted)
            .map(|usage| {
                let value = usage.usage.get(resource)?.parse::<Quantity>().ok()?;
                Some(value.milli_value())
            })
            .collect();
        let values = values.filter(|values| !values.is_empty())?;
        Some(Sample {
            value: values.into_iter().fold(0, i64::saturating_add),
            at: self.timestamp.unwrap_or(Timestamp::MIN),
            window: parse_window(&self.window),
        })
    }
}

/// Parses a duration of Go; an invalid one is zero.
fn parse_window(text: &str) -> SignedDuration {
    text.parse().unwrap_or(SignedDuration::ZERO)
}

/// A value of an object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomValue {
    #[serde(default)]
    pub described_object: Named,
    #[serde(default)]
    timestamp: Option<Timestamp>,
    /// `window` in v1beta1.
    #[serde(default, alias = "window")]
    window_seconds: Option<i64>,
    #[serde(default)]
    pub value: String,
}

impl CustomValue {
    /// Returns the sample; `None` if its value is not a quantity.
    pub fn sample(&self) -> Option<Sample> {
        let seconds = self.window_seconds.unwrap_or(DEFAULT_WINDOW);
        Some(Sample {
            value: self.value.parse::<Quantity>().ok()?.milli_value(),
            at: self.timestamp.unwrap_or(Timestamp::MIN),
            window: SignedDuration::from_secs(seconds),
        })
    }
}

/// A value without an object.
#[derive(Deserialize)]
pub struct ExternalValue {
    #[serde(default)]
    pub value: String,
}

/// A group of discovery.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    pub preferred_version: Option<Version>,
    #[serde(default)]
    pub versions: Vec<Version>,
}

/// A version of a group.
#[derive(Deserialize)]
pub struct Version {
    #[serde(default)]
    pub version: String,
}
