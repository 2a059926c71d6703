//! Changes of a pod's status.

use super::options::PodOptions;
use super::{annotations, container_status, transition};
use crate::field::{Errors, Path};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, int, list, text};
use serde_json::{Value, json};

const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
const GENERATION: &str = "must be a non-negative integer";

/// Validates a write to `pods/status`.
pub fn validate_status_update(new: &Value, old: &Value, options: &PodOptions, errors: &mut Errors) {
    let (meta, path) = (Path::ROOT.child("metadata"), Path::ROOT.child("status"));
    let (after, before) = (get(new, "metadata"), get(old, "metadata"));
    annotations::validate_annotation_updates(after, before, &meta, errors);
    annotations::validate_pod_annotations(after, get(new, "spec"), options, &meta, errors);
    let (n, o) = (get(new, "status"), get(old, "status"));
    validate_conditions(n, &path.child("conditions"), errors);
    validate_nominated_node(new, old, &path.child("nominatedNodeName"), errors);
    if let Some(generation) = int(n, "observedGeneration").filter(|generation| *generation < 0) {
        errors.invalid(&path.child("observedGeneration"), generation, GENERATION);
    }
    // The class follows from the spec, which cannot change it. Old kubelets omit it; the strategy
    // then keeps the old value.
    if text(n, "qosClass") != text(o, "qosClass") {
        errors.invalid(
            &path.child("qosClass"),
            text(n, "qosClass"),
            rules::IMMUTABLE,
        );
    }
    transition::validate_state_transitions(new, old, &path, errors);
    container_status::validate_claim_statuses(new, &path, errors);
    container_status::validate_extended_claim(new, &path, errors);
    container_status::validate_node_claims(new, &path, errors);
    validate_addresses(
        &list_pod_addresses(n),
        &list_pod_addresses(o),
        &path.child("podIPs"),
        errors,
    );
    let hosts = list(n, "hostIPs");
    let at = path.child("hostIPs");
    if let Some(first) = hosts.first().map(|host| text(host, "ip"))
        && first != text(n, "hostIP")
    {
        errors.invalid(&at.index(0).child("ip"), first, "must be equal to `hostIP`");
    }
    validate_addresses(hosts, list(o, "hostIPs"), &at, errors);
    container_status::validate_container_statuses(new, &path, errors);
}

fn validate_conditions(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, condition) in list(status, "conditions").iter().enumerate() {
        let at = path.index(i);
        if let Some(generation) = int(condition, "observedGeneration").filter(|n| *n < 0) {
            errors.invalid(&at.child("observedGeneration"), generation, GENERATION);
        }
        let kind = text(condition, "type");
        if !SYSTEM_CONDITIONS.contains(&kind) {
            // The capital letter is upstream's.
            errors.invalid_each(&at.child("Type"), kind, names::qualified_name(kind));
        }
    }
}

fn validate_nominated_node(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let field = "nominatedNodeName";
    let name = text(get(new, "status"), field);
    if name.is_empty() || name == text(get(old, "status"), field) {
        return;
    }
    errors.invalid_each(path, name, names::dns1123_subdomain(name));
    // A nomination reserves room on a node, which a bound pod has already.
    if !text(get(old, "spec"), "nodeName").is_empty() {
        let detail = "may not be set on pods that are already bound to a node";
        errors.forbidden(path, detail);
    }
}

/// Returns the pod's addresses. Clients of the first releases set `podIP` alone.
fn list_pod_addresses(status: &Value) -> Vec<Value> {
    match (list(status, "podIPs"), text(status, "podIP")) {
        ([], "") => Vec::new(),
        ([], alone) => vec![json!({"ip": alone})],
        (all, _) => all.to_vec(),
    }
}

/// Validates new addresses; invalid ones that existed before may remain, because their kubelets
/// must still be able to report. At most one address per family.
fn validate_addresses(after: &[Value], before: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, item) in after.iter().enumerate() {
        let address = text(item, "ip");
        if !before.iter().any(|old| text(old, "ip") == address) {
            errors.invalid_each(&path.index(i), address, rules::ip_problems(address));
        }
    }
    let is_v4 =
        |item: &Value| rules::parse_ip(text(item, "ip")).map(|ip| ip.to_canonical().is_ipv4());
    let families: Vec<_> = after.iter().filter_map(is_v4).collect();
    // Dual stack means one address of each family (KEP-563). Services pick the address of their
    // family.
    if after.len() > 2 || matches!(families.as_slice(), [a, b] if a == b) {
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid(path, after.to_vec(), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(new: Value, old: Value) -> Vec<String> {
        let mut errors = Errors::default();
        validate_status_update(
            &json!({"status": new}),
            &json!({"status": old}),
            &PodOptions::default(),
            &mut errors,
        );
        errors.0.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn addresses_of_pods_and_hosts_are_checked() {
        let pod = |addresses: &[&str]| {
            let all: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
            json!({"podIP": addresses.first(), "podIPs": all})
        };
        for (addresses, expect) in [
            (&["10.0.0.1"][..], &[][..]),
            (&["10.0.0.1", "fd00::1"], &[]),
            (&["::ffff:127.0.0.1"], &["status.podIPs[0]"]),
            (&["localhost"], &["status.podIPs[0]"]),
            (&["10.0.0.1", "10.0.0.2"], &["status.podIPs"]),
            (&["10.0.0.1", "fd00::1", "fd00::2"], &["status.podIPs"]),
        ] {
            assert_eq!(fields(pod(addresses), json!({})), expect, "{addresses:?}");
            assert!(
                addresses.len() > 1 || fields(pod(addresses), pod(addresses)).is_empty(),
                "{addresses:?}"
            );
        }
        assert_eq!(
            fields(json!({"podIP": "::ffff:169.254.169.254"}), json!({})),
            ["status.podIPs[0]"]
        );
        let host = json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]});
        assert_eq!(fields(host, json!({})), ["status.hostIPs[0].ip"]);
    }
}
