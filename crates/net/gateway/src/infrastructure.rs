//! Labels and annotations of a Gateway's `spec.infrastructure`, for its Service.
//!
//! Annotations direct providers of load balancers and of DNS, with the rights of the gateway's
//! namespace. A tenant writes those only that the operator has allowed by name.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gateway_api::{GatewayObject, GatewaySpec};
use crate::host::HostPattern;

/// Maximum number of labels, and of annotations, as in the API.
const MAX_ENTRIES: usize = 8;
/// Maximum length of the name and of the value of a label in bytes.
const MAX_LENGTH: usize = 63;
/// Domains of labels that have a meaning for components: a tenant must not change how the Service
/// is implemented, or which Gateway it belongs to.
const RESERVED: [&str; 3] = ["kubernetes.io", "k8s.io", "ironclad"];

/// Maximum length of the value of an annotation in bytes, as in the API.
const MAX_ANNOTATION: usize = 4096;
/// Annotation of a Service with the [`Record`].
const RECORD: &str = "ironclad/gateway-infrastructure";

/// Names of the annotations that Services of Gateways may get.
#[derive(Clone, Debug, Default)]
pub struct AllowedAnnotations {
    /// Those of the gateway's Service.
    pub of_model: Vec<String>,
    /// Those of `spec.infrastructure`.
    pub of_gateways: Vec<String>,
}

/// Names that a Service has of `spec.infrastructure`. They are removed with their entries there;
/// those of other writers remain.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
struct Record {
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    annotations: Vec<String>,
}

/// Writes the labels and annotations of `spec.infrastructure` into the metadata of the Gateway's
/// Service, and removes those that the Gateway no longer has.
pub fn apply_infrastructure(
    metadata: &mut ObjectMeta,
    gateway: &GatewayObject<GatewaySpec>,
    allowed: &AllowedAnnotations,
) {
    let (labels, annotations) = (list_labels(gateway), list_annotations(gateway, allowed));
    let record = Record {
        labels: list_names(&labels),
        annotations: list_names(&annotations),
    };
    let mut present = metadata.annotations.take().unwrap_or_default();
    let former = present.remove(RECORD);
    let former = former.and_then(|text| serde_json::from_str::<Record>(&text).ok());
    let former = former.unwrap_or_default();
    for name in &former.annotations {
        present.remove(name);
    }
    present.extend(annotations);
    if record != Record::default() {
        let text = serde_json::to_string(&record).unwrap_or_default();
        present.insert(RECORD.to_owned(), text);
    }
    // The API server stores no empty map.
    metadata.annotations = (!present.is_empty()).then_some(present);
    let present = metadata.labels.get_or_insert_default();
    for name in former.labels.iter().filter(|name| is_free_name(name)) {
        present.remove(name);
    }
    present.extend(labels);
}

fn list_names(entries: &[(String, String)]) -> Vec<String> {
    entries.iter().map(|(name, _)| name.clone()).collect()
}

/// Returns the names of the annotations that the Service of a Gateway does not get, with the
/// reasons: `NAME, NAME (REASON)`.
pub fn list_ignored_annotations(
    gateway: &GatewayObject<GatewaySpec>,
    allowed: &AllowedAnnotations,
) -> Vec<String> {
    let applied = list_names(&list_annotations(gateway, allowed));
    let mut ignored: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in read_annotations(gateway) {
        if !applied.contains(name) {
            let reason = refuse_annotation(name, value, allowed);
            let reason = reason.unwrap_or("a Gateway has 8 at most");
            let names = ignored.entry(reason).or_default();
            if names.len() < MAX_ENTRIES {
                names.push(name);
            }
        }
    }
    let describe = |(reason, names): (&str, Vec<&str>)| format!("{} ({reason})", names.join(", "));
    ignored.into_iter().map(describe).collect()
}

/// Returns the annotations that the Service of a Gateway gets. Those of the gateway's Service are
/// the operator's.
fn list_annotations(
    gateway: &GatewayObject<GatewaySpec>,
    allowed: &AllowedAnnotations,
) -> Vec<(String, String)> {
    let entries = read_annotations(gateway);
    let entries = entries.filter(|(name, value)| refuse_annotation(name, value, allowed).is_none());
    let entries =
        entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    entries.take(MAX_ENTRIES).collect()
}

