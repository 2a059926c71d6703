//! Waits, each with a timeout and a pointer to the log that explains a delay.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use client::{Client, ListParams, Request, WatchEvent};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Node};

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::plan::{Process, Ready};
use crate::process::{Record, choose_extra_grace, read_boot_time};
use crate::settings::Settings;
use crate::supervisor::is_ready;

const PAUSE: Duration = Duration::from_millis(30);

/// Polls until the condition holds. Only used while components start and there is nothing to watch
/// yet.
pub(crate) async fn wait_until<F, Fut>(
    what: &str,
    seconds: u64,
    log: &Path,
    mut holds: F,
) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let attempts = async {
        while !holds().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let late = |_| Error::Late {
        what: what.to_owned(),
        seconds,
        log: log.to_owned(),
    };
    tokio::time::timeout(Duration::from_secs(seconds), attempts)
        .await
        .map_err(late)
}

/// Waits until the runtime listens.
pub async fn wait_for_socket(path: &Path, log: &Path) -> Result<()> {
    let target = Ready::Unix(path.to_owned());
    wait_until("the start of the container runtime", 60, log, || {
        is_ready(&target)
    })
    .await
}

/// Waits until a process is ready.
pub async fn wait_for_process(process: &Process, layout: &Layout) -> Result<()> {
    let what = format!("the start of {}", process.name);
    let log = layout.log(&process.name);
    wait_until(&what, 60, &log, || is_ready(&process.ready)).await
}

/// Waits until the process of this entry runs. The one of an earlier plan may still accept
/// connections.
pub async fn wait_for_replacement(process: &Process, layout: &Layout) -> Result<()> {
    let what = format!("the restart of {}", process.name);
    let (log, record) = (layout.log(&process.name), layout.record(&process.name));
    let is_current = |found: Record| found.stamp == process.stamp && found.is_alive();
    // The old process may still handle requests.
    let limit = 60 + choose_extra_grace(&process.name).as_secs();
    wait_until(&what, limit, &log, async || {
        Record::load(&record).is_some_and(is_current)
    })
    .await
}

/// Waits until the API server is ready.
pub async fn wait_for_api_server(client: &Client, layout: &Layout) -> Result<()> {
    wait_until(
        "the start of the API server",
        120,
        &layout.log("kube-apiserver"),
        || async {
            let mut request = Request::get("/readyz");
            // A server that accepts and does not answer must not use up the whole wait.
            request.timeout = Some(Duration::from_secs(5));
            client.bytes(request).await.is_ok()
        },
    )
    .await
}

/// Waits until the namespaces of the addons exist.
pub async fn wait_for_system(client: &Client, _settings: &Settings, layout: &Layout) -> Result<()> {
    wait_until(
        "the creation of kube-system and kube-public",
        60,
        &layout.log("kube-apiserver"),
        || async {
            let namespaces = client.api::<Namespace>();
            namespaces.get("kube-system").await.is_ok()
                && namespaces.get("kube-public").await.is_ok()
        },
    )
    .await
}

/// The time at which a command began.
#[derive(Clone, Copy)]
pub struct Began {
    wall: Timestamp,
    /// Time since boot.
    boot: Duration,
}

impl Began {
    /// Returns the present.
    pub fn now() -> Self {
        Self {
            wall: Timestamp::now(),
            boot: read_boot_time(),
        }
    }
}

/// Waits until the node's processes listen and the node is Ready. Of a kubelet that this command
/// started, only its own report counts: the Node may still have that of the one before.
pub async fn wait_for_node(
    client: &Client,
    node: &ClusterNode,
    processes: &[Process],
    layout: &Layout,
    began: Began,
) -> Result<()> {
    let kubelet = node.process_name("kubelet");
    for process in processes {
        if process.name == kubelet || process.name == node.process_name("kube-proxy") {
            wait_for_process(process, layout).await?;
        }
    }
    let record = layout.record(&kubelet);
    let is_ready = |node: &Node| {
        let record = Record::load(&record)?;
        is_node_ready_by(node, &record, began).then_some(())
    };
    watch_until(
        client,
        &node.name,
        "readiness",
        &layout.log(&kubelet),
        is_ready,
    )
    .await
}

