//! Target: an untrusted snapshot file in etcd's format.

use kv_bbolt::Writer;
use kv_mvcc::Mark;
use kv_snapshot_file::SnapshotFileError;
use prost::Message;
use proto_etcd::mvccpb::KeyValue;
use std::io::Cursor;

/// Reads a file like restore and `snapshot status`, and decodes its records like the state machine.
pub fn snapshot(data: &[u8]) {
    let _ = kv_snapshot_file::file_status(&data);
    let _ = kv_snapshot_file::import_snapshot::<SnapshotFileError>(&data, |(_, key, value)| {
        let _ = (KeyValue::decode(value), Mark::from_key(&key));
        Ok(())
    });
}

/// Returns a valid file.
pub fn snapshot_corpus() -> Vec<Vec<u8>> {
    let write = || -> std::io::Result<Vec<u8>> {
        let mut writer = Writer::new(Cursor::new(Vec::new()))?;
        for bucket in [
            "alarm",
            "auth",
            "authRoles",
            "authUsers",
            "key",
            "lease",
            "meta",
        ] {
            writer.start_bucket(bucket)?;
            for number in 0..300_u64 {
                let kv = KeyValue {
                    key: number.to_string().into(),
                    version: 1,
                    ..KeyValue::default()
                };
                writer.put(&number.to_be_bytes(), &kv.encode_to_vec())?;
            }
        }
        Ok(writer.finish()?.0.into_inner())
    };
    write().into_iter().collect()
}
