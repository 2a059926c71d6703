//! Range requests.

use super::{TestStore, keys_of, range_request};
use crate::MvccError;
use proto_etcd::etcdserverpb::RangeRequest;
use proto_etcd::etcdserverpb::range_request::{SortOrder, SortTarget};

/// Returns a store with keys `a` to `e`, put in the order c, a, e, b, d at revisions 2 to 6, and
/// `c` again at 7. Values run against the keys.
fn five_keys() -> TestStore {
    let store = TestStore::new();
    for (key, value) in [
        ("c", "3"),
        ("a", "5"),
        ("e", "1"),
        ("b", "4"),
        ("d", "2"),
        ("c", "3"),
    ] {
        store.put(key, value);
    }
    store
}

#[test]
fn range_selects_by_the_three_forms_of_its_end() {
    let store = five_keys();
    for (key, end, expect) in [
        ("b", "", "b"),
        ("bb", "", ""),
        ("b", "d", "b c"),
        ("b", "b", ""),
        ("d", "b", ""),
        ("d", "\0", "d e"),
        ("\0", "\0", "a b c d e"),
    ] {
        let response = store.range(&range_request(key, end)).unwrap();
        assert_eq!(keys_of(&response), expect, "{key:?} to {end:?}");
        assert_eq!(
            response.count as usize,
            response.kvs.len(),
            "{key:?} to {end:?}"
        );
    }
}

#[test]
fn limit_cuts_the_pairs_but_not_the_count() {
    let store = five_keys();
    for (limit, keys, more) in [
        (0, "a b c d e", false),
        (2, "a b", true),
        (5, "a b c d e", false),
        (9, "a b c d e", false),
    ] {
        let request = RangeRequest {
            limit,
            ..range_request("a", "\0")
        };
        let response = store.range(&request).unwrap();
        assert_eq!(
            (keys_of(&response).as_str(), response.more, response.count),
            (keys, more, 5),
            "limit {limit}"
        );
    }
}

#[test]
fn count_only_returns_no_pairs() {
    let request = RangeRequest {
        count_only: true,
        limit: 2,
        ..range_request("b", "\0")
    };
    let response = five_keys().range(&request).unwrap();
    assert_eq!(
        (response.kvs.len(), response.count, response.more),
        (0, 4, false)
    );
}

#[test]
fn keys_only_returns_pairs_without_values() {
    let request = RangeRequest {
        keys_only: true,
        ..range_request("a", "c")
    };
    let response = five_keys().range(&request).unwrap();
    assert_eq!(keys_of(&response), "a b");
    assert!(response.kvs.iter().all(|kv| kv.value.is_empty()));
    assert!(response.kvs.iter().all(|kv| kv.mod_revision > 0));
}

#[test]
fn pairs_are_sorted_by_the_target_before_the_limit_applies() {
    let store = five_keys();
    for (target, order, expect) in [
        (SortTarget::Key, SortOrder::Descend, "e d"),
        (SortTarget::Value, SortOrder::Ascend, "e d"),
        (SortTarget::Value, SortOrder::None, "e d"),
        (SortTarget::Create, SortOrder::Ascend, "c a"),
        (SortTarget::Mod, SortOrder::Descend, "c d"),
        (SortTarget::Version, SortOrder::Descend, "c a"),
    ] {
        let request = RangeRequest {
            sort_target: target.into(),
            sort_order: order.into(),
            limit: 2,
            ..range_request("a", "\0")
        };
        let response = store.range(&request).unwrap();
        assert_eq!(keys_of(&response), expect, "{target:?} {order:?}");
        assert!(response.more, "{target:?} {order:?}");
    }
}

#[test]
fn filters_bound_mod_and_create_revision_inclusively() {
    let store = five_keys();
    for (bounds, expect) in [
        ([4, 0, 0, 0], "b c d e"),
        ([0, 4, 0, 0], "a e"),
        ([0, 0, 3, 5], "a b e"),
        ([7, 0, 0, 2], "c"),
        ([8, 0, 0, 0], ""),
    ] {
        let [
            min_mod_revision,
            max_mod_revision,
            min_create_revision,
            max_create_revision,
        ] = bounds;
        let request = RangeRequest {
            min_mod_revision,
            max_mod_revision,
            min_create_revision,
            max_create_revision,
            ..range_request("a", "\0")
        };
        assert_eq!(
            keys_of(&store.range(&request).unwrap()),
            expect,
            "{bounds:?}"
        );
    }
}

#[test]
fn range_reads_the_state_of_its_revision() {
    let store = five_keys();
    store.delete("a", "c");
    for (revision, expect) in [
        (1, ""),
        (3, "a c"),
        (6, "a b c d e"),
        (8, "c d e"),
        (0, "c d e"),
    ] {
        let request = RangeRequest {
            revision,
            ..range_request("a", "\0")
        };
        assert_eq!(
            keys_of(&store.range(&request).unwrap()),
            expect,
            "revision {revision}"
        );
    }
}

#[test]
fn future_revision_is_rejected() {
    let request = RangeRequest {
        revision: 8,
        ..range_request("a", "")
    };
    let found = five_keys().range(&request);
    assert!(matches!(found, Err(MvccError::Future)), "{found:?}");
}

#[test]
fn invalid_range_is_rejected() {
    let store = five_keys();
    let unknown = RangeRequest {
        sort_target: 99,
        ..range_request("a", "")
    };
    for (request, expect) in [
        (range_request("", ""), "key is not provided"),
        (unknown, "invalid sort option"),
    ] {
        assert_eq!(store.range(&request).unwrap_err().to_string(), expect);
    }
}

#[test]
fn encoded_records_are_served_only_for_plain_ranges() {
    let store = five_keys();
    let plain = store
        .store
        .range_records(&RangeRequest {
            limit: 2,
            ..range_request("a", "\0")
        })
        .unwrap()
        .unwrap();
    assert_eq!((plain.records.len(), plain.count, plain.more), (2, 5, true));
    assert_eq!(plain.revision, 7);
    let keys_only = RangeRequest {
        keys_only: true,
        ..range_request("a", "\0")
    };
    let sorted = RangeRequest {
        sort_order: SortOrder::Descend.into(),
        ..range_request("a", "\0")
    };
    for request in [keys_only, sorted] {
        assert!(
            store.store.range_records(&request).unwrap().is_none(),
            "{request:?}"
        );
    }
}
