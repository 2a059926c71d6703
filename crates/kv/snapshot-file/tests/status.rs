//! Status of snapshot files.
#![allow(clippy::unwrap_used)]

use kv_bbolt::Writer;
use kv_mvcc::Mark;
use kv_snapshot_file::{SnapshotFileError, file_status, import_snapshot};
use prost::Message;
use proto_etcd::mvccpb::KeyValue;
use std::io::Cursor;

fn file(records: &[(Mark, &'static str)]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new())).unwrap();
    writer.start_bucket("key").unwrap();
    for (mark, key) in records {
        writer
            .put(
                &mark.engine_key(),
                &KeyValue {
                    key: (*key).into(),
                    ..KeyValue::default()
                }
                .encode_to_vec(),
            )
            .unwrap();
    }
    writer.start_bucket("meta").unwrap();
    writer.put(b"storageVersion", b"3.6.0").unwrap();
    writer.finish().unwrap().0.into_inner()
}

#[test]
fn live_keys_are_counted_once() {
    let records = [
        (Mark::new(2, 0, false), "a"),
        (Mark::new(3, 0, false), "b"),
        (Mark::new(4, 0, false), "a"),
        (Mark::new(5, 0, true), "b"),
        (Mark::new(5, 1, false), "c"),
    ];
    let file = file(&records);
    let status = file_status(&&file[..]).unwrap();
    assert_eq!(
        (status.total_keys, status.revision, status.version.as_str()),
        (2, 5, "3.6.0")
    );
    assert_eq!(status.total_size, file.len() as u64);
}

#[test]
fn every_record_is_imported() {
    let file = file(&[(Mark::new(2, 0, false), "a"), (Mark::new(3, 0, true), "a")]);
    let mut count = 0;
    let contents = import_snapshot::<SnapshotFileError>(&&file[..], |_| {
        count += 1;
        Ok(())
    });
    assert_eq!((contents.unwrap().revision, count), (3, 2));
}
