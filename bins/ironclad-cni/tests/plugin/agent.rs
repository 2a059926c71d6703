//! The agent as a process, with an API server that has nodes only.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use net_node::Backend;
use serde_json::{Value, json};

use crate::nodes::Cluster;

pub const DEADLINE: Duration = Duration::from_secs(60);

/// Nodes that are listed, and the watches that get events of changes.
#[derive(Clone, Default)]
pub struct Server {
    pub nodes: Arc<Mutex<Vec<Value>>>,
    pub watches: Arc<Mutex<Vec<mpsc::Sender<Value>>>>,
    version: Arc<Mutex<u64>>,
    /// Annotations that were written, with the path of the object.
    pub patches: Arc<Mutex<Vec<(String, Value)>>>,
    /// Writes get no answer until it is false.
    pub holds_patches: Arc<AtomicBool>,
}

impl Server {
    /// Serves in a namespace; returns the port.
    pub fn start(&self, cluster: &Cluster, place: &str) -> u16 {
        let (ready, is_ready) = mpsc::channel();
        let server = self.clone();
        cluster.world.run_inside(place, move || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            ready.send(listener.local_addr().unwrap().port()).unwrap();
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                std::thread::spawn(move || server.answer(stream));
            }
        });
        is_ready.recv().unwrap()
    }

    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let (request, body) = read_request(&mut reader)?;
        if let Some(rest) = request.strip_prefix("PATCH ") {
            let path = rest.split([' ', '?']).next()?;
            return self.annotate(stream, path, &body);
        }
        if !request.contains("watch=") {
            let version = self.version.lock().unwrap().to_string();
            let items = self.nodes.lock().unwrap().clone();
            let list = json!({
                "kind": "NodeList", "apiVersion": "v1",
                "metadata": { "resourceVersion": version }, "items": items,
            })
            .to_string();
            let length = list.len();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
            write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{list}").ok()?;
            return Some(());
        }
        let (sender, events) = mpsc::channel();
        self.watches.lock().unwrap().push(sender);
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked";
        write!(stream, "{head}\r\n\r\n").ok()?;
        for event in events {
            let line = format!("{event}\n");
            write!(stream, "{:x}\r\n{line}\r\n", line.len()).ok()?;
        }
        Some(())
    }

    /// Adds the annotations of a merge patch to a node.
    fn annotate(&self, mut stream: TcpStream, path: &str, body: &[u8]) -> Option<()> {
        while self.holds_patches.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let patch: Value = serde_json::from_slice(body).ok()?;
        let annotations = patch["metadata"]["annotations"].clone();
        let name = path.rsplit('/').next()?;
        let nodes = self.nodes.lock().unwrap().clone();
        let mut node = nodes
            .into_iter()
            .find(|node| node["metadata"]["name"] == name)?;
        node["metadata"]["annotations"] = annotations.clone();
        let recorded = (path.to_owned(), annotations);
        self.patches.lock().unwrap().push(recorded);
        self.change("MODIFIED", node.clone());
        let (text, head) = (node.to_string(), "HTTP/1.1 200 OK\r\nConnection: close");
        let length = text.len();
        let kind = "Content-Type: application/json";
        write!(
            stream,
            "{head}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{text}"
        )
        .ok()
    }

    pub fn change(&self, kind: &str, mut node: Value) {
        let mut version = self.version.lock().unwrap();
        *version += 1;
        node["metadata"]["resourceVersion"] = json!(version.to_string());
        let name = node["metadata"]["name"].clone();
        let mut nodes = self.nodes.lock().unwrap();
        nodes.retain(|other| other["metadata"]["name"] != name);
        if kind != "DELETED" {
            nodes.push(node.clone());
        }
        let event = json!({ "type": kind, "object": node });
        let watches = self.watches.lock().unwrap();
        watches
            .iter()
            .for_each(|watch| drop(watch.send(event.clone())));
    }
}

/// Returns the first line and the body of a request.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut lines = reader.by_ref().lines();
    let request = lines.next()?.ok()?;
    let mut length = 0;
    loop {
        let line = lines.next()?.ok()?.to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((request, body))
}

/// Dropping it kills the process.
pub struct Agent(Child);

impl Agent {
    fn start(cluster: &Cluster, node: &str, port: u16) -> Self {
        Self::start_with(cluster, node, port, &[])
    }

