//! A snapshot file in etcd's layout, as a stranger may hand it over.

use kv_bolt::{BoltError, File, Writer};
use prost::Message;
use proto_etcd::mvccpb::KeyValue;
use std::io::Cursor;

/// Reads every bucket of a file as a restore does.
pub fn snapshot(data: &[u8]) {
    let Ok(file) = File::open(&data) else { return };
    let Ok(buckets) = file.buckets() else { return };
    for bucket in buckets {
        let read: Result<(), BoltError> = file.each(&bucket, &mut |key, value| {
            // What is inside is decoded too.
            let _ = (KeyValue::decode(value), kv_mvcc::Mark::from_key(key), kv_machine::lease_row(value));
            let _ = kv_machine::auth_row(&bytes::Bytes::copy_from_slice(value));
            Ok(())
        });
        let _ = read;
    }
}

/// A valid file.
pub fn snapshot_corpus() -> Vec<Vec<u8>> {
    let write = || -> std::io::Result<Vec<u8>> {
        let mut writer = Writer::new(Cursor::new(Vec::new()))?;
        for bucket in ["alarm", "key", "lease", "meta"] {
            writer.bucket(bucket)?;
            for number in 0..300_u64 {
                let kv = KeyValue { key: number.to_string().into(), version: 1, ..KeyValue::default() };
                writer.put(&number.to_be_bytes(), &kv.encode_to_vec())?;
            }
        }
        Ok(writer.finish()?.0.into_inner())
    };
    write().into_iter().collect()
}
