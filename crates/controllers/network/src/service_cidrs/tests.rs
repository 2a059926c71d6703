#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe_actions;

const DELETED: &str = "2026-01-01T00:00:00Z";

fn service_cidr(name: &str, cidrs: &[&str]) -> ServiceCIDR {
    serde_json::from_value(
        json!({"metadata": {"name": name, "uid": name}, "spec": {"cidrs": cidrs}}),
    )
    .unwrap()
}

fn with_finalizer(mut object: ServiceCIDR) -> ServiceCIDR {
    object.metadata.finalizers = Some(vec!["example.com/other".to_owned(), FINALIZER.to_owned()]);
    object
}

fn deleted(mut object: ServiceCIDR) -> ServiceCIDR {
    object.metadata.deletion_timestamp = Some(time::api_time(DELETED.parse().unwrap()));
    object
}

fn with_condition(mut object: ServiceCIDR, wanted: &Readiness) -> ServiceCIDR {
    let condition = json!({"type": "Ready", "status": wanted.status, "reason": wanted.reason,
        "message": wanted.message, "lastTransitionTime": DELETED});
    object.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
    object
}

fn address(name: &str, managed_by: &str) -> Arc<IPAddress> {
    let tree = json!({"metadata": {"name": name, "labels": {MANAGED_BY: managed_by}},
        "spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}});
    Arc::new(serde_json::from_value(tree).unwrap())
}

/// Returns the actions `seconds` after the deletion request.
fn reconcile_after(
    object: &ServiceCIDR,
    others: &[ServiceCIDR],
    addresses: &[&str],
    seconds: i64,
) -> Vec<Action> {
    let mut all: Vec<_> = others.iter().cloned().map(Arc::new).collect();
    all.push(Arc::new(object.clone()));
    let addresses: Vec<_> = addresses.iter().map(|a| address(a, ALLOCATOR)).collect();
    let now = time::seconds_after(DELETED.parse().unwrap(), seconds);
    reconcile_service_cidr(object, &all, &addresses, now)
}

#[test]
fn service_cidr_gets_its_finalizer_and_becomes_ready() {
    let new = service_cidr("a", &["192.0.2.0/24"]);
    let default = Readiness {
        message: "Kubernetes default Service CIDR is ready",
        ..READY
    };
    let (finalizer, status) = ("patch ServiceCIDR a", "status ServiceCIDR a");
    for (object, expect) in [
        (new.clone(), &[finalizer, status][..]),
        (with_finalizer(new.clone()), &[status]),
        (with_condition(new.clone(), &READY), &[finalizer]),
        (with_finalizer(with_condition(new.clone(), &READY)), &[]),
        (
            with_finalizer(with_condition(new.clone(), &default)),
            &[status],
        ),
        (with_finalizer(with_condition(new, &TERMINATING)), &[status]),
    ] {
        let actions = reconcile_after(&object, &[], &["192.0.2.7"], 60);
        assert_eq!(describe_actions(&actions), expect, "{object:?}");
    }
}

#[test]
fn writes_keep_the_fields_of_others() {
    let new = service_cidr("a", &["192.0.2.0/24"]);
    let actions = reconcile_after(&new, &[], &[], 0);
    let writes: Vec<_> = actions.iter().filter_map(Action::as_write).collect();
    assert_eq!(writes[0].verb, Verb::Strategic(None));
    assert_eq!(writes[0].body["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(writes[1].verb, Verb::ApplyStatus(MANAGER));
    assert_eq!(
        writes[1].body["status"]["conditions"],
        json!([{"type": "Ready", "status": "True", "reason": "",
            "message": "Kubernetes Service CIDR is ready", "lastTransitionTime": DELETED}])
    );
    assert_eq!(
        writes[1].notes.failure.as_ref().unwrap().reason,
        "KubernetesServiceCIDRError"
    );
}

#[test]
fn deletion_waits_for_addresses_of_this_range_only() {
    const BLOCKED: &[&str] = &["status ServiceCIDR a"];
    const FREE: &[&str] = &["patch ServiceCIDR a"];
    let both: &[&str] = &["192.0.2.0/25", "2001:db8::/112"];
    for (own, others, addresses, expect) in [
        (&["192.0.2.0/25"][..], &[][..], &[][..], FREE),
        (&["192.0.2.0/25"], &[], &["192.0.2.7"], BLOCKED),
        (
            &["192.0.2.0/25"],
            &[],
            &["192.0.2.200", "2001:db8::1"],
            FREE,
        ),
        // API servers do not allocate the first and the last address.
        (&["192.0.2.0/25"], &[], &["192.0.2.0", "192.0.2.127"], FREE),
        (both, &[], &["2001:db8::ffff"], BLOCKED),
        (both, &[], &["2001:db8::"], FREE),
        // Larger ranges, and the same one again.
        (&["192.0.2.0/25"], &["192.0.2.0/24"], &["192.0.2.7"], FREE),
        (&["192.0.2.0/25"], &["192.0.2.0/25"], &["192.0.2.7"], FREE),
        // The other range has another family or only a part of the addresses.
        (both, &["192.0.2.0/24"], &["192.0.2.7"], FREE),
        (both, &["192.0.2.0/24"], &["2001:db8::1"], BLOCKED),
        (&["192.0.2.0/25"], &["192.0.2.0/26"], &["192.0.2.7"], FREE),
        (
            &["192.0.2.0/25"],
            &["192.0.2.0/26"],
            &["192.0.2.7", "192.0.2.100"],
            BLOCKED,
        ),
        // The broadcast address of the smaller range.
        (
            &["192.0.2.0/25"],
            &["192.0.2.0/26"],
            &["192.0.2.63"],
            BLOCKED,
        ),
    ] {
        let object = with_finalizer(deleted(service_cidr("a", own)));
        let others: Vec<_> = others
            .iter()
            .map(|cidr| service_cidr("b", &[cidr]))
            .collect();
        let actions = reconcile_after(&object, &others, addresses, 60);
        assert_eq!(
            describe_actions(&actions),
            expect,
            "{own:?} {others:?} {addresses:?}"
        );
    }
}

#[test]
fn addresses_of_other_managers_do_not_hold_a_deletion() {
    let object = with_finalizer(deleted(service_cidr("a", &["192.0.2.0/24"])));
    let all = [Arc::new(object.clone())];
    let now = time::seconds_after(DELETED.parse().unwrap(), 60);
    let actions = reconcile_service_cidr(&object, &all, &[address("192.0.2.7", "x")], now);
    assert_eq!(describe_actions(&actions), ["patch ServiceCIDR a"]);
}

#[test]
fn finalizer_is_removed_ten_seconds_after_the_request() {
    let plain = deleted(service_cidr("a", &["192.0.2.0/24"]));
    let held = with_finalizer(plain.clone());
    for (object, seconds, expect) in [
        (&held, 0, &["requeue 10s"][..]),
        (&held, 9, &["requeue 1s"]),
        (&held, 10, &["patch ServiceCIDR a"]),
        (&plain, 0, &["requeue 10s"]),
        (&plain, 10, &[]),
    ] {
        let actions = reconcile_after(object, &[], &[], seconds);
        assert_eq!(describe_actions(&actions), expect, "{seconds}");
    }
    let removal = reconcile_after(&held, &[], &[], 10);
    assert_eq!(
        removal[0].as_write().unwrap().body["metadata"],
        json!({"uid": "a", "$deleteFromPrimitiveList/finalizers": [FINALIZER]})
    );
}

#[test]
fn blocked_deletion_is_reported_once() {
    let object = with_finalizer(deleted(service_cidr("a", &["192.0.2.0/24"])));
    let object = with_condition(object, &TERMINATING);
    assert!(reconcile_after(&object, &[], &["192.0.2.7"], 60).is_empty());
}