    /// Starts the agent with further arguments.
    pub fn start_with(cluster: &Cluster, node: &str, port: u16, arguments: &[&str]) -> Self {
        Self::start_inside(cluster, node, port, arguments, &[])
    }

    /// Starts the agent without the program `nft`.
    pub fn start_without_nft(cluster: &Cluster, node: &str, arguments: &[&str]) -> Self {
        Self::start_inside(cluster, node, 1, arguments, &["env", "PATH=/nonexistent"])
    }

    /// Waits until the agent has ended; returns whether it failed.
    pub fn wait_for_failure(&mut self) -> bool {
        !self.0.wait().unwrap().success()
    }

    fn start_inside(
        cluster: &Cluster,
        node: &str,
        port: u16,
        arguments: &[&str],
        prefix: &[&str],
    ) -> Self {
        let settings = cluster.settings(node);
        let kubeconfig = cluster.world.data.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": {} }],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", &cluster.world.name(node)])
            .args(prefix)
            .args([
                env!("CARGO_BIN_EXE_ironclad-cni"),
                "--cluster-cidr=10.244.0.0/16,fd00::/48",
            ])
            .arg(format!("--hostname-override={node}"))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--cni-conf-dir={}", settings.conf_dir.display()))
            .arg(format!("--data-dir={}", settings.data_dir.display()))
            .args(arguments)
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn wait_for(cluster: &Cluster, subject: &str, expect: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let entries = cluster.list_entries("n1");
        if expect(&entries) {
            return entries;
        }
        assert!(began.elapsed() < DEADLINE, "{subject}\n{entries}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn agent_follows_nodes_and_repairs_what_others_change() {
    let Some(cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    let server = Server::default();
    let nodes: Vec<Value> = cluster
        .nodes
        .iter()
        .map(|node| serde_json::to_value(node).unwrap())
        .collect();
    for node in &nodes[..2] {
        server.change("ADDED", node.clone());
    }
    let port = server.start(&cluster, "n1");
    let agent = Agent::start(&cluster, "n1", port);
    let direct = "10.244.2.0/24 via 192.0.1.2";
    let tunnel = "10.244.3.0/24 via 10.244.3.1 dev vxlan-pods";
    let is_whole = |entries: &str| {
        entries.contains(direct)
            && entries.contains(tunnel)
            && entries.contains("192.0.2.3")
            && entries.contains("table ip6 pods-cni0")
    };
    wait_for(&cluster, "first sync", |entries| {
        entries.contains(direct) && entries.contains("table ip pods-cni0")
    });
    server.change("ADDED", nodes[2].clone());
    let whole = wait_for(&cluster, "a new node", is_whole);
    let exec = |command: &str| cluster.world.exec("n1", command).unwrap();
    for command in [
        "ip route del 10.244.2.0/24",
        "ip link del vxlan-pods",
        "nft delete table ip6 pods-cni0",
        "ip route flush proto 120",
    ] {
        exec(command);
        wait_for(&cluster, command, is_whole);
    }
    // A killed agent leaves everything as it is, and the next one changes nothing.
    drop(agent);
    assert!(is_whole(&cluster.list_entries("n1")));
    server.watches.lock().unwrap().clear();
    let _agent = Agent::start(&cluster, "n1", port);
    let began = Instant::now();
    while server.watches.lock().unwrap().is_empty() {
        assert!(
            began.elapsed() < DEADLINE,
            "the second agent does not watch"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(is_whole(&cluster.list_entries("n1")), "{whole}");
    // Programs such as firewalls remove the rules of all others. The first repair of an agent is
    // at once; the next one would wait for 20 times its duration.
    let mapping = json!([{ "hostPort": 8080, "containerPort": 80 }]);
    cluster.add_pod_with("n1", "p2", mapping);
    exec("nft flush ruleset");
    wait_for(&cluster, "host ports", |entries| {
        is_whole(entries) && entries.contains("table ip hostports-cni0")
    });
    for node in [&nodes[1], &nodes[2]] {
        server.change("DELETED", node.clone());
    }
    wait_for(&cluster, "deleted nodes", |entries| {
        !entries.contains("via")
    });
    assert!(cluster.add_pod("n1", "p1")["ips"].is_array());
}
