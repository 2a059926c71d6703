//! A node and its pods in network namespaces, and the plugin run as a container runtime does.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

/// Deadline of connections that should work, and time after which others count as dropped.
const DEADLINE: Duration = Duration::from_secs(30);
const DROPPED: Duration = Duration::from_millis(400);

/// Runs a script of the shell; returns its output, or the script with its standard error.
pub fn run_script(script: &str) -> Result<String, String> {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{script}: {errors}")),
    }
}

/// A node with namespaces for pods and for a host outside. Dropping it removes them.
pub struct World {
    tag: String,
    places: Vec<String>,
    pub data: tempfile::TempDir,
}

impl World {
    /// Makes namespaces; returns None, with the reason printed, if the caller is not root.
    pub fn create(places: &[&str]) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: the caller is not root");
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut world = Self {
            tag: format!("iccni{}-{count}", std::process::id()),
            places: Vec::new(),
            data: tempfile::tempdir().unwrap(),
        };
        for place in places {
            let name = world.name(place);
            run_script(&format!("ip netns add {name}; ip -n {name} link set lo up")).unwrap();
            world.places.push((*place).to_owned());
        }
        Some(world)
    }

    /// Makes a node, pods and a host outside, as [`World::create`].
    pub fn start(pods: &[&str]) -> Option<Self> {
        let world = Self::create(&[&["node", "outside"], pods].concat())?;
        let (node, outside) = (world.name("node"), world.name("outside"));
        run_script(&format!(
            "ip -n {node} link add up0 mtu 1400 type veth peer name eth0 netns {outside}
             ip -n {node} addr add 192.0.2.1/24 dev up0
             ip -n {node} addr add 2001:db8::1/64 dev up0 nodad
             ip -n {node} link set up0 up
             ip -n {outside} addr add 192.0.2.2/24 dev eth0
             ip -n {outside} addr add 2001:db8::2/64 dev eth0 nodad
             ip -n {outside} link set eth0 up
             ip -n {node} route add default via 192.0.2.2"
        ))
        .unwrap();
        Some(world)
    }

    pub fn name(&self, place: &str) -> String {
        format!("{}-{place}", self.tag)
    }

    pub fn namespace(&self, place: &str) -> String {
        format!("/run/netns/{}", self.name(place))
    }

    /// Runs a command in a namespace; returns its output.
    pub fn exec(&self, place: &str, command: &str) -> Result<String, String> {
        run_script(&format!("ip netns exec {} {command}", self.name(place)))
    }

    pub fn config(&self) -> Value {
        json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "ironclad-cni",
            "ipam": {
                "type": "host-local", "dataDir": self.data.path(),
                "ranges": [[{ "subnet": "10.244.0.0/24" }], [{ "subnet": "fd00::/64" }]],
            },
        })
    }

    /// Starts an operation on the node, with its configuration written to it.
    pub fn spawn(&self, program: &str, call: &Call<'_>, config: &Value) -> Child {
        self.spawn_with(program, call, config, &[])
    }

    /// Starts an operation with further variables of its environment.
    pub fn spawn_with(
        &self,
        program: &str,
        call: &Call<'_>,
        config: &Value,
        variables: &[(&str, &str)],
    ) -> Child {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name(call.node), program])
            .env("CNI_COMMAND", call.command)
            .env("CNI_CONTAINERID", call.container)
            .env("CNI_NETNS", self.namespace(call.place))
            .env("CNI_IFNAME", call.interface)
            .env("CNI_PATH", "/usr/lib/cni")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(config.to_string().as_bytes()).unwrap();
        child
    }

    /// Runs an operation; returns its result or its error.
    pub fn call(&self, call: &Call<'_>, config: &Value) -> Result<Value, Value> {
        finish(self.spawn(env!("CARGO_BIN_EXE_ironclad-cni"), call, config))
    }

    pub fn add(&self, pod: &str) -> Value {
        self.call(&Call::new("ADD", pod), &self.config()).unwrap()
    }

    pub fn delete(&self, pod: &str) {
        self.call(&Call::new("DEL", pod), &self.config()).unwrap();
    }

    /// Returns what the plugin has made on the node: devices, records and rules.
    pub fn list_made(&self) -> Vec<String> {
        let devices = self.exec("node", "ip -o link show").unwrap();
        let mut made: Vec<_> = devices
            .lines()
            .filter(|line| line.contains("veth") || line.contains("ifb"))
            .map(str::to_owned)
            .collect();
        let records = std::fs::read_dir(self.data.path().join("pods"));
        made.extend(
            records
                .into_iter()
                .flatten()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|found| found == "json"))
                .map(|path| path.display().to_string()),
        );
        let tables = self.exec("node", "nft list tables").unwrap();
        made.extend(tables.lines().map(str::to_owned));
        made
    }

    /// Runs `work` in a thread in a namespace.
    pub fn run_inside<T: Send + 'static>(
        &self,
        place: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let file = File::open(self.namespace(place)).unwrap();
        std::thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), kind).unwrap();
            work()
        })
    }

    /// Starts a server that answers with the address of its client.
    pub fn serve(&self, place: &str, port: u16) {
        let (ready, is_ready) = std::sync::mpsc::channel();
        self.run_inside(place, move || {
            let listener = TcpListener::bind(format!("[::]:{port}")).unwrap();
            ready.send(()).unwrap();
            for mut stream in listener.incoming().map_while(Result::ok) {
                let client = stream.peer_addr().unwrap().ip().to_canonical();
                let _ = stream.write_all(client.to_string().as_bytes());
            }
        });
        is_ready.recv().unwrap();
    }

    /// Returns the address that a server sees of this client, or None if it does not answer.
    pub fn connect(&self, from: &str, to: &str, expect: bool) -> Option<String> {
        let to: SocketAddr = to.parse().unwrap();
        let timeout = if expect { DEADLINE } else { DROPPED };
        let seen = self.run_inside(from, move || {
            let began = Instant::now();
            // A new address of IPv6 is usable after some milliseconds.
            while began.elapsed() < timeout {
                if let Ok(mut stream) = TcpStream::connect_timeout(&to, timeout) {
                    stream.set_read_timeout(Some(timeout)).unwrap();
                    let mut seen = String::new();
                    return stream.read_to_string(&mut seen).ok().map(|_| seen);
                }
            }
            None
        });
        seen.join().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for place in &self.places {
            let _ = run_script(&format!("ip netns del {}", self.name(place)));
        }
    }
}

