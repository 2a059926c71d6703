//! Restores files that etcd created and compares every pair with etcd's response.

use crate::member::{Member, ends};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proto_etcd::etcdserverpb::RangeRequest;
use proto_etcd::etcdserverpb::kv_client::KvClient;
use std::path::{Path, PathBuf};

/// Returns the directory of files created by etcd, if it exists.
fn golden() -> Option<PathBuf> {
    let shared = std::env::var_os("IRONCLAD_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("golden/etcd");
    folder.is_dir().then_some(folder)
}

/// Key, value, create revision, mod revision, version, lease.
type Row = (Vec<u8>, Vec<u8>, i64, i64, i64, i64);

/// Returns etcd's response for the same content, or `None` if none was recorded.
fn recorded(path: &Path) -> Option<Vec<Row>> {
    let answer: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let rows = answer["kvs"].as_array()?.iter().map(|kv| {
        let bytes = |name: &str| {
            BASE64_STANDARD
                .decode(kv[name].as_str().unwrap_or_default())
                .unwrap()
        };
        let number = |name: &str| kv[name].as_i64().unwrap_or_default();
        let (create, modified) = (number("create_revision"), number("mod_revision"));
        (
            bytes("key"),
            bytes("value"),
            create,
            modified,
            number("version"),
            number("lease"),
        )
    });
    Some(rows.collect())
}

async fn restored(file: &Path) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let file = file.display().to_string();
    let cluster = [
        "--name=a",
        "--initial-cluster=a=http://127.0.0.1:1",
        "--initial-advertise-peer-urls=http://127.0.0.1:1",
    ];
    let mut words = vec![
        "snapshot".to_owned(),
        "restore".to_owned(),
        file,
        data.clone(),
        "--skip-hash-check".to_owned(),
    ];
    words.extend(cluster.map(str::to_owned));
    ends(&words).await.unwrap();
    let member = Member::start(&[&data, "--engine=auto"]).await;
    let mut client = KvClient::new(member.channel().await);
    let all = RangeRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        ..RangeRequest::default()
    };
    let found = client.range(all).await.unwrap().into_inner().kvs;
    member.stop().await;
    let row = |kv: proto_etcd::mvccpb::KeyValue| {
        (
            kv.key.to_vec(),
            kv.value.to_vec(),
            kv.create_revision,
            kv.mod_revision,
            kv.version,
            kv.lease,
        )
    };
    found.into_iter().map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_of_etcd_is_restored_completely() {
    let Some(folder) = golden() else {
        println!("skipped: no files made by etcd (set IRONCLAD_SHARED)");
        return;
    };
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "db") {
            let found = restored(&file).await;
            assert!(!found.is_empty(), "{}", file.display());
            if let Some(wanted) = recorded(&file.with_extension("json")) {
                assert_eq!(found, wanted, "{}", file.display());
                count += 1;
            }
        }
    }
    assert!(count > 0, "no file was there");
}
