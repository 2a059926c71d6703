//! Deletions.

use super::{TestLeases, TestStore, put_request};
use bytes::Bytes;
use proto_etcd::etcdserverpb::PutRequest;

#[test]
fn deletion_of_an_absent_key_makes_no_revision() {
    let store = TestStore::new();
    store.put("a", "1");
    for key in ["b", "a/"] {
        assert_eq!(store.delete(key, "").deleted, 0, "{key}");
    }
    assert_eq!(store.store.current_revision(), 2);
    assert_eq!(store.delete("a", "").deleted, 1);
    assert_eq!(store.delete("a", "").deleted, 0, "it is deleted already");
    assert_eq!(store.store.current_revision(), 3);
}

#[test]
fn range_deletion_includes_the_first_key_and_excludes_the_end() {
    for (key, end, deleted) in [
        ("b", "", "b"),
        ("b", "d", "bc"),
        ("b", "\0", "bcd"),
        ("\0", "\0", "abcd"),
        ("d", "b", ""),
    ] {
        let store = TestStore::new();
        for key in ["a", "b", "c", "d"] {
            store.put(key, "");
        }
        let response = store.delete(key, end);
        let keys: Vec<u8> = response
            .prev_kvs
            .iter()
            .flat_map(|kv| kv.key.to_vec())
            .collect();
        assert_eq!(
            String::from_utf8(keys).unwrap(),
            deleted,
            "{key:?} to {end:?}"
        );
        assert_eq!(
            response.deleted as usize,
            deleted.len(),
            "{key:?} to {end:?}"
        );
    }
}

#[test]
fn range_deletion_is_one_revision() {
    let store = TestStore::new();
    store.put("a", "1");
    store.put("b", "2");
    store.delete("a", "c");
    assert_eq!(store.store.current_revision(), 4);
    let (events, _) = store.store.read_history(4, 10).unwrap();
    let subs: Vec<_> = events[0].iter().map(|event| event.mark.sub()).collect();
    assert_eq!(subs, [0, 1]);
}

#[test]
fn deleted_key_is_readable_at_earlier_revisions() {
    let store = TestStore::new();
    let put = store.put("a", "1");
    store.delete("a", "");
    assert!(store.get("a", 0).is_none());
    assert_eq!(store.get("a", put).unwrap().value, "1");
}

#[test]
fn deletion_detaches_the_key_from_its_lease() {
    let store = TestStore::new();
    let mut leases = TestLeases::default();
    let request = PutRequest {
        lease: 1,
        ..put_request("a", "")
    };
    store.write(|writer, _| {
        writer.put(&request, &mut leases).unwrap();
        writer.delete_key(&Bytes::from_static(b"a"), &mut leases);
    });
    assert_eq!(leases.keys_of(1).len(), 0);
}