/// The parameters of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub node: &'a str,
    pub command: &'a str,
    pub container: &'a str,
    pub place: &'a str,
    pub interface: &'a str,
}

impl<'a> Call<'a> {
    pub fn new(command: &'a str, pod: &'a str) -> Self {
        Self {
            node: "node",
            command,
            container: pod,
            place: pod,
            interface: "eth0",
        }
    }
}

/// Waits for an operation; returns its result or its error.
pub fn finish(child: Child) -> Result<Value, Value> {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{errors}");
    let tree = match text.trim() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap(),
    };
    if output.status.success() {
        Ok(tree)
    } else {
        Err(tree)
    }
}

/// Returns the address of a family in a result, without the length of its network.
pub fn address(result: &Value, is_v4: bool) -> String {
    let mut list = result["ips"].as_array().unwrap().iter();
    let found = list
        .find(|entry| entry["address"].as_str().unwrap().contains('.') == is_v4)
        .unwrap();
    let text = found["address"].as_str().unwrap();
    text.split('/').next().unwrap().to_owned()
}

/// Returns whether a program of the CNI project is installed.
pub fn find_project_plugin(name: &str) -> Option<String> {
    let path = format!("/usr/lib/cni/{name}");
    Path::new(&path).is_file().then_some(path)
}
