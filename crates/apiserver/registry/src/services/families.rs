//! `ipFamilies`, `ipFamilyPolicy` and the shape of `clusterIPs`.

use super::spec::{invalid_field, service_type, spec_str};
use crate::allocators::ServiceOptions;
use api_meta::{ApiError, meta::object_at};
use serde_json::{Value, json};

/// Fills in the fields that depend on the type and on the cluster's families.
pub(super) fn fill_families(
    options: &ServiceOptions,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    // Such a Service is a DNS alias and has neither addresses nor families.
    if service_type(service) == "ExternalName" {
        return Ok(());
    }
    // A client that PUTs its own manifest does not know the allocated values.
    keep_old(service, old);
    drop_second(service, old);
    let cluster = cluster_families(options);
    // A user or a controller writes the endpoints of such a Service, of any family.
    let headless_without_selector =
        spec_str(service, "clusterIP") == "None" && service.pointer("/spec/selector").is_none();
    let policy = match spec_str(service, "ipFamilyPolicy") {
        "" if headless_without_selector => "RequireDualStack",
        "" => "SingleStack",
        policy => policy,
    }
    .to_owned();
    if policy == "RequireDualStack" && cluster.len() < 2 && !headless_without_selector {
        let why = "this cluster is not configured for dual-stack services";
        return Err(invalid_field(
            service,
            "spec.ipFamilyPolicy",
            &json!(policy),
            why,
        ));
    }
    let families = requested_families(service, &cluster, &policy, headless_without_selector)?;
    let spec = object_at(service, "spec");
    spec.insert("ipFamilyPolicy".into(), policy.into());
    spec.insert("ipFamilies".into(), families.into());
    if spec.get("clusterIP").and_then(Value::as_str) == Some("None") {
        spec.insert("clusterIPs".into(), json!(["None"]));
    }
    Ok(())
}

/// Keeps allocated values that an update omits.
fn keep_old(service: &mut Value, old: Option<&Value>) {
    let Some(old) = old.filter(|old| service_type(old) != "ExternalName") else {
        return;
    };
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let Some(value) = old
            .pointer("/spec")
            .and_then(|spec| spec.get(field))
            .cloned()
        else {
            continue;
        };
        let spec = object_at(service, "spec");
        let empty = spec
            .get(field)
            .is_none_or(|v| v.as_str() == Some("") || v.as_array().is_some_and(Vec::is_empty));
        if empty {
            spec.insert(field.into(), value);
        }
    }
}

/// Drops the second family and address of a Service that becomes single-stack, unless the update
/// sets others.
fn drop_second(service: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    // A client that only changes the policy need not also shorten both lists.
    let was_dual = matches!(
        spec_str(old, "ipFamilyPolicy"),
        "PreferDualStack" | "RequireDualStack"
    );
    if !was_dual || spec_str(service, "ipFamilyPolicy") != "SingleStack" {
        return;
    }
    for field in ["clusterIPs", "ipFamilies"] {
        let before = old.pointer("/spec").and_then(|spec| spec.get(field));
        let spec = object_at(service, "spec");
        // A list that the client changed is its explicit choice.
        if spec.get(field) == before
            && let Some(list) = spec.get_mut(field).and_then(Value::as_array_mut)
        {
            list.truncate(1);
        }
    }
}

pub(super) fn cluster_families(options: &ServiceOptions) -> Vec<&'static str> {
    let mut all = Vec::new();
    for cidr in &options.cidrs {
        let family = if cidr.addr().is_ipv4() {
            "IPv4"
        } else {
            "IPv6"
        };
        if !all.contains(&family) {
            all.push(family);
        }
    }
    all
}

fn requested_families(
    service: &Value,
    cluster: &[&'static str],
    policy: &str,
    any: bool,
) -> Result<Vec<String>, ApiError> {
    let requested = service
        .pointer("/spec/ipFamilies")
        .and_then(Value::as_array);
    let mut families: Vec<String> = requested
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if families.is_empty() {
        // A requested address decides the family; the cluster's first one would contradict it.
        families.extend(family_of_address(service));
    }
    if let Some(at) = families
        .iter()
        // No address is allocated for a headless Service without selector, so that every family is
        // possible.
        .position(|f| !any && !cluster.contains(&f.as_str()))
    {
        let field = format!("spec.ipFamilies[{at}]");
        return Err(invalid_field(
            service,
            &field,
            &json!(families[at]),
            "not configured on this cluster",
        ));
    }
    // The first range of `--service-cluster-ip-range` is the primary family.
    if families.is_empty() {
        families.extend(cluster.first().map(|f| (*f).to_owned()));
    }
    // PreferDualStack falls back to one family on a cluster that has only one.
    let dual = policy != "SingleStack" && families.len() == 1;
    if dual {
        let all: &[&str] = if any { &["IPv4", "IPv6"] } else { cluster };
        let first = families[0].clone();
        families.extend(all.iter().filter(|f| **f != first).map(|f| (*f).to_owned()));
    }
    Ok(families)
}

fn family_of_address(service: &Value) -> Option<String> {
    let address: std::net::IpAddr = spec_str(service, "clusterIP").parse().ok()?;
    Some(if address.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn downgrade_to_single_stack_drops_the_second_family() {
        let options = ServiceOptions {
            cidrs: vec![
                "10.0.0.0/16".parse().unwrap(),
                "fd00::/112".parse().unwrap(),
            ],
            node_ports: 30000..=32767,
        };
        let old = json!({"spec": {"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack", "clusterIP": "10.0.0.5",
            "clusterIPs": ["10.0.0.5", "fd00::5"], "ipFamilies": ["IPv4", "IPv6"]}});
        let mut new = old.clone();
        new["spec"]["ipFamilyPolicy"] = json!("SingleStack");
        fill_families(&options, &mut new, Some(&old)).unwrap();
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.5"]));
        assert_eq!(new["spec"]["ipFamilies"], json!(["IPv4"]));
        let mut kept = old.clone();
        fill_families(&options, &mut kept, Some(&old)).unwrap();
        assert_eq!(kept["spec"]["clusterIPs"], old["spec"]["clusterIPs"]);
    }
}
