#![allow(clippy::unwrap_used)]
use super::*;

const V4: &[bool] = &[false];
const BOTH: &[bool] = &[false, true];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ledger(pool: &str) -> Ledger {
    Ledger::new(pool.parse().unwrap())
}

fn request(service: &str, families: &[bool], wish: Option<&str>) -> Request {
    Request {
        service: service.to_owned(),
        families: families.to_vec(),
        wish: wish.map(str::to_owned),
    }
}

/// Returns the addresses and the reason of a problem, as one text.
fn assign(ledger: &mut Ledger, service: &str, families: &[bool], wish: Option<&str>) -> String {
    if !ledger.by_service.contains_key(service) {
        ledger.observe(service, 0, Vec::new());
    }
    let request = request(service, families, wish);
    let (assignment, _) = ledger.assign(&request, &|_| false).unwrap();
    let addresses = assignment.addresses.iter().map(ToString::to_string);
    let reason = assignment
        .problem
        .map(|problem| problem.reason().to_owned());
    addresses.chain(reason).collect::<Vec<_>>().join(" ")
}

#[test]
fn service_gets_one_address_of_each_family_of_the_pool() {
    let both = "192.0.2.1-192.0.2.3,2001:db8::1-2001:db8::3";
    for (pool, families, wish, expect) in [
        (both, V4, None, "192.0.2.1"),
        (both, BOTH, None, "192.0.2.1 2001:db8::1"),
        (both, &[true, false][..], None, "2001:db8::1 192.0.2.1"),
        ("192.0.2.1", BOTH, None, "192.0.2.1"),
        ("192.0.2.1", &[true], None, "FamilyNotInPool"),
        ("192.0.2.1", &[], None, "FamilyNotInPool"),
        (both, V4, Some("192.0.2.2"), "192.0.2.2"),
        (both, BOTH, Some("192.0.2.2"), "192.0.2.2 2001:db8::1"),
        (both, BOTH, Some("2001:db8::3"), "192.0.2.1 2001:db8::3"),
        (both, V4, Some("2001:db8::3"), "AddressOutsidePool"),
        (both, BOTH, Some("192.0.2.9"), "AddressOutsidePool"),
        (both, V4, Some("nonsense"), "AddressOutsidePool"),
    ] {
        let found = assign(&mut ledger(pool), "n/s", families, wish);
        assert_eq!(found, expect, "{pool} {families:?} {wish:?}");
    }
}

#[test]
fn address_is_granted_once_even_before_its_write_is_visible() {
    let mut ledger = ledger("192.0.2.1-192.0.2.2,2001:db8::1-2001:db8::9");
    assert_eq!(assign(&mut ledger, "n/a", V4, None), "192.0.2.1");
    assert_eq!(assign(&mut ledger, "n/b", V4, None), "192.0.2.2");
    assert_eq!(assign(&mut ledger, "n/c", V4, None), "PoolExhausted");
    let partial = assign(&mut ledger, "n/d", BOTH, None);
    assert_eq!(partial, "2001:db8::1 PoolExhausted");
    let wish = Some("192.0.2.1");
    assert_eq!(assign(&mut ledger, "n/e", V4, wish), "AddressInUse");
    // A second pass, for instance after a write that failed.
    assert_eq!(assign(&mut ledger, "n/b", V4, None), "192.0.2.2");
}

#[test]
fn service_keeps_its_address_after_a_restart() {
    let mut ledger = ledger("192.0.2.1-192.0.2.9");
    ledger.observe("n/b", 0, vec![ip("192.0.2.7")]);
    assert_eq!(assign(&mut ledger, "n/b", V4, None), "192.0.2.7");
}

#[test]
fn oldest_service_keeps_an_address_that_several_have() {
    let mut ledger = ledger("192.0.2.1-192.0.2.9");
    ledger.observe("n/new", 20, vec![ip("192.0.2.1")]);
    let both = ledger.observe("n/old", 10, vec![ip("192.0.2.1")]);
    assert_eq!(both, ["n/old", "n/new"]);
    assert_eq!(assign(&mut ledger, "n/new", V4, None), "192.0.2.2");
    assert_eq!(assign(&mut ledger, "n/old", V4, None), "192.0.2.1");
    // Age does not take an address from its only owner.
    ledger.observe("n/new", 20, vec![ip("192.0.2.2")]);
    let wish = assign(&mut ledger, "n/old", V4, Some("192.0.2.2"));
    assert_eq!(wish, "AddressInUse");
}

#[test]
fn reserved_addresses_are_not_granted_and_are_kept_by_those_that_have_them() {
    let mut ledger = ledger("192.0.2.1-192.0.2.2");
    ledger.observe("n/a", 0, vec![ip("192.0.2.1")]);
    let mut assign = |service: &str, wish: Option<&str>, is_reserved: &dyn Fn(IpAddr) -> bool| {
        if !ledger.by_service.contains_key(service) {
            ledger.observe(service, 0, Vec::new());
        }
        let request = request(service, V4, wish);
        ledger.assign(&request, is_reserved).unwrap().0
    };
    let all = |_| true;
    for wish in [None, Some("192.0.2.1")] {
        assert_eq!(assign("n/a", wish, &all).addresses, [ip("192.0.2.1")]);
    }
    let wish = assign("n/b", Some("192.0.2.2"), &all);
    assert_eq!(wish.problem, Some(Problem::WishInUse));
    assert_eq!(
        assign("n/c", None, &all).problem,
        Some(Problem::PoolExhausted)
    );
    // The node has released it.
    assert_eq!(ledger.wake_waiting(), ["n/b", "n/c"]);
    let request = request("n/c", V4, None);
    let (granted, _) = ledger.assign(&request, &|_| false).unwrap();
    assert_eq!(granted.addresses, [ip("192.0.2.2")]);
}