fn read_annotations(
    gateway: &GatewayObject<GatewaySpec>,
) -> impl Iterator<Item = (&String, &Value)> {
    let spec = gateway.spec.as_ref().ok();
    let infrastructure = spec.and_then(|spec| spec.infrastructure.as_ref());
    infrastructure
        .into_iter()
        .flat_map(|found| &found.annotations)
}

/// Returns the reason for which the Service of a Gateway does not get an annotation.
fn refuse_annotation(
    name: &String,
    value: &Value,
    allowed: &AllowedAnnotations,
) -> Option<&'static str> {
    let is_short = value
        .as_str()
        .is_some_and(|value| value.len() <= MAX_ANNOTATION);
    if name == RECORD || !allowed.of_gateways.contains(name) {
        Some("the gateway's --gateway-infrastructure-annotation does not name them")
    } else if allowed.of_model.contains(name) {
        Some("the gateway's --gateway-service-annotation names them")
    } else if !is_short {
        Some("their values are no text of up to 4096 bytes")
    } else {
        None
    }
}

/// Returns the labels that the Service of a Gateway gets.
fn list_labels(gateway: &GatewayObject<GatewaySpec>) -> Vec<(String, String)> {
    let spec = gateway.spec.as_ref().ok();
    let infrastructure = spec.and_then(|spec| spec.infrastructure.as_ref());
    let labels = infrastructure.map(|found| &found.labels);
    let labels = labels.into_iter().flatten().filter_map(|(name, value)| {
        let value = value.as_str()?;
        let is_valid = is_free_name(name) && (value.is_empty() || is_label_text(value));
        is_valid.then(|| (name.clone(), value.to_owned()))
    });
    labels.take(MAX_ENTRIES).collect()
}

fn is_free_name(name: &str) -> bool {
    let Some((domain, name)) = name.split_once('/') else {
        return is_label_text(name);
    };
    let is_domain = matches!(
        HostPattern::parse_gateway(domain),
        Some(HostPattern::Exact(_))
    );
    let is_reserved = RESERVED.iter().any(|reserved| {
        let parent = domain.strip_suffix(reserved);
        parent.is_some_and(|parent| parent.is_empty() || parent.ends_with('.'))
    });
    is_domain && !is_reserved && is_label_text(name)
}

fn is_label_text(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LENGTH
        && is_end(bytes.first())
        && is_end(bytes.last())
        && text.bytes().all(is_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_of_components_and_invalid_ones_are_left_out() {
        let long = "x".repeat(64);
        let labels = json!({"team": "a", "example.com/tier": "", "k8s.io.example.com/x": "y",
            "service.kubernetes.io/headless": "", "k8s.io/x": "y", "ironclad/gateway-uid": "u",
            "bad name": "x", "value": "a b", "long": long, "number": 1, "/x": "y", "*.a/x": "y"});
        let object = json!({"metadata": {"name": "g"}, "spec": {
            "gatewayClassName": "c", "infrastructure": {"labels": labels}}});
        let gateway = GatewayObject::decode(&serde_json::from_value(object).unwrap());
        let found = list_labels(&gateway);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["example.com/tier", "k8s.io.example.com/x", "team"]);
    }

    #[test]
    fn ignored_annotations_have_the_reason_of_each() {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let allowed = AllowedAnnotations {
            of_model: named(&["both", "model"]),
            of_gateways: (0..10)
                .map(|n| format!("n{n}"))
                .chain(["both".to_owned(), "long".to_owned(), "number".to_owned()])
                .collect(),
        };
        let mut annotations: BTreeMap<String, Value> =
            (0..10).map(|n| (format!("n{n}"), json!("x"))).collect();
        annotations.extend([
            ("both".to_owned(), json!("x")),
            ("model".to_owned(), json!("x")),
            ("other".to_owned(), json!("x")),
            ("long".to_owned(), json!("x".repeat(4097))),
            ("number".to_owned(), json!(1)),
        ]);
        let object = json!({"metadata": {"name": "g"}, "spec": {
            "gatewayClassName": "c", "infrastructure": {"annotations": annotations}}});
        let gateway = GatewayObject::decode(&serde_json::from_value(object).unwrap());
        assert_eq!(
            list_ignored_annotations(&gateway, &allowed),
            [
                "n8, n9 (a Gateway has 8 at most)",
                "model, other (the gateway's --gateway-infrastructure-annotation does not name them)",
                "both (the gateway's --gateway-service-annotation names them)",
                "long, number (their values are no text of up to 4096 bytes)",
            ]
        );
    }
}
