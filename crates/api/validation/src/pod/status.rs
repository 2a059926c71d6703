//! Changes of a pod's status.

use crate::field::{Errors, Path};
use crate::rules;
use api_meta::tree::{get, int, list, text};
use serde_json::Value;

/// Validates a write to `pods/status`.
pub fn validate_status_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("status");
    let (n, o) = (get(new, "status"), get(old, "status"));
    // The class follows from the spec, which cannot change it. Old kubelets omit it; the strategy
    // then keeps the old value.
    if !text(o, "qosClass").is_empty() {
        rules::validate_immutable(n, o, "qosClass", &path, errors);
    }
    let nominated = text(n, "nominatedNodeName");
    if !nominated.is_empty() {
        let problems = api_meta::names::dns1123_subdomain(nominated);
        errors.invalid_each(&path.child("nominatedNodeName"), nominated, problems);
    }
    if let Some(generation) = int(n, "observedGeneration").filter(|generation| *generation < 0) {
        errors.invalid(
            &path.child("observedGeneration"),
            generation,
            "must be a non-negative integer",
        );
    }
    validate_pod_addresses(n, o, ["podIP", "podIPs"], &path, errors);
    let first = list(n, "hostIPs").first().map(|host| text(host, "ip"));
    if let Some(first) = first.filter(|first| *first != text(n, "hostIP")) {
        let at = path.child("hostIPs");
        errors.invalid(&at.index(0).child("ip"), first, "must be equal to `hostIP`");
    }
    validate_pod_addresses(n, o, ["hostIP", "hostIPs"], &path, errors);
}

/// Validates new addresses; invalid ones that existed before may remain. At most one address per
/// family.
fn validate_pod_addresses(
    new: &Value,
    old: &Value,
    [single, field]: [&str; 2],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (after, before, at) = (list(new, field), list(old, field), path.child(field));
    let known = |address: &str| {
        text(old, single) == address || before.iter().any(|old| text(old, "ip") == address)
    };
    let mut check = |at: &Path<'_>, address: &str| {
        // Stored pods may have addresses that a later release rejects, and their kubelets must
        // still be able to report.
        if !known(address) {
            errors.invalid_each(at, address, rules::ip_problems(address));
        }
    };
    for (i, item) in after.iter().enumerate() {
        check(&at.index(i), text(item, "ip"));
    }
    let alone = text(new, single);
    if !alone.is_empty() && !after.iter().any(|item| text(item, "ip") == alone) {
        check(&path.child(single), alone);
    }
    let is_v4 =
        |item: &Value| rules::parse_ip(text(item, "ip")).map(|ip| ip.to_canonical().is_ipv4());
    let families: Vec<_> = after.iter().filter_map(is_v4).collect();
    // matches!(families.as_slice(), [a, b] if a == b) { || Dual stack means one address of each
    // family (KEP-563). Services pick the address of their family.
    if after.len() > 2 || matches!(families.as_slice(), [a, b] if a == b) {
        errors.invalid(
            &at,
            get(new, field).clone(),
            "may specify no more than one IP for each IP family",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(new: Value, old: Value) -> Vec<String> {
        let mut errors = Errors::default();
        validate_status_update(
            &json!({"status": new}),
            &json!({"status": old}),
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
            ["status.podIP"]
        );
        let host = json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]});
        assert_eq!(fields(host, json!({})), ["status.hostIPs[0].ip"]);
    }
}