/// Waits until `find` returns a value for the node: a watch, from the state of a list.
pub async fn watch_until<T>(
    client: &Client,
    name: &str,
    what: &str,
    log: &Path,
    find: impl Fn(&Node) -> Option<T>,
) -> Result<T> {
    const SECONDS: u64 = 180;
    let waiting = async {
        loop {
            match watch_node(client, name, &find).await {
                Ok(found) => return found,
                Err(error) => tracing::debug!(%error, "watching the node again"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let late = |_| Error::Late {
        what: format!("{what} of node {name}"),
        seconds: SECONDS,
        log: log.to_owned(),
    };
    tokio::time::timeout(Duration::from_secs(SECONDS), waiting)
        .await
        .map_err(late)
}

/// Returns the first value that `find` returns for the node; an earlier end of the watch is an
/// error.
async fn watch_node<T>(
    client: &Client,
    name: &str,
    find: impl Fn(&Node) -> Option<T>,
) -> client::Result<T> {
    let api = client.api::<Node>();
    let which = ListParams::new().with_fields(format!("metadata.name={name}"));
    let list = api.list(&which).await?;
    // A watch shows changes only.
    if let Some(found) = list.items.iter().find_map(&find) {
        return Ok(found);
    }
    let version = list.metadata.resource_version.unwrap_or_default();
    // After a minute the server ends the watch, and the caller lists again.
    let mut watch = api.watch(&which, &version, 60).await?;
    while let Some(event) = watch.next().await {
        if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event?
            && let Some(found) = find(&node)
        {
            return Ok(found);
        }
    }
    Err(client::Error::Config("the watch ended".into()))
}

/// Returns whether the node has the condition Ready.
pub fn is_node_ready(node: &Node) -> bool {
    is_node_ready_since(node, Timestamp::MIN)
}

/// Returns whether the node has the condition Ready. If the kubelet of this record was started
/// after `began`, only its own report counts.
pub(crate) fn is_node_ready_by(node: &Node, kubelet: &Record, began: Began) -> bool {
    // Times in conditions have whole seconds.
    let since = began.wall - SignedDuration::from_secs(1);
    let oldest = match kubelet.started() < began.boot {
        true => Timestamp::MIN,
        false => since,
    };
    is_node_ready_since(node, oldest)
}

/// Returns whether the node has the condition Ready by a report of the kubelet of this record, and
/// not of the one before it.
pub(crate) fn is_node_ready_of(node: &Node, kubelet: &Record) -> bool {
    let present = Began::now();
    is_node_ready_since(node, find_start(present, kubelet.started()))
}

/// Returns the time of a start, in whole seconds, as times in conditions are.
fn find_start(present: Began, started: Duration) -> Timestamp {
    let age = present.boot.saturating_sub(started);
    let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::ZERO);
    let start = present.wall.saturating_sub(age).unwrap_or(Timestamp::MIN);
    Timestamp::from_second(start.as_second()).unwrap_or(Timestamp::MIN)
}

/// Returns whether the node has the condition Ready by a report of this time or a later one.
fn is_node_ready_since(node: &Node, oldest: Timestamp) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| {
        all.iter().any(|c| {
            let reported = c.last_heartbeat_time.as_ref();
            c.type_ == "Ready"
                && c.status == "True"
                && reported.map_or(Timestamp::MIN, |time| time.0) >= oldest
        })
    })
}

/// Waits until the cluster DNS has synced.
pub async fn wait_for_dns(settings: &Settings, layout: &Layout) -> Result<()> {
    let port = settings.ports.dns_health;
    wait_until(
        "readiness of cluster DNS",
        60,
        &layout.log("cluster-dns"),
        || http_ok(port, "/ready"),
    )
    .await
}

/// Returns whether a local HTTP endpoint responds with 200.
pub(crate) async fn http_ok(port: u16, path: &str) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let attempt = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        // "HTTP/1.1 200": the rest of the response is not needed.
        let mut head = [0u8; 12];
        stream.read_exact(&mut head).await.ok()?;
        Some(head.ends_with(b" 200"))
    };
    tokio::time::timeout(Duration::from_secs(2), attempt)
        .await
        .ok()
        .flatten()
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    /// A command that is repeated begins after the start of a kubelet that an earlier one started.
    #[test]
    fn start_of_a_process_does_not_depend_on_the_command() {
        for (wall, boot, started, expected) in [
            (1_000_900, 50_000, 40_000, 990),
            (1_000_200, 50_000, 40_500, 990),
            (1_000_000, 50_000, 50_000, 1_000),
            // A clock that is read a moment earlier.
            (1_000_000, 50_000, 50_010, 1_000),
        ] {
            let present = Began {
                wall: Timestamp::from_millisecond(wall).unwrap(),
                boot: Duration::from_millis(boot),
            };
            let found = find_start(present, Duration::from_millis(started));
            assert_eq!(found.as_second(), expected, "{wall} {boot} {started}");
        }
    }

    #[test]
    fn report_of_an_earlier_kubelet_does_not_count() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let node = |status: &str, heartbeat: Option<i64>| Node {
            status: Some(NodeStatus {
                conditions: Some(vec![NodeCondition {
                    type_: "Ready".into(),
                    status: status.into(),
                    last_heartbeat_time: heartbeat.map(|second| Time(at(second))),
                    ..NodeCondition::default()
                }]),
                ..NodeStatus::default()
            }),
            ..Node::default()
        };
        for (node, oldest, expect) in [
            (node("True", Some(100)), at(100), true),
            (node("True", Some(99)), at(100), false),
            (node("True", None), at(100), false),
            (node("False", Some(100)), at(100), false),
            (node("Unknown", Some(100)), Timestamp::MIN, false),
            (node("True", None), Timestamp::MIN, true),
            (Node::default(), Timestamp::MIN, false),
        ] {
            assert_eq!(is_node_ready_since(&node, oldest), expect, "{node:?}");
        }
    }
}
