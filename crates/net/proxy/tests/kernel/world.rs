//! A node and pods, each in a network namespace, and the rules of one mode on the node.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use net_proxy::{
    BaseChainOptions, DesiredRules, Difference, Family, IptablesOptions, build_base_chains,
    render_iptables, render_nftables, write_difference, write_installation, write_iptables_changes,
    write_iptables_installation, write_iptables_removal,
};

/// The back end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Nftables,
    Iptables,
}

pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;

pub const MODES: [Mode; 2] = [Mode::Nftables, Mode::Iptables];

/// A node with a bridge and pods behind it; dropping it removes everything.
pub struct World {
    tag: String,
    mode: Mode,
    pub more: IptablesOptions,
    /// Families whose rules are installed.
    pub families: Vec<Family>,
    servers: Vec<Child>,
}

pub fn sh(script: &str) -> Result<String, String> {
    let output = Command::new("sh")
        .args(["-ec", script])
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

impl World {
    pub fn new(mode: Mode) -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let world = Self {
            tag: format!("icp{}-{count}", std::process::id()),
            mode,
            more: IptablesOptions {
                random_fully: true,
                ..IptablesOptions::default()
            },
            families: vec![Family::V4],
            servers: Vec::new(),
        };
        let node = world.name("node");
        sh(&format!(
            "ip netns add {node}
             ip -n {node} link set lo up
             ip -n {node} link add br0 type bridge
             ip -n {node} addr add 10.244.0.1/24 dev br0
             ip -n {node} link set br0 up
             ip -n {node} route add 10.96.0.0/16 dev lo src 10.244.0.1
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables'
             ip netns exec {node} nft list tables
             ip netns exec {node} iptables -t nat -S POSTROUTING"
        ))?;
        Ok(world)
    }

    pub fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.tag)
    }

    /// Adds a pod that serves its name over HTTP on port 8080.
    pub fn pod(&mut self, name: &str, address: &str) -> Result<(), String> {
        let (node, pod) = (self.name("node"), self.name(name));
        sh(&format!(
            "ip netns add {pod}
             ip -n {node} link add v{name} type veth peer name eth0 netns {pod}
             ip -n {node} link set v{name} master br0 up
             ip -n {node} link set v{name} type bridge_slave hairpin on
             ip -n {pod} link set lo up
             ip -n {pod} addr add {address}/24 dev eth0
             ip -n {pod} link set eth0 up
             ip -n {pod} route add default via 10.244.0.1"
        ))?;
        self.server(name, 8080);
        Ok(())
    }

    /// Starts an HTTP server in a namespace; it responds with the namespace's name.
    pub fn server(&mut self, name: &str, port: u16) {
        let script = format!(
            "d=$(mktemp -d); echo {name} > $d/index.html; exec busybox httpd -f -p {port} -h $d"
        );
        let server = Command::new("ip")
            .args(["netns", "exec", &self.name(name), "sh", "-c", &script])
            .stdout(Stdio::null())
            .spawn()
            .expect("ip was run before");
        self.servers.push(server);
    }

    /// Starts a server in a namespace that returns its name for each packet. `protocol` is the
    /// number of UDP or SCTP. It closes an association after the client: with unread data it would
    /// abort it, and the client would lose the name.
    pub fn packet_server(&mut self, name: &str, protocol: u8, port: u16) {
        let script = format!(
            "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_{}, {protocol})\ns.bind(('', {port}))\n\
             if {protocol} == 132: s.listen(8)\n\
             while True:\n if {protocol} == 132:\n  c, _ = s.accept(); c.recv(9); c.send(b'{name}'); c.recv(9); c.close()\n \
             else:\n  _, peer = s.recvfrom(99); s.sendto(b'{name}', peer)\n",
            if protocol == SCTP { "STREAM" } else { "DGRAM" }
        );
        let server = Command::new("ip")
            .args(["netns", "exec", &self.name(name), "python3", "-c", &script])
            .stdout(Stdio::null())
            .spawn()
            .expect("ip was run before");
        self.servers.push(server);
    }

    /// Returns the distinct responses of packet servers to several clients from a namespace.
    pub fn ask_packets(
        &self,
        from: &str,
        protocol: u8,
        (ip, port): (&str, u16),
    ) -> Result<Vec<String>, String> {
        let script = format!(
            "import socket\nfound = set()\nfor _ in range(16):\n s = socket.socket(socket.AF_INET, socket.SOCK_{}, {protocol})\n \
             s.settimeout(2)\n s.connect(('{ip}', {port}))\n s.send(b'x')\n found.add(s.recv(99).decode())\n s.close()\n\
             print('\\n'.join(sorted(found)))",
            if protocol == SCTP { "STREAM" } else { "DGRAM" }
        );
        let output = Command::new("ip")
            .args(["netns", "exec", &self.name(from), "python3", "-c", &script])
            .output()
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout)
                .lines()
                .map(str::to_owned)
                .collect()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Returns a node with two pods, a and b; None, with the reason printed, if that is impossible.
    pub fn with_pods(mode: Mode) -> Option<Self> {
        let made = Self::new(mode).and_then(|mut world| {
            world.pod("a", "10.244.0.2")?;
            world.pod("b", "10.244.0.3")?;
            Ok(world)
        });
        made.map_err(|reason| println!("skipped: {reason}")).ok()
    }

    /// Gives the node and its two pods addresses of IPv6: fd00:244::1, ::2 and ::3. Waits until the
    /// node has found its neighbours: packets before that are lost.
    pub fn add_v6(&mut self) -> Result<(), String> {
        self.families.push(Family::V6);
        let (node, a, b) = (self.name("node"), self.name("a"), self.name("b"));
        sh(&format!(
            "ip -n {node} addr add fd00:244::1/64 dev br0 nodad
             ip -n {node} route add fd00:96::/112 dev br0 src fd00:244::1
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/bridge/bridge-nf-call-ip6tables'
             ip netns exec {node} ip6tables -t nat -S POSTROUTING
             ip -n {a} addr add fd00:244::2/64 dev eth0 nodad
             ip -n {a} route add default via fd00:244::1
             ip -n {b} addr add fd00:244::3/64 dev eth0 nodad
             ip -n {b} route add default via fd00:244::1
             for pod in 2 3; do
               for i in $(seq 200); do
                 ip netns exec {node} busybox wget -q -O - http://[fd00:244::$pod]:8080/ && break
                 sleep 0.05
               done
             done"
        ))
        .map(drop)
    }

    /// Returns an empty set of rules for the mode.
    pub fn desired(&self) -> DesiredRules {
        DesiredRules::new(match self.mode {
            Mode::Nftables => render_nftables,
            Mode::Iptables => render_iptables,
        })
    }

    /// Installs all rules.
    pub fn install(&self, desired: &DesiredRules, options: &BaseChainOptions) {
        self.install_and_keep(desired, options, false);
    }

    /// Installs all rules while pods can't reach their own servers.
    pub fn install_without_servers(&self, desired: &DesiredRules, options: &BaseChainOptions) {
        self.write_rules(desired, options, false);
    }

    /// Installs all rules, and the clients of the affinity that is in the kernel.
    pub fn install_and_keep(&self, desired: &DesiredRules, options: &BaseChainOptions, keep: bool) {
        self.write_rules(desired, options, keep);
        self.wait_for_servers();
    }

    fn write_rules(&self, desired: &DesiredRules, options: &BaseChainOptions, keep: bool) {
        let node = self.name("node");
        let list = |words: &str| sh(&format!("ip netns exec {node} {words}")).unwrap();
        match self.mode {
            Mode::Nftables => {
                let mut commands = String::new();
                for family in &self.families {
                    commands += &build_base_chains(*family, options);
                    commands += &write_installation(desired, *family);
                }
                if keep {
                    commands += &desired.keep_affinity(&list("nft -j list sets"));
                }
                self.nft(&commands);
            }
            Mode::Iptables => {
                for family in &self.families {
                    for input in self.installation(desired, options, *family) {
                        self.restore(*family, &input);
                    }
                }
            }
        }
    }

    /// Applies a difference.
    pub fn apply(&self, difference: &Difference) {
        match self.mode {
            Mode::Nftables => {
                let commands = write_difference(difference);
                self.nft(&commands.change);
                self.nft(&commands.removal);
            }
            Mode::Iptables => self.change(difference),
        }
    }

    /// Returns the inputs that install all rules of a family with iptables.
    pub fn installation(
        &self,
        desired: &DesiredRules,
        options: &BaseChainOptions,
        family: Family,
    ) -> Vec<String> {
        let saved = self.save(family);
        write_iptables_installation(desired, family, options, self.more, &saved)
    }

    /// Applies a difference with iptables.
    pub fn change(&self, difference: &Difference) {
        for (family, changed) in difference {
            let commands = write_iptables_changes([changed]);
            self.restore(*family, &commands.change);
            self.restore(*family, &commands.removal);
        }
    }

    /// Removes all rules of a family with iptables.
    pub fn remove(&self, family: Family) {
        let commands = write_iptables_removal(&self.save(family));
        self.restore(family, &commands.change);
        self.restore(family, &commands.removal);
    }

    fn save(&self, family: Family) -> String {
        let words = match family {
            Family::V4 => "iptables-save",
            Family::V6 => "ip6tables-save",
        };
        sh(&format!("ip netns exec {} {words}", self.name("node"))).unwrap()
    }

    pub fn restore(&self, family: Family, input: &str) {
        let program = match family {
            Family::V4 => "iptables-restore",
            Family::V6 => "ip6tables-restore",
        };
        self.feed(&[program, "--noflush"], input);
    }

    /// Returns the rules in the kernel.
    pub fn list(&self) -> String {
        let words = match self.mode {
            Mode::Nftables => "nft list table ip kube-proxy",
            Mode::Iptables => "iptables-save",
        };
        sh(&format!("ip netns exec {} {words}", self.name("node"))).unwrap()
    }

    fn wait_for_servers(&self) {
        for pod in ["a", "b"] {
            let pod = self.name(pod);
            sh(&format!(
                "for i in $(seq 200); do ip netns exec {pod} busybox wget -q -O - http://127.0.0.1:8080/ && exit 0; sleep 0.05; done; exit 1"
            ))
            .unwrap();
        }
    }

    /// Runs nft on the node.
    pub fn nft(&self, commands: &str) {
        self.feed(&["nft", "-f", "-"], commands);
    }

    fn feed(&self, program: &[&str], input: &str) {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name("node")])
            .args(program)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}\n{input}");
    }

    /// Returns the distinct responses to several requests from one of the namespaces.
    pub fn ask(&self, from: &str, url: &str) -> Result<Vec<String>, String> {
        let from = self.name(from);
        let script = format!(
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do ip netns exec {from} timeout 2 busybox wget -q -O - http://{url}/; done"
        );
        let mut answers: Vec<String> = sh(&script)?.lines().map(str::to_owned).collect();
        answers.sort();
        answers.dedup();
        Ok(answers)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        for name in ["a", "b", "node"] {
            let _ = sh(&format!("ip netns del {}", self.name(name)));
        }
    }
}
