//! Open connections after a change of the TLS files.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use proto_etcd::etcdserverpb as pb;
use testkit_etcd::FakeEtcd;
use tokio_util::sync::CancellationToken;

use super::connector::{Files, TlsMember, write_pair};
use crate::{Change, Feed, Store, WatchItem};

const INTERVAL: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_secs(20);

/// An etcd behind TLS with its client, which looks at its files for each connection.
struct Fixture {
    etcd: FakeEtcd,
    files: Files,
    member: TlsMember,
    store: Store,
    /// Certificate of the client.
    first: Vec<u8>,
}

impl Fixture {
    async fn start() -> Self {
        let (etcd, files) = (FakeEtcd::start().await, Files(tempfile::tempdir().unwrap()));
        let first = files.replace();
        let member = TlsMember::start(&etcd, files.server_config(b"h2")).await;
        let config = files.store_config(member.address);
        let tls = config.load_tls().unwrap().check_every(Duration::ZERO);
        let store = Store::with_tls(&config, tls).unwrap();
        Self {
            etcd,
            files,
            member,
            store,
            first,
        }
    }

    fn replace_client_certificate(&self) -> Vec<u8> {
        write_pair(
            &self.files.path("client.crt"),
            &self.files.path("client.key"),
        )
    }

    fn seen(&self) -> Vec<Vec<u8>> {
        self.member.seen.lock().clone()
    }

    async fn wait_until_seen(&self, expected: &[Vec<u8>]) {
        let wait = async {
            while self.seen() != expected {
                tokio::time::sleep(INTERVAL).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, wait).await;
        assert!(waited.is_ok(), "{} connections", self.seen().len());
    }
}

async fn next_item(feed: &mut Feed) -> WatchItem {
    let next = tokio::time::timeout(DEADLINE, feed.next());
    next.await.unwrap().unwrap()
}

/// Returns the keys of the next changes. The connection must not be reported as lost.
async fn next_keys(feed: &mut Feed) -> Vec<String> {
    loop {
        match next_item(feed).await {
            WatchItem::Changes(changes, _) => {
                let key = |change: &Change| match change {
                    Change::Put(value) | Change::Delete(value) => {
                        String::from_utf8_lossy(&value.key).into_owned()
                    }
                };
                return changes.iter().map(key).collect();
            }
            WatchItem::Progress(_) | WatchItem::Restored => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn calls_and_watches_go_over_to_a_connection_with_the_changed_certificate() {
    let fixture = Fixture::start().await;
    let (etcd, store) = (&fixture.etcd, &fixture.store);
    let mut feed = store.watch_prefix("/a/", etcd.revision(), CancellationToken::new());
    assert!(matches!(next_item(&mut feed).await, WatchItem::Restored));
    etcd.put("/a/1", b"v");
    assert_eq!(next_keys(&mut feed).await, ["/a/1"]);
    let follow = store.replace_connections_every(INTERVAL);
    let test = async {
        let second = fixture.replace_client_certificate();
        fixture
            .wait_until_seen(&[fixture.first.clone(), second.clone()])
            .await;
        // The watch is created again, and the former connection no longer carries anything.
        assert!(matches!(next_item(&mut feed).await, WatchItem::Restored));
        fixture.member.wait_until_open(1).await;
        etcd.put("/a/2", b"v");
        assert_eq!(next_keys(&mut feed).await, ["/a/2"]);
        let written = store.create("/a/3", Bytes::from_static(b"v"), None).await;
        assert!(written.is_ok(), "{written:?}");
        assert_eq!(next_keys(&mut feed).await, ["/a/3"]);
        assert_eq!(fixture.seen(), [fixture.first.clone(), second]);
    };
    tokio::select! {
        () = follow => panic!("the files are no longer followed"),
        () = test => {}
    }
}

/// A stream instead of a call, because it is certain to run until after the change.
#[tokio::test]
async fn stream_that_runs_during_the_change_goes_on_on_the_former_connection() {
    let fixture = Fixture::start().await;
    let (etcd, store) = (&fixture.etcd, &fixture.store);
    let create = pb::WatchCreateRequest {
        key: Bytes::from_static(b"/a/1"),
        ..Default::default()
    };
    let create = pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
    };
    let mut client = pb::watch_client::WatchClient::new(store.members.preferred().channel);
    let (requests, outgoing) = tokio::sync::mpsc::channel(1);
    requests.send(create).await.unwrap();
    let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let mut responses = client.watch(outgoing).await.unwrap().into_inner();
    assert!(responses.message().await.unwrap().unwrap().created);
    drop(client);
    let follow = store.replace_connections_every(INTERVAL);
    let test = async {
        let second = fixture.replace_client_certificate();
        fixture
            .wait_until_seen(&[fixture.first.clone(), second])
            .await;
        etcd.put("/a/1", b"v");
        let response = tokio::time::timeout(DEADLINE, responses.message()).await;
        let response = response.unwrap().unwrap().unwrap();
        assert_eq!(response.events.len(), 1);
        drop((requests, responses));
        fixture.member.wait_until_open(1).await;
        assert!(store.read_key("/a/1").await.unwrap().is_some());
        assert_eq!(fixture.seen().len(), 2);
    };
    tokio::select! {
        () = follow => panic!("the files are no longer followed"),
        () = test => {}
    }
}

#[tokio::test]
async fn connection_stays_while_the_changed_files_lead_to_none() {
    let fixture = Fixture::start().await;
    let (etcd, store) = (&fixture.etcd, &fixture.store);
    let mut feed = store.watch_prefix("/a/", etcd.revision(), CancellationToken::new());
    assert!(matches!(next_item(&mut feed).await, WatchItem::Restored));
    let follow = store.replace_connections_every(INTERVAL);
    let test = async {
        // The CA that the client reads is no longer that of the member.
        let ca = fs::read(fixture.files.path("ca.crt")).unwrap();
        let other = Files(tempfile::tempdir().unwrap());
        other.replace();
        fs::copy(other.path("ca.crt"), fixture.files.path("ca.crt")).unwrap();
        fixture.member.wait_until_refused(3).await;
        etcd.put("/a/1", b"v");
        assert_eq!(next_keys(&mut feed).await, ["/a/1"]);
        assert!(store.read_key("/a/1").await.unwrap().is_some());
        assert_eq!(fixture.seen(), std::slice::from_ref(&fixture.first));
        fs::write(fixture.files.path("ca.crt"), ca).unwrap();
        fixture
            .wait_until_seen(&[fixture.first.clone(), fixture.first.clone()])
            .await;
    };
    tokio::select! {
        () = follow => panic!("the files are no longer followed"),
        () = test => {}
    }
}
