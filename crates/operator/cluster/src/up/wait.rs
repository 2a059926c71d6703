//! Waits, each with a timeout and a pointer to the log that explains a delay.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use client::{Client, ListParams, Request, WatchEvent};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeCondition, ServiceAccount};
use tokio::net::TcpStream;

use crate::connect::{connect_admin_at, local_api_url};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::namespaces::connect_inside;
use crate::node::ClusterNode;
use crate::node_dns::NODE_DNS;
use crate::node_state::{NodeState, lacks_pod_network};
use crate::plan::{Process, Ready};
use crate::process::{Record, choose_extra_grace, read_boot_time};
use crate::settings::Settings;
use crate::supervisor::is_ready;
use crate::supervisor_record;

const PAUSE: Duration = Duration::from_millis(30);
/// Time for the start of a process, once the processes that it replaces have ended.
const START_SECONDS: u64 = 60;

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

/// Waits until a process is ready.
pub async fn wait_for_process(process: &Process, layout: &Layout) -> Result<()> {
    let what = format!("the start of {}", process.name);
    let log = layout.log(&process.name);
    wait_until(&what, 60, &log, || is_ready(&process.ready)).await
}

/// Waits until all processes of a plan run with its programs and configurations. The supervisor
/// reads a plan after the command that wrote it has sent a signal, so those of an earlier plan may
/// run, accept connections and report a Ready node until then.
///
/// # Errors
/// A process that does not run within [`START_SECONDS`] after the one before it in the plan, with
/// the log to read.
pub async fn wait_for_replacements(processes: &[Process], layout: &Layout) -> Result<()> {
    for process in processes {
        wait_for_replacement(process, layout).await?;
    }
    Ok(())
}

/// Waits until the process of this entry runs. The one of an earlier plan may still accept
/// connections.
pub async fn wait_for_replacement(process: &Process, layout: &Layout) -> Result<()> {
    // The old process may still handle requests.
    let seconds = START_SECONDS + choose_extra_grace(&process.name).as_secs();
    wait_for_record(process, seconds, layout).await
}

/// Waits until the container runtime with this name runs as it is in the plan, if it is there. No
/// other process has been waited for.
pub async fn wait_for_runtime(name: &str, processes: &[Process], layout: &Layout) -> Result<()> {
    let Some(runtime) = processes.iter().find(|process| process.name == name) else {
        return Ok(());
    };
    // The supervisor starts nothing before all outdated processes of the plan have ended.
    let extra = processes.iter().map(|p| choose_extra_grace(&p.name)).max();
    let seconds = START_SECONDS + extra.unwrap_or_default().as_secs();
    wait_for_record(runtime, seconds, layout).await
}

/// Waits until the runtime listens.
pub async fn wait_for_socket(path: &Path, log: &Path) -> Result<()> {
    let target = Ready::Unix(path.to_owned());
    wait_until("the start of the container runtime", 60, log, || {
        is_ready(&target)
    })
    .await
}

