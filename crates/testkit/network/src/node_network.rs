//! The namespaces, their devices and addresses.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Pods of the node, and the last part of their addresses in 10.244.0.0/24 and fd00::/64.
pub const PODS: [(&str, u8); 3] = [("a", 2), ("b", 3), ("c", 4)];
/// A host outside of the cluster: 192.0.2.2, 192.0.2.3 and 2001:db8::2.
pub const OUTSIDE: &str = "outside";

/// A node, its pods and a host outside. Dropping it removes all.
pub struct NodeNetwork {
    tag: String,
}

/// Runs a script of the shell; returns its output.
///
/// # Errors
/// The script failed. The text has the script and its standard error.
pub fn run_script(script: &str) -> Result<String, String> {
    let output = Command::new("sh")
        .args(["-ec", script])
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{script}: {errors}"))
}

impl NodeNetwork {
    /// Creates the namespaces.
    ///
    /// # Errors
    /// This machine does not allow it: the caller is not root, or a program or module is missing.
    pub fn create() -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let network = Self {
            tag: format!("icn{}-{count}", std::process::id()),
        };
        network.create_node()?;
        for (pod, host) in PODS {
            network.create_pod(pod, host)?;
        }
        Ok(network)
    }

    /// Creates the namespaces; returns None, with the reason printed, if the caller is not root.
    ///
    /// # Panics
    /// If it fails for root: a test that is skipped must not look like one that has passed.
    pub fn create_as_root() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: the caller is not root");
            return None;
        }
        Some(Self::create().expect("root may create namespaces"))
    }

    fn create_node(&self) -> Result<(), String> {
        let (node, outside) = (self.name("node"), self.name(OUTSIDE));
        // Without detection of duplicates, IPv6 addresses work at once.
        run_script(&format!(
            "ip netns add {node}
             ip netns add {outside}
             for ns in {node} {outside}; do ip -n $ns link set lo up; ip netns exec $ns sh -c 'echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad'; done
             ip -n {node} link add br0 type bridge
             ip -n {node} addr add 10.244.0.1/24 dev br0
             ip -n {node} addr add fd00::1/64 dev br0 nodad
             ip -n {node} link set br0 up
             ip -n {node} link add up0 type veth peer name eth0 netns {outside}
             ip -n {node} addr add 192.0.2.1/24 dev up0
             ip -n {node} addr add 2001:db8::1/64 dev up0 nodad
             ip -n {node} link set up0 up
             ip -n {outside} addr add 192.0.2.2/24 dev eth0
             ip -n {outside} addr add 192.0.2.3/24 dev eth0
             ip -n {outside} addr add 2001:db8::2/64 dev eth0 nodad
             ip -n {outside} link set eth0 up
             ip -n {outside} route add default via 192.0.2.1
             ip -n {outside} -6 route add default via 2001:db8::1
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables; echo 1 > /proc/sys/net/bridge/bridge-nf-call-ip6tables'
             ip netns exec {node} nft list tables"
        ))?;
        Ok(())
    }

    fn create_pod(&self, pod: &str, host: u8) -> Result<(), String> {
        let (node, inside) = (self.name("node"), self.name(pod));
        run_script(&format!(
            "ip netns add {inside}
             ip netns exec {inside} sh -c 'echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad'
             ip -n {node} link add v{pod} type veth peer name eth0 netns {inside}
             ip -n {node} link set v{pod} master br0 up
             ip -n {node} link set v{pod} type bridge_slave hairpin on
             ip -n {inside} link set lo up
             ip -n {inside} addr add 10.244.0.{host}/24 dev eth0
             ip -n {inside} addr add fd00::{host}/64 dev eth0 nodad
             ip -n {inside} link set eth0 up
             ip -n {inside} route add default via 10.244.0.1
             ip -n {inside} -6 route add default via fd00::1"
        ))
        .map(drop)
    }

    /// Replaces a pod by a new one with the same addresses. No packet ends connections of the old
    /// one.
    ///
    /// # Panics
    /// If the namespace can't be created.
    pub fn replace_pod(&self, pod: &str) {
        let host = PODS.iter().find(|(name, _)| *name == pod).unwrap().1;
        let (node, inside) = (self.name("node"), self.name(pod));
        run_script(&format!(
            "ip -n {node} link del v{pod}
             ip netns del {inside}"
        ))
        .unwrap();
        self.create_pod(pod, host).unwrap();
    }

    /// Returns the name of a namespace: of the node, a pod or the host outside.
    pub fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.tag)
    }

    /// Runs `work` in a thread in one of the namespaces.
    ///
    /// # Panics
    /// If there is no such namespace.
    pub fn run_inside<T: Send + 'static>(
        &self,
        place: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = self.open_namespace(place);
        std::thread::spawn(move || {
            enter_namespace(&namespace);
            work()
        })
    }

    /// Moves the calling thread, and the threads and processes that it starts from now on, to one
    /// of the namespaces.
    ///
    /// # Panics
    /// If the kernel does not allow it.
    pub fn enter(&self, place: &str) {
        enter_namespace(&self.open_namespace(place));
    }

    fn open_namespace(&self, place: &str) -> File {
        File::open(format!("/run/netns/{}", self.name(place))).expect("a namespace of the test")
    }

    /// Applies commands of nftables on the node.
    ///
    /// # Panics
    /// If they are rejected.
    pub fn nft(&self, commands: &str) {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name("node"), "nft", "-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(commands.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}\n{commands}");
    }
}

fn enter_namespace(namespace: &File) {
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(namespace.as_fd(), kind).expect("root may enter namespaces");
}

impl Drop for NodeNetwork {
    fn drop(&mut self) {
        let pods = PODS.map(|(name, _)| name);
        for name in pods.iter().chain(&[OUTSIDE, "node"]) {
            let _ = run_script(&format!("ip netns del {}", self.name(name)));
        }
    }
}
