//! Members for tests.

use base_task::CancellationToken;
use clap::Parser;
use kv_service::Flags;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

/// Returns a port that is free at the moment, and that the kernel gives to no other socket: it
/// takes the ports of connections and of listeners without a port from 32768 on.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    // Programs with tests that run at the same time begin at different ports.
    let first = 20_000 + u16::try_from(std::process::id() % 100).unwrap() * 100;
    let next = || first + TAKEN.fetch_add(1, Ordering::Relaxed) % 2_000;
    let mut ports = std::iter::repeat_with(next);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(is_free).unwrap()
}

/// Runs a store with these flags until it exits.
pub async fn ends(flags: &[String]) -> anyhow::Result<()> {
    let words = std::iter::once("kvstore".to_owned()).chain(flags.iter().cloned());
    let run = kv_service::run(Flags::try_parse_from(words)?, CancellationToken::new());
    tokio::time::timeout(Duration::from_secs(30), run)
        .await
        .expect("it ends by itself")
}

/// Returns the error, with its causes, with which a store rejects these flags.
pub async fn refusal(more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let flags = flags(&folder, "a", free_port(), more);
    format!("{:#}", ends(&flags).await.expect_err("it must not start"))
}

fn peer_scheme(more: &[&str]) -> &'static str {
    if more.iter().any(|flag| flag.starts_with("--peer-cert-file")) {
        "https"
    } else {
        "http"
    }
}

fn flags(folder: &TempDir, name: &str, peer: u16, more: &[&str]) -> Vec<String> {
    let path = folder.path().display();
    let has = |flag: &str| more.iter().any(|given| given.starts_with(flag));
    let defaults = [
        format!("--name={name}"),
        format!("--data-dir={path}/data"),
        "--listen-client-urls=http://127.0.0.1:0".to_owned(),
        format!(
            "--listen-peer-urls={}://127.0.0.1:{peer}",
            peer_scheme(more)
        ),
        format!("--port-file={path}/port"),
        "--allow-insecure-peers".to_owned(),
        "--bcrypt-cost=4".to_owned(),
        "--engine=memory".to_owned(),
    ];
    let kept = defaults
        .into_iter()
        .filter(|flag| !has(flag.split('=').next().unwrap_or_default()));
    kept.chain(more.iter().map(|&flag| flag.to_owned()))
        .collect()
}

/// A running member.
pub struct Member {
    /// Client port.
    pub port: u16,
    /// Peer port.
    pub peer: u16,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
    /// Temporary directory; the data are below `data`.
    pub folder: TempDir,
}

impl Member {
    /// Starts a single-member cluster.
    pub async fn start(more: &[&str]) -> Member {
        Member::begin("a", free_port(), more).ready().await
    }

    /// Starts a cluster of three members.
    pub async fn three(more: &[&str]) -> Vec<Member> {
        Member::cluster(&["a", "b", "c"], more).await
    }

    /// Starts a cluster of members with these names.
    pub async fn cluster(names: &[&str], more: &[&str]) -> Vec<Member> {
        let named: Vec<(&str, u16)> = names.iter().map(|&name| (name, free_port())).collect();
        let scheme = peer_scheme(more);
        let url = |(name, port): &(&str, u16)| format!("{name}={scheme}://127.0.0.1:{port}");
        let urls: Vec<String> = named.iter().map(url).collect();
        let cluster = urls.join(",");
        let cluster = format!("--initial-cluster={cluster}");
        let more: Vec<&str> = more.iter().copied().chain([cluster.as_str()]).collect();
        let begun = named
            .into_iter()
            .map(|(name, port)| Member::begin(name, port, &more));
        futures::future::join_all(begun.map(Starting::ready).collect::<Vec<_>>()).await
    }

    /// Starts a member that was added to the cluster of these members.
    pub async fn join(name: &str, peer: u16, initial_cluster: &str) -> Member {
        let cluster = format!("--initial-cluster={initial_cluster}");
        Member::begin(name, peer, &["--initial-cluster-state=existing", &cluster])
            .ready()
            .await
    }

    fn begin(name: &str, peer: u16, more: &[&str]) -> Starting {
        let folder = tempfile::tempdir().unwrap();
        let words = std::iter::once("kvstore".to_owned()).chain(flags(&folder, name, peer, more));
        let stop = CancellationToken::new();
        let task = tokio::spawn(kv_service::run(
            Flags::try_parse_from(words).unwrap(),
            stop.clone(),
        ));
        Starting {
            folder,
            peer,
            stop,
            task,
        }
    }

    /// Connects without TLS.
    pub async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://127.0.0.1:{}", self.port))
            .unwrap()
            .connect()
            .await
            .unwrap()
    }

    /// Waits until it ends by itself, and returns why.
    pub async fn end(self) -> String {
        let ended = tokio::time::timeout(Duration::from_secs(30), self.task)
            .await
            .expect("it ends by itself");
        format!("{:#}", ended.unwrap().expect_err("it ends with a reason"))
    }

    /// Stops it.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

struct Starting {
    folder: TempDir,
    peer: u16,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Starting {
    async fn ready(mut self) -> Member {
        let file = self.folder.path().join("port");
        let written = async {
            loop {
                if let Some(port) = std::fs::read_to_string(&file)
                    .ok()
                    .and_then(|text| text.trim().parse().ok())
                {
                    return port;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let port = tokio::select! {
            ended = &mut self.task => panic!("the member did not start: {ended:?}"),
            port = tokio::time::timeout(Duration::from_secs(30), written) => port.expect("the member serves"),
        };
        Member {
            port,
            peer: self.peer,
            stop: self.stop,
            task: self.task,
            folder: self.folder,
        }
    }
}