async fn wait_for_record(process: &Process, seconds: u64, layout: &Layout) -> Result<()> {
    let what = format!("the start of {} as it is planned", process.name);
    let path = layout.record(&process.name);
    let load = || Record::load(&path).filter(|found| found.stamp == process.stamp);
    let log = layout.log(&process.name);
    let waited = wait_until(&what, seconds, &log, async || {
        load().is_some_and(|found| found.is_alive())
    });
    waited.await.map_err(|late| match load() {
        Some(_) => late,
        // The process was not started, so its own log does not have the reason.
        None => Error::Late {
            what,
            seconds,
            log: layout.log(supervisor_record::NAME),
        },
    })
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

/// Waits until the API server of this machine is ready, with its present certificate.
pub async fn wait_for_own_server(
    settings: &Settings,
    processes: &[Process],
    layout: &Layout,
) -> Result<()> {
    if let Some(server) = processes.iter().find(|p| p.name == "kube-apiserver") {
        wait_for_replacement(server, layout).await?;
    }
    let client = connect_admin_at(&local_api_url(settings), layout);
    wait_for_api_server(&client, layout).await
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

/// Waits until pods can be created in the namespace `default`: admission rejects a pod whose
/// service account does not exist, and the controller manager creates the account.
pub async fn wait_for_service_account(client: &Client, layout: &Layout) -> Result<()> {
    wait_until(
        "the creation of the service account of the namespace default",
        60,
        &layout.log("kube-controller-manager"),
        || async {
            let accounts = client.namespaced::<ServiceAccount>("default");
            accounts.get("default").await.is_ok()
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

/// Waits until the node's processes listen and the node is Ready, or lacks nothing but a pod
/// network that the user installs. Of a kubelet that this command
/// started, only its own report counts: the Node may still have that of the one before.
pub async fn wait_for_node(
    client: &Client,
    settings: &Settings,
    node: &ClusterNode,
    processes: &[Process],
    layout: &Layout,
    began: Began,
) -> Result<NodeState> {
    let kubelet = node.process_name("kubelet");
    for process in processes {
        if process.name == node.process_name(NODE_DNS) {
            // Its port is open before it has the names of the cluster.
            let log = layout.log(&process.name);
            let what = format!("the names of the cluster in {}", process.name);
            wait_until(&what, 60, &log, || has_names(&process.ready)).await?;
        }
        if process.name == kubelet || process.name == node.process_name("kube-proxy") {
            wait_for_process(process, layout).await?;
        }
    }
    let record = layout.record(&kubelet);
    let find_state = |node: &Node| {
        let record = Record::load(&record)?;
        let oldest = find_oldest_report(&record, began);
        if is_node_ready_since(node, oldest) {
            return Some(NodeState::Ready);
        }
        let lacks_network = settings.has_foreign_network() && lacks_network_since(node, oldest);
        lacks_network.then_some(NodeState::NoNetwork)
    };
    watch_until(
        client,
        &node.name,
        "readiness",
        &layout.log(&kubelet),
        find_state,
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

/// Returns the time of the oldest report that counts. If the kubelet of this record was started
/// after `began`, only its own reports do.
fn find_oldest_report(kubelet: &Record, began: Began) -> Timestamp {
    match kubelet.started() < began.boot {
        true => Timestamp::MIN,
        // Times in conditions have whole seconds.
        false => began.wall - SignedDuration::from_secs(1),
    }
}

/// Returns whether the node has the condition Ready by a report of the kubelet of this record, and
/// not of the one before it. A node whose pod network the user has not installed yet is not Ready
/// for that reason alone, and counts, too.
pub(crate) fn is_node_ready_of(settings: &Settings, node: &Node, kubelet: &Record) -> bool {
    let oldest = find_start(Began::now(), kubelet.started());
    is_node_ready_since(node, oldest)
        || (settings.has_foreign_network() && lacks_network_since(node, oldest))
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
    find_report(node, oldest).is_some_and(|condition| condition.status == "True")
}

/// Returns whether the node is not Ready for want of a pod network only, by a report of this time
/// or a later one.
fn lacks_network_since(node: &Node, oldest: Timestamp) -> bool {
    find_report(node, oldest).is_some_and(lacks_pod_network)
}

/// Returns the condition Ready of a node, if it is of this time or a later one.
fn find_report(node: &Node, oldest: Timestamp) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| {
        let reported = condition.last_heartbeat_time.as_ref();
        condition.type_ == "Ready" && reported.map_or(Timestamp::MIN, |time| time.0) >= oldest
    })
}

/// Waits until the cluster DNS has synced.
pub async fn wait_for_dns(settings: &Settings, layout: &Layout) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.ports.dns_health));
    let health = Ready::Tcp(address);
    wait_until(
        "readiness of cluster DNS",
        60,
        &layout.log("cluster-dns"),
        || has_names(&health),
    )
    .await
}

/// Returns whether a DNS server has the names of the cluster. `health` is the check of the port
/// with its health pages.
pub(crate) async fn has_names(health: &Ready) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let attempt = async {
        let mut stream = match health {
            Ready::Tcp(address) => TcpStream::connect(address).await.ok()?,
            Ready::TcpInside(namespaces, address) => {
                let stream = connect_inside(namespaces.clone(), *address).await?;
                stream.set_nonblocking(true).ok()?;
                TcpStream::from_std(stream).ok()?
            }
            Ready::Unix(_) | Ready::Started => return None,
        };
        let request = b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.ok()?;
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
    use k8s_openapi::api::core::v1::NodeStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::process::{read_boot_id, read_start_time};

    /// A server whose port is open may know no name, as one that can't read its credentials.
    #[tokio::test]
    async fn dns_server_has_names_when_its_page_says_so() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        for (status, expected) in [("200 OK", true), ("503 Service Unavailable", false)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let health = Ready::Tcp(listener.local_addr().unwrap());
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 10];
                stream.read_exact(&mut request).await.unwrap();
                assert_eq!(&request, b"GET /ready");
                let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(response.as_bytes()).await.unwrap();
            };
            let (found, ()) = tokio::join!(has_names(&health), serve);
            assert_eq!(found, expected, "{status}");
        }
        assert!(!has_names(&Ready::Started).await);
    }

    /// Writes the record of a process that has this stamp. This process stands for one that is
    /// alive.
    fn write_record(name: &str, stamp: &str, is_alive: bool, layout: &Layout) {
        let pid = i32::try_from(std::process::id()).unwrap();
        let start = read_start_time(pid).unwrap();
        let record = Record {
            pid,
            start: if is_alive { start } else { start + 1 },
            boot: read_boot_id(),
            stamp: stamp.to_owned(),
            restarts: 0,
        };
        let text = serde_json::to_string(&record).unwrap();
        std::fs::create_dir_all(layout.run()).unwrap();
        std::fs::write(layout.record(name), text).unwrap();
    }

    fn planned(name: &str) -> Process {
        Process {
            stamp: "new".to_owned(),
            ..Process::example(name, &["sh"])
        }
    }

    /// The supervisor may not have read the new plan yet.
    #[tokio::test(start_paused = true)]
    async fn processes_are_waited_for_until_the_last_one_has_its_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let plan = [planned("api-proxy"), planned("kubelet")];
        for process in &plan {
            write_record(&process.name, "old", true, &layout);
        }
        let replaced = std::cell::Cell::new(false);
        let supervise = async {
            for process in &plan {
                tokio::time::sleep(Duration::from_secs(40)).await;
                replaced.set(process.name == "kubelet");
                write_record(&process.name, "new", true, &layout);
            }
        };
        let wait = async {
            wait_for_replacements(&plan, &layout).await.unwrap();
            assert!(replaced.get(), "returned before the last one was replaced");
        };
        tokio::join!(wait, supervise);
        wait_for_replacements(&plan, &layout).await.unwrap();
    }

    /// That of the supervisor has the reason for which a process was not started.
    #[tokio::test(start_paused = true)]
    async fn process_that_does_not_start_is_named_with_the_log_that_has_the_reason() {
        for (stamp, log) in [("old", "supervisor.log"), ("new", "kubelet.log")] {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path(), false);
            write_record("kubelet", stamp, stamp == "old", &layout);
            let began = tokio::time::Instant::now();
            let waited = wait_for_replacements(&[planned("kubelet")], &layout).await;
            assert_eq!(began.elapsed().as_secs(), START_SECONDS, "{stamp}");
            let error = waited.unwrap_err().to_string();
            assert!(error.contains("kubelet") && error.contains(log), "{error}");
        }
    }

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
