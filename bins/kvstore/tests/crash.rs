//! kill -9 in the middle of a write load: everything that was acknowledged is there, at the
//! revision it was given.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::{PutRequest, RangeRequest};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

const ROUNDS: usize = 4;
const WRITERS: usize = 16;
/// Keys that are written at least in a round before the server is killed.
const WRITES: usize = 100;
const DEADLINE: Duration = Duration::from_secs(120);

/// A server that is killed when it goes out of scope.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(folder: &Path) -> Server {
        let port_file = folder.join("port");
        let _ = std::fs::remove_file(&port_file);
        let child = Command::new(env!("CARGO_BIN_EXE_kvstore"))
            .arg(format!("--data-dir={}", folder.join("data").display()))
            .arg("--listen-client-urls=http://127.0.0.1:0")
            .arg("--listen-peer-urls=http://127.0.0.1:0")
            .arg("--snapshot-count=200")
            .arg(format!("--port-file={}", port_file.display()))
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let begin = Instant::now();
        let port = loop {
            if let Ok(port) = std::fs::read_to_string(&port_file) {
                break port.trim().to_owned();
            }
            assert!(begin.elapsed() < DEADLINE, "the server does not get ready");
            std::thread::sleep(Duration::from_millis(10));
        };
        Server {
            child,
            url: format!("http://127.0.0.1:{port}"),
        }
    }

    async fn client(&self) -> KvClient<Channel> {
        let begin = Instant::now();
        loop {
            match Endpoint::from_shared(self.url.clone())
                .unwrap()
                .connect()
                .await
                .map(KvClient::new)
            {
                Ok(client) => return client,
                Err(e) => assert!(begin.elapsed() < DEADLINE, "{e}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Promised = Arc<Mutex<BTreeMap<String, i64>>>;

/// Puts one key after the other until the server has exited.
async fn write(mut client: KvClient<Channel>, prefix: String, promised: Promised) {
    for number in 0.. {
        let key = format!("{prefix}/{number:06}");
        let request = PutRequest {
            key: key.clone().into(),
            value: format!("value of {key}").into(),
            ..PutRequest::default()
        };
        let Ok(answer) = client.put(request).await else {
            return;
        };
        let revision = answer.into_inner().header.unwrap().revision;
        promised.lock().unwrap().insert(key, revision);
    }
}

async fn verify(server: &Server, promised: &BTreeMap<String, i64>) {
    let request = RangeRequest {
        key: "round".into(),
        range_end: "rounf".into(),
        ..RangeRequest::default()
    };
    let mut client = server.client().await.max_decoding_message_size(usize::MAX);
    let answer = client.range(request).await.unwrap().into_inner();
    let found: BTreeMap<String, i64> = answer
        .kvs
        .iter()
        .map(|kv| {
            let key = String::from_utf8(kv.key.to_vec()).unwrap();
            assert_eq!(
                kv.value,
                format!("value of {key}"),
                "a value that nobody wrote"
            );
            (key, kv.mod_revision)
        })
        .collect();
    for (key, revision) in promised {
        assert_eq!(found.get(key), Some(revision), "{key} was acknowledged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kill_9() {
    let test = async {
        let folder = tempfile::tempdir().unwrap();
        let promised = Promised::default();
        let mut server = Server::start(folder.path());
        for round in 0..ROUNDS {
            let writers: Vec<_> = {
                let client = server.client().await;
                (0..WRITERS)
                    .map(|writer| {
                        let prefix = format!("round-{round}/{writer:02}");
                        tokio::spawn(write(client.clone(), prefix, promised.clone()))
                    })
                    .collect()
            };
            let before = promised.lock().unwrap().len();
            tokio::time::sleep(Duration::from_millis(700)).await;
            while promised.lock().unwrap().len() < before + WRITES {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            drop(server);
            for writer in writers {
                writer.await.unwrap();
            }
            server = Server::start(folder.path());
            let promised = promised.lock().unwrap().clone();
            verify(&server, &promised).await;
        }
    };
    tokio::time::timeout(DEADLINE, test).await.expect("in time");
}
