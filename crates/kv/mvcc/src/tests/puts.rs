//! Puts: revisions, versions, and the options of a request.

use super::{TestLeases, TestStore, put_request};
use crate::{MvccError, check_put};
use proto_etcd::etcdserverpb::PutRequest;

#[test]
fn empty_store_is_at_revision_one() {
    let store = TestStore::new();
    assert_eq!(store.store.current_revision(), 1);
    assert_eq!(store.put("a", "1"), 2);
}

#[test]
fn overwriting_keeps_the_create_revision_and_counts_versions() {
    let store = TestStore::new();
    for (value, revision) in [("1", 2), ("2", 3), ("3", 4)] {
        assert_eq!(store.put("a", value), revision);
        let kv = store.get("a", 0).unwrap();
        assert_eq!(
            (kv.create_revision, kv.mod_revision, kv.version),
            (2, revision, revision - 1)
        );
    }
}

#[test]
fn key_that_was_deleted_starts_again_at_version_one() {
    let store = TestStore::new();
    store.put("a", "1");
    store.put("a", "2");
    store.delete("a", "");
    let created = store.put("a", "3");
    let kv = store.get("a", 0).unwrap();
    assert_eq!((kv.create_revision, kv.version), (created, 1));
}

#[test]
fn put_returns_the_previous_pair_only_on_request() {
    let store = TestStore::new();
    store.put("a", "1");
    for (prev_kv, expect) in [(false, None), (true, Some("2"))] {
        store.put("a", "2");
        let request = PutRequest {
            prev_kv,
            ..put_request("a", "3")
        };
        let response = store
            .write(|writer, _| writer.put(&request, &mut TestLeases::default()))
            .unwrap();
        assert_eq!(
            response.prev_kv.map(|kv| kv.value),
            expect.map(Into::into),
            "prev_kv {prev_kv}"
        );
    }
}

#[test]
fn ignore_value_keeps_the_value_and_makes_a_new_revision() {
    let store = TestStore::new();
    store.put("a", "kept");
    let request = PutRequest {
        ignore_value: true,
        ..put_request("a", "")
    };
    store
        .write(|writer, _| writer.put(&request, &mut TestLeases::default()))
        .unwrap();
    let kv = store.get("a", 0).unwrap();
    assert_eq!((kv.value.as_ref(), kv.version), (&b"kept"[..], 2));
}

#[test]
fn options_that_need_an_existing_key_are_rejected_without_one() {
    let store = TestStore::new();
    store.put("deleted", "1");
    store.delete("deleted", "");
    for key in ["absent", "deleted"] {
        for (ignore_value, ignore_lease) in [(true, false), (false, true)] {
            let request = PutRequest {
                ignore_value,
                ignore_lease,
                ..put_request(key, "")
            };
            let checked =
                store.write(|writer, _| writer.check_put(&request, &TestLeases::default()));
            assert!(
                matches!(checked, Err(MvccError::KeyNotFound)),
                "{key}, ignore_value {ignore_value}: {checked:?}"
            );
        }
    }
}

#[test]
fn unknown_lease_is_rejected() {
    let store = TestStore::new();
    for (lease, known) in [(0, true), (9, true), (10, false)] {
        let request = PutRequest {
            lease,
            ..put_request("a", "")
        };
        let checked = store.write(|writer, _| writer.check_put(&request, &TestLeases::default()));
        assert_eq!(checked.is_ok(), known, "lease {lease}: {checked:?}");
    }
}

#[test]
fn put_moves_the_key_to_the_lease_of_the_request() {
    let store = TestStore::new();
    let mut leases = TestLeases::default();
    for (lease, ignore_lease, expect) in [
        (1, false, 1),
        (2, false, 2),
        (0, true, 2),
        (0, false, 0),
        (3, false, 3),
    ] {
        let request = PutRequest {
            lease,
            ignore_lease,
            ..put_request("a", "")
        };
        store
            .write(|writer, _| writer.put(&request, &mut leases))
            .unwrap();
        assert_eq!(store.get("a", 0).unwrap().lease, expect);
        for id in 1..4 {
            let attached = leases.keys_of(id).len();
            assert_eq!(
                attached,
                usize::from(id == expect),
                "lease {id} of {expect}"
            );
        }
    }
}

#[test]
fn contradictory_put_is_rejected_before_it_is_proposed() {
    let cases: [(PutRequest, &str); 3] = [
        (put_request("", "v"), "key is not provided"),
        (
            PutRequest {
                ignore_value: true,
                ..put_request("a", "v")
            },
            "value is provided",
        ),
        (
            PutRequest {
                ignore_lease: true,
                lease: 1,
                ..put_request("a", "v")
            },
            "lease is provided",
        ),
    ];
    for (request, expect) in cases {
        assert_eq!(check_put(&request).unwrap_err().to_string(), expect);
    }
    assert!(check_put(&put_request("a", "")).is_ok());
}

#[test]
fn state_survives_a_restart() {
    let store = TestStore::new();
    store.put("a", "1");
    store.put("b", "2");
    store.delete("a", "");
    let store = store.reopen();
    assert_eq!(store.store.current_revision(), 4);
    assert!(store.get("a", 0).is_none());
    assert_eq!(store.get("a", 3).unwrap().value, "1");
    let kv = store.get("b", 0).unwrap();
    assert_eq!((kv.create_revision, kv.version), (3, 1));
}
