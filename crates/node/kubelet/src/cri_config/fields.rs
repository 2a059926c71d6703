//! `fieldRef` and `resourceFieldRef`.

use crate::pod::spec;
use api_meta::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use std::collections::BTreeMap;

/// Addresses of a pod that its status may not have yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) pod_ips: Vec<String>,
    pub(crate) host_ips: Vec<String>,
}

/// Returns the value of a field path; maps are written as one `key="value"` per line.
pub(crate) fn read_field(pod: &Pod, path: &str, addresses: &Addresses) -> Result<String, String> {
    let meta = &pod.metadata;
    let text = |s: &Option<String>| s.clone().unwrap_or_default();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return Err(format!("unsupported fieldPath: {path}")),
        };
        return Ok(map
            .as_ref()
            .and_then(|m| m.get(key))
            .cloned()
            .unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => format_map(meta.labels.as_ref()),
        "metadata.annotations" => format_map(meta.annotations.as_ref()),
        "spec.nodeName" => text(&spec::read_spec(pod).node_name),
        "spec.serviceAccountName" => text(&spec::read_spec(pod).service_account_name),
        "status.podIP" => addresses.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => addresses.pod_ips.join(","),
        "status.hostIP" => addresses.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => addresses.host_ips.join(","),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={}", quote_value(value));
    map.into_iter()
        .flatten()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Quotes a value as Go's `strconv.Quote` does: readers of the file parse that form.
fn quote_value(value: &str) -> String {
    let mut quoted = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns the value of a resource of `container`; an absent limit is the node's allocatable
/// amount.
pub(crate) fn read_resource(
    container: &Container,
    selector: &ResourceFieldSelector,
    allocatable: &BTreeMap<String, Quantity>,
) -> Result<String, String> {
    let unsupported = || format!("unsupported container resource: {}", selector.resource);
    let (which, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = container.resources.clone().unwrap_or_default();
    let of = |map: &Option<BTreeMap<String, _>>| {
        map.as_ref()
            .and_then(
                |m: &BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
                    m.get(name)
                },
            )
            .and_then(|q| spec::parse_quantity(&q.0))
    };
    // As upstream: without a limit a container may use the node, so that is what a program sees as
    // its limit.
    let amount = match which {
        "limits" => of(&resources.limits)
            .filter(|q| !q.is_zero())
            .or_else(|| allocatable.get(name).copied()),
        "requests" => of(&resources.requests).or_else(|| of(&resources.limits)),
        _ => return Err(unsupported()),
    };
    let Some(amount) = amount else {
        return Ok("0".into());
    };
    let divisor = selector
        .divisor
        .as_ref()
        .and_then(|d| spec::parse_quantity(&d.0))
        .filter(|d| !d.is_zero());
    // Rounded up: a program that sizes itself by the value must not get less than it was given.
    let ceil = |a: i64, b: i64| if b == 0 { a } else { (a + b - 1) / b };
    Ok(match (name, divisor) {
        ("cpu", d) => ceil(amount.milli_value(), d.map_or(1000, |d| d.milli_value())).to_string(),
        (_, d) => ceil(amount.value(), d.map_or(1, |d| d.value())).to_string(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn field_and_resource_references_are_resolved() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"app": "a", "l1": "v1"}}, "spec": {"containers": []}}))
        .unwrap();
        let at = |path: &str| read_field(&pod, path, &Addresses::default());
        assert_eq!(at("metadata.labels").unwrap(), "app=\"a\"\nl1=\"v1\"");
        assert_eq!(at("metadata.labels['l1']").unwrap(), "v1");
        assert!(at("spec.containers").is_err());
        let container: Container = serde_json::from_value(json!({"name": "c",
            "resources": {"requests": {"cpu": "30m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}}))
        .unwrap();
        let node: BTreeMap<String, Quantity> = [("cpu".to_owned(), "2".parse().unwrap())].into();
        for (name, divisor, want) in [
            ("requests.cpu", "1m", "30"),
            ("requests.cpu", "0", "1"),
            ("limits.memory", "1Mi", "64"),
            ("requests.memory", "0", "33554432"),
            ("limits.cpu", "0", "2"),
        ] {
            let selector =
                serde_json::from_value(json!({"resource": name, "divisor": divisor})).unwrap();
            assert_eq!(
                read_resource(&container, &selector, &node).unwrap(),
                want,
                "{name}/{divisor}"
            );
        }
    }

    /// Debug's form of Rust differs in control characters and combining marks.
    #[test]
    fn annotations_are_quoted_as_by_go() {
        for (value, quoted) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nend\ttab", r#""line\nend\ttab""#),
            ("\u{1}\u{7f}\0", r#""\x01\x7f\x00""#),
            ("\u{85}", r#""\u0085""#),
            ("e\u{301} 'x'", "\"e\u{301} 'x'\""),
        ] {
            assert_eq!(quote_value(value), quoted);
        }
    }

    #[test]
    fn addresses_of_pod_and_node_are_available_before_the_status() {
        let addresses = Addresses {
            pod_ips: vec!["10.0.0.1".into(), "fd00::1".into()],
            host_ips: vec!["192.0.2.1".into()],
        };
        let pod = Pod::default();
        for (path, expected) in [
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", "10.0.0.1,fd00::1"),
            ("status.hostIP", "192.0.2.1"),
            ("status.hostIPs", "192.0.2.1"),
            ("metadata.annotations['none']", ""),
        ] {
            assert_eq!(
                read_field(&pod, path, &addresses).as_deref(),
                Ok(expected),
                "{path}"
            );
        }
    }

    #[test]
    fn resource_amount_is_rounded_up_to_the_divisor() {
        let container: Container = serde_json::from_value(json!({"name": "c",
            "resources": {"limits": {"memory": "1500", "cpu": "1100m", "ephemeral-storage": "3Gi"}}}))
        .unwrap();
        for (name, divisor, expected) in [
            ("limits.memory", "1k", "2"),
            ("limits.cpu", "1", "2"),
            ("requests.memory", "1", "1500"),
            ("limits.ephemeral-storage", "1Gi", "3"),
            ("requests.hugepages-2Mi", "1", "0"),
        ] {
            let selector = json!({"resource": name, "divisor": divisor});
            let selector = serde_json::from_value(selector).unwrap();
            let found = read_resource(&container, &selector, &BTreeMap::new());
            assert_eq!(found.as_deref(), Ok(expected), "{name}/{divisor}");
        }
    }
}
