use super::start_store;
use crate::compact::{Round, run_round};
use crate::{Store, StoreConfig};

#[tokio::test]
async fn round_compacts_to_the_revision_of_the_round_before() {
    let (etcd, store) = start_store().await;
    let first = run_round(&store, &Round::default()).await.unwrap();
    assert_eq!(etcd.count_requests("compact"), 0, "the first round records");
    let recorded = etcd.revision();
    etcd.put("/a", b"v");
    run_round(&store, &first).await.unwrap();
    assert_eq!(etcd.compacted_revision(), recorded);
    assert_eq!(store.compacted_revision(), recorded);
}

#[tokio::test]
async fn server_that_loses_a_round_does_not_compact() {
    let (etcd, winner) = start_store().await;
    let loser = Store::new(&StoreConfig {
        servers: vec![etcd.url().to_owned()],
        ..StoreConfig::default()
    })
    .unwrap();
    let first = run_round(&winner, &Round::default()).await.unwrap();
    let second = run_round(&winner, &first).await.unwrap();
    let compactions = etcd.count_requests("compact");
    let learned = run_round(&loser, &Round::default()).await.unwrap();
    assert_eq!(etcd.count_requests("compact"), compactions);
    assert_eq!(loser.compacted_revision(), winner.compacted_revision());
    // The loser takes part in the next round with the version that it read.
    run_round(&loser, &learned).await.unwrap();
    assert_eq!(etcd.count_requests("compact"), compactions + 1);
    let late = run_round(&winner, &second).await.unwrap();
    assert_eq!(late.version, 3, "now the other server is too late");
}

#[tokio::test]
async fn round_after_an_external_compaction_succeeds() {
    let (etcd, store) = start_store().await;
    let first = run_round(&store, &Round::default()).await.unwrap();
    etcd.put("/a", b"v");
    etcd.compact(etcd.revision());
    assert!(run_round(&store, &first).await.is_ok());
}
