#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::json;

use super::*;

fn claim(version: u64, device: Option<&str>) -> ResourceClaim {
    let results =
        device.map(|name| json!([{"request": "r", "driver": "d", "pool": "p", "device": name}]));
    let allocation = results.map(|results| json!({"devices": {"results": results}}));
    let object = json!({"metadata": {"name": "c", "uid": "u", "resourceVersion": version.to_string()},
        "spec": {}, "status": {"allocation": allocation}});
    serde_json::from_value(object).unwrap()
}

fn is_in_use(ledger: &Ledger, shown: ResourceClaim, device: &str) -> bool {
    let shown = [Arc::new(shown)];
    let allocated = ledger.count_allocated(shown.iter());
    allocated.find_use("d", "p", device).is_some()
}

#[test]
fn written_allocation_is_not_replaced_by_an_older_decision() {
    let ledger = Ledger::default();
    assert!(ledger.add_pending(claim(5, Some("x"))));
    assert!(!ledger.add_pending(claim(5, Some("y"))));
    ledger.record_written(claim(7, Some("x")));
    // The informer still shows the claim without devices.
    assert!(!ledger.add_pending(claim(5, Some("y"))));
    assert!(is_in_use(&ledger, claim(5, None), "x"));
    // The claim was freed since.
    assert!(ledger.add_pending(claim(8, Some("y"))));
    assert!(is_in_use(&ledger, claim(8, None), "y"));
    assert!(!is_in_use(&ledger, claim(8, None), "x"));
}

#[test]
fn newest_state_of_a_claim_counts_until_the_informer_shows_it() {
    let ledger = Ledger::default();
    ledger.record_written(claim(7, Some("x")));
    let newest = |version| version_of(&ledger.newest_claim(Arc::new(claim(version, None))));
    assert_eq!((newest(5), newest(8)), (7, 8));
    ledger.remove_pending("u");
    ledger.forget_shown(6);
    assert!(is_in_use(&ledger, claim(5, None), "x"));
    ledger.forget_shown(7);
    assert!(!is_in_use(&ledger, claim(8, None), "x"));
}

#[test]
fn pending_allocation_is_in_use_until_it_is_removed() {
    let ledger = Ledger::default();
    assert!(ledger.add_pending(claim(5, Some("x"))));
    ledger.forget_shown(9);
    assert!(ledger.is_pending("u") && is_in_use(&ledger, claim(5, None), "x"));
    ledger.remove_pending("u");
    assert!(!ledger.is_pending("u") && !is_in_use(&ledger, claim(5, None), "x"));
}

#[test]
fn revision_differs_after_each_change() {
    let ledger = Ledger::default();
    let mut seen = vec![ledger.revision()];
    let changes: [&dyn Fn(); 4] = [
        &|| assert!(ledger.add_pending(claim(5, Some("x")))),
        &|| ledger.remove_pending("u"),
        &|| ledger.record_written(claim(7, Some("x"))),
        &|| ledger.forget_shown(7),
    ];
    for change in changes {
        change();
        assert!(!seen.contains(&ledger.revision()), "{seen:?}");
        seen.push(ledger.revision());
    }
    ledger.forget_shown(8);
    assert_eq!(seen.last(), Some(&ledger.revision()));
}