#[test]
fn services_that_wait_for_a_full_pool_cost_one_search() {
    let mut ledger = ledger("10.0.0.1-10.0.3.255");
    for n in 0..1023 {
        assign(&mut ledger, &format!("n/{n}"), V4, None);
    }
    let searched = std::cell::Cell::new(0);
    let is_reserved = |_| {
        searched.set(searched.get() + 1);
        false
    };
    for n in 0..50 {
        let service = format!("w/{n}");
        ledger.observe(&service, 100 - n, Vec::new());
        let (assignment, _) = ledger
            .assign(&request(&service, V4, None), &is_reserved)
            .unwrap();
        assert_eq!(assignment.problem, Some(Problem::PoolExhausted));
    }
    assert_eq!(searched.get(), 0);
    let wake = ledger.remove("n/7");
    assert_eq!((wake.len(), wake[0].as_str()), (50, "w/49"));
    let (oldest, _) = ledger
        .assign(&request("w/49", V4, None), &is_reserved)
        .unwrap();
    assert_eq!(oldest.addresses, [ip("10.0.0.8")]);
    assert_eq!(searched.get(), 1);
}

#[test]
fn released_address_is_used_again_last() {
    let mut ledger = ledger("192.0.2.1-192.0.2.2,192.0.2.7-192.0.2.8");
    assert_eq!(assign(&mut ledger, "n/a", V4, None), "192.0.2.1");
    ledger.remove("n/a");
    for expect in [
        "192.0.2.2",
        "192.0.2.7",
        "192.0.2.8",
        "192.0.2.1",
        "PoolExhausted",
    ] {
        assert_eq!(assign(&mut ledger, expect, V4, None), expect);
    }
}

#[test]
fn release_wakes_the_services_that_wait() {
    let mut ledger = ledger("192.0.2.1");
    ledger.observe("n/a", 0, vec![ip("192.0.2.1")]);
    assert_eq!(assign(&mut ledger, "n/b", V4, None), "PoolExhausted");
    // An update without a change of addresses.
    let unchanged = ledger.observe("n/a", 0, vec![ip("192.0.2.1")]);
    assert_eq!(unchanged, Vec::<String>::new());
    assert_eq!(ledger.remove("n/a"), ["n/b"]);
    assert_eq!(assign(&mut ledger, "n/b", V4, None), "192.0.2.1");
    assert_eq!(ledger.remove("n/b"), Vec::<String>::new());
}

#[test]
fn change_of_the_wish_releases_the_former_address() {
    let mut ledger = ledger("192.0.2.1-192.0.2.2");
    assert_eq!(assign(&mut ledger, "n/a", V4, None), "192.0.2.1");
    ledger.observe("n/a", 0, vec![ip("192.0.2.1")]);
    let wish = Some("192.0.2.2");
    assert_eq!(assign(&mut ledger, "n/a", V4, wish), "192.0.2.2");
    // The former one is in the visible status until the write arrives.
    let other = assign(&mut ledger, "n/b", V4, Some("192.0.2.1"));
    assert_eq!(other, "AddressInUse");
    assert_eq!(ledger.observe("n/a", 0, vec![ip("192.0.2.2")]), ["n/b"]);
    let other = assign(&mut ledger, "n/b", V4, Some("192.0.2.1"));
    assert_eq!(other, "192.0.2.1");
}

#[test]
fn service_of_another_load_balancer_keeps_what_its_status_has() {
    let mut ledger = ledger("192.0.2.1-192.0.2.2");
    assert_eq!(assign(&mut ledger, "n/a", V4, None), "192.0.2.1");
    assert_eq!(assign(&mut ledger, "n/b", V4, None), "192.0.2.2");
    assert_eq!(assign(&mut ledger, "n/c", V4, None), "PoolExhausted");
    ledger.observe("n/b", 0, vec![ip("192.0.2.2")]);
    assert_eq!(ledger.revoke("n/b"), Vec::<String>::new());
    assert_eq!(ledger.revoke("n/a"), ["n/c"]);
    assert_eq!(assign(&mut ledger, "n/c", V4, None), "192.0.2.1");
}

#[test]
fn service_that_was_deleted_meanwhile_gets_nothing() {
    let mut ledger = ledger("192.0.2.1");
    ledger.observe("n/a", 0, Vec::new());
    ledger.remove("n/a");
    assert!(
        ledger
            .assign(&request("n/a", V4, None), &|_| false)
            .is_none()
    );
    assert_eq!(assign(&mut ledger, "n/b", V4, None), "192.0.2.1");
}
