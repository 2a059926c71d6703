use super::*;
use crate::claim_status::ClaimStatus;

const PATH: &str = "resource.k8s.io:resourceclaims/status";
const BINDING: &str = "changing status.allocation or status.reservedFor requires \
                       resource=\"resourceclaims/binding\", verb=\"update\" permission";

fn plugin(grants: &[(&'static str, &'static str)], labels: Value) -> ClaimStatus {
    let namespace = json!({"metadata": {"name": "n", "labels": labels}});
    let objects = [("namespaces", namespace)];
    ClaimStatus(context_with(&objects, grants, Arc::default()))
}

/// Returns a claim with a device of the node `a`.
fn allocated(admin_access: bool, devices: Value) -> Value {
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["a"]}]);
    json!({"status": {"devices": devices, "allocation": {
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        "devices": {"results": [{"request": "r", "device": "x", "adminAccess": admin_access}]}}}})
}

fn reserved(mut claim: Value) -> Value {
    claim["status"]["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    claim
}

fn device(driver: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({"driver": driver, "pool": "p", "device": "x",
        "conditions": [{"type": "Ready", "status": status}]})
}

#[test]
fn allocation_and_reservation_need_the_right_to_bind() {
    let free = json!({"status": {}});
    let plain = || allocated(false, json!([]));
    for (old, new, is_binding) in [
        (free.clone(), plain(), true),
        (plain(), free.clone(), true),
        (plain(), reserved(plain()), true),
        (reserved(plain()), plain(), true),
        (plain(), plain(), false),
        (free, json!({"status": {"reservedFor": []}}), false),
    ] {
        let write = update(PATH, old, new);
        let denied = validate(&plugin(&[], json!({})), &write);
        assert_eq!(denied.is_err(), is_binding, "{:?}", write.object);
        if let Err(text) = denied {
            assert!(text.contains(BINDING), "{text}");
        }
        assert_eq!(
            validate(&plugin(&[("update", "")], json!({})), &write),
            Ok(())
        );
    }
}

#[test]
fn patch_needs_the_right_to_patch() {
    let write = update(PATH, json!({}), allocated(false, json!([])));
    let mut request = write.request();
    request.options = json!({"kind": "PatchOptions"});
    for (verb, allowed) in [("update", false), ("patch", true)] {
        let plugin = plugin(&[(verb, "")], json!({}));
        let result = complete(plugin.validate(&request));
        assert_eq!(result.is_ok(), allowed, "{verb}");
    }
}

#[test]
fn state_of_a_device_belongs_to_its_driver() {
    let with = |devices: Value| allocated(false, devices);
    let both = || with(json!([device("d", true), device("e", true)]));
    for (old, new, drivers) in [
        (both(), both(), ""),
        (
            both(),
            with(json!([device("d", false), device("e", true)])),
            "d",
        ),
        (both(), with(json!([device("d", true)])), "e"),
        (with(json!([])), both(), "d e"),
    ] {
        let write = update(PATH, old, new);
        let result = validate(&plugin(&[], json!({})), &write);
        let text = result.err().unwrap_or_default();
        for driver in ["d", "e"] {
            let denied = text.contains(&format!("name=\"{driver}\""));
            assert_eq!(denied, drivers.contains(driver), "{driver}: {text}");
        }
        let grants = [
            ("arbitrary-node:update", "d"),
            ("arbitrary-node:update", "e"),
        ];
        assert_eq!(validate(&plugin(&grants, json!({})), &write), Ok(()));
    }
}

#[test]
fn right_for_the_own_node_counts_for_service_accounts_of_that_node() {
    let grants = [("associated-node:update", "d")];
    for (name, node, allowed) in [
        ("system:serviceaccount:n:driver", Some("a"), true),
        ("system:serviceaccount:n:driver", Some("b"), false),
        ("system:serviceaccount:n:driver", None, false),
        ("jane", Some("a"), false),
    ] {
        let old = allocated(false, json!([]));
        let mut write = update(PATH, old, allocated(false, json!([device("d", true)])));
        write.user.name = name.into();
        let key = "authentication.kubernetes.io/node-name".to_owned();
        let extra = node.map(|node| (key, vec![node.to_owned()]));
        write.user.extra.extend(extra);
        let result = validate(&plugin(&grants, json!({})), &write);
        assert_eq!(result.is_ok(), allowed, "{name} {node:?}");
    }
}

#[test]
fn administrative_access_in_a_status_needs_the_label_of_the_namespace() {
    let label = json!({"resource.kubernetes.io/admin-access": "true"});
    let free = json!({"status": {}});
    let admin = || allocated(true, json!([]));
    for (labels, old, allowed) in [
        (json!({}), free.clone(), false),
        (label, free, true),
        (json!({}), admin(), true),
    ] {
        let write = update(PATH, old, reserved(admin()));
        let result = validate(&plugin(&[("update", "")], labels), &write);
        assert_eq!(result.is_ok(), allowed, "{result:?}");
    }
}

#[test]
fn other_writes_need_no_such_rights() {
    for path in [
        "resource.k8s.io:resourceclaims",
        "example.com:resourceclaims/status",
    ] {
        let write = update(path, json!({}), allocated(true, json!([device("d", true)])));
        assert_eq!(validate(&plugin(&[], json!({})), &write), Ok(()), "{path}");
    }
}
