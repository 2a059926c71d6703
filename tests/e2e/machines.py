#!/usr/bin/env python3
"""Clusters of machines with real containers, on two links with a router between them: dual stack, and tunnels. Needs root.

    machines.py --ironclad BINARY --work DIR

A machine is a network and a mount namespace. The first cluster has IPv4 first and the pod network's usual way: routes on a link,
tunnels between links. The second one has IPv6 first, and tunnels only.
"""
import argparse
import ipaddress
import json
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, shell, until  # noqa: E402
from control_plane import Link, RealMachine, execute  # noqa: E402

# Answers with the name of the pod and the address from which the request came. `large` is larger than any packet.
SERVER = """mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\\necho\\necho "$(hostname) saw $REMOTE_ADDR"\\n' >/tmp/www/cgi-bin/who
chmod +x /tmp/www/cgi-bin/who
head -c 300000 /dev/zero >/tmp/www/large
exec httpd -f -p 8080 -h /tmp/www"""
LABELS = {"app": "talker"}
TALKERS = [
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "talker"}, "spec": {
        "selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [{
                "name": "c", "image": "ironclad.local/busybox:1", "command": ["sh", "-c", SERVER],
                "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "talker"}, "spec": {
        "type": "NodePort", "selector": LABELS, "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80, "targetPort": 8080}]}},
]
# Sends requests to each URL until all pods have answered, and prints those that did not.
SEE_ALL = """for url in {urls}; do
  left='{names}' n=0
  while [ -n "$left" ] && [ $n -lt 100 ]; do
    n=$((n + 1)) answer=$({request} "$url" | cut -d' ' -f1) rest=
    [ -n "$answer" ] || sleep 0.2
    for name in $left; do [ "$name" = "$answer" ] || rest="$rest $name"; done
    left=$rest
  done
  [ -z "$left" ] || echo "$left at $url"
done"""
V4_FIRST = ("10.244.0.0/16,fd00:10:244::/48", "10.96.0.0/16,fd00:10:96::/112")
V6_FIRST = ("fd00:10:244::/48,10.244.0.0/16", "fd00:10:96::/112,10.96.0.0/16")


class MachineKubectl(Kubectl):
    """The kubectl of a machine with a control plane."""

    def __init__(self, machine, namespace="default"):
        super().__init__(os.path.join(machine.folder, "admin.kubeconfig"), namespace)
        self.inside = machine.inside()

    def command(self, *words):
        return [*self.inside, *super().command(*words)]


class Context:
    """The links and their router. The machines of a cluster are made by its first check."""

    def __init__(self, options):
        self.ironclad, self.base = os.path.abspath(options.ironclad), os.path.abspath(options.work)
        self.tag, self.machines = f"icm{os.getpid() % 10_000}", {}
        self.router = f"{self.tag}-router"
        execute((f"ip netns add {self.router}",
                 f"ip netns exec {self.router} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"))
        for side in "ab":
            execute((f"ip link add {self.tag}{side} type bridge mcast_snooping 0", f"ip link set {self.tag}{side} up"))
            self.link(side).connect(f"{self.tag}{side}r", self.router, f"{side}0", "254")

    def link(self, side, families="46"):
        """Returns one of the links, with these families in their order."""
        number = "12"["ab".index(side)]
        ranges = {"4": (f"10.213.2{number}.", 24), "6": (f"2001:db8:{number}::", 64)}
        return Link(f"{self.tag}{side}", [ranges[family] for family in families])

    def begin(self, cluster, families, sides):
        """Makes machines on these links: m1, m2, ..."""
        self.close_machines()
        self.work = os.path.join(self.base, cluster)
        os.makedirs(self.work)
        self.families = [int(family) for family in families]
        for number, side in enumerate(sides, 1):
            self.machines[f"m{number}"] = RealMachine(self, f"m{number}", number, self.link(side, families))

    def __getitem__(self, name):
        return self.machines[name]

    @property
    def k(self):
        return MachineKubectl(self["m1"])

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json"))

    def nodes(self):
        return {name(node): node for node in self.json("nodes")["items"]}

    def talkers(self):
        """Returns the pods, by the name of their node."""
        pods = {pod["spec"]["nodeName"]: pod for pod in self.json("pods", "-l", "app=talker")["items"] if "podIPs" in pod["status"]}
        assert set(pods) == set(self.machines), pods
        return pods

    def invite(self, *options):
        return self["m1"].okay("token", "create", "--print-join-command", *options).split()[1:]

    def show(self, machine, *words):
        done = shell([*self[machine].inside(), *words])
        assert done.returncode == 0, f"{words} on {machine}: {done.stderr}"
        return done.stdout

    def execute(self, caller, script):
        """Runs a script in a pod, or on a machine if its name is given."""
        if isinstance(caller, str):
            return self.show(caller, "sh", "-c", script)
        return self.k("exec", name(caller), "--", "sh", "-c", script, timeout=100)

    def close_machines(self):
        for number in reversed(list(self.machines)):
            machine = self.machines.pop(number)
            if os.path.exists(machine.folder) and (number == "m1" or machine.run("reset", timeout=120).returncode != 0):
                machine.run("down", "--purge", timeout=120)
            machine.remove()

    def close(self):
        self.close_machines()
        for side in "ab":
            shell(["ip", "link", "delete", f"{self.tag}{side}"])
        shell(["ip", "netns", "delete", self.router])


def name(item):
    return item["metadata"]["name"]


def url(address, port, path="/cgi-bin/who"):
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}{path}"


def versions(addresses):
    return [ipaddress.ip_address(address).version for address in addresses]


def pod_addresses(pod):
    return [ip["ip"] for ip in pod["status"]["podIPs"]]


def node_addresses(node):
    return [a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"]


def start_talkers(c):
    c.k("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": TALKERS}))
    c.k("rollout", "status", "daemonset/talker", "--timeout=150s", timeout=160)
    ranges = {node: found["spec"]["podCIDRs"] for node, found in c.nodes().items()}
    for node, pod in until(c.talkers, 30).items():
        assert versions(pod_addresses(pod)) == c.families, pod["status"]
        for address, pods in zip(pod_addresses(pod), ranges[node]):
            assert ipaddress.ip_address(address) in ipaddress.ip_network(pods), (address, pods)


def reach_each_other(c):
    """Each pod sees the address of the other one, in each family, and gets what does not fit into one packet."""
    pods = c.talkers().values()
    for caller in pods:
        for callee in pods:
            for source, address in zip(pod_addresses(caller), pod_addresses(callee)):
                script = f"wget -q -O- -T 5 '{url(address, 8080)}'; wget -q -O- -T 5 '{url(address, 8080, '/large')}' | wc -c"
                answer = until(lambda caller=caller, script=script: c.execute(caller, script), 20)
                expected = f"{name(callee)} saw .*{re.escape(source)}\\]?\n300000$"
                assert re.search(expected, answer.strip()), f"{name(caller)} asked {address}: {answer}"


def reach_services(c):
    """Pods and machines reach all pods at each address of the Service, by its name, and at the node port of each address."""
    spec = c.json("service", "talker")["spec"]
    assert versions(spec["clusterIPs"]) == c.families, spec
    pods = c.talkers()
    names = {name(pod) for pod in pods.values()}
    port = spec["ports"][0]["nodePort"]
    urls = [url(address, 80) for address in spec["clusterIPs"]]
    urls += [url(address, port) for node in c.nodes().values() for address in node_addresses(node)]
    for caller in (*pods.values(), *c.machines):
        # Machines have no cluster DNS.
        own = urls if isinstance(caller, str) else [*urls, url("talker.default.svc.cluster.local", 80)]
        request = "curl -g -s -m 2" if isinstance(caller, str) else "wget -q -O- -T 2"
        script = SEE_ALL.format(urls=" ".join(f"'{one}'" for one in own), names=" ".join(names), request=request)
        left = c.execute(caller, script)
        assert not left, f"{caller if isinstance(caller, str) else caller['spec']['nodeName']}: no answer of {left}"


def policy(policy_name, **spec):
    return json.dumps({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": policy_name},
                       "spec": {"podSelector": {"matchLabels": LABELS}, **spec}})


def list_answers(c):
    """Returns the pairs of node and address where a pod gets an answer of a pod on another machine, and all such pairs."""
    pods, found, pairs = c.talkers(), set(), set()
    for node, caller in pods.items():
        addresses = [address for other, pod in pods.items() if other != node for address in pod_addresses(pod)]
        pairs.update((node, address) for address in addresses)
        script = "".join(f"(wget -q -O- -T 3 '{url(address, 8080)}' >/dev/null 2>&1 && echo {address}) &\n" for address in addresses)
        found.update((node, address) for address in c.execute(caller, f"{script}wait").split())
    return found, pairs


def ways(c, machine):
    """Returns the devices of the routes to the pods of other machines, in each family."""
    found = {}
    for family in "46":
        for line in c.show(machine, "ip", f"-{family}", "route", "show", "proto", "120").splitlines():
            words = line.split()
            found.setdefault(words[0], words[words.index("dev") + 1])
    return found


def expect_ways(c, expected):
    """`expected` has the devices by the names of two machines, from the first to the second."""
    ranges = {node: found["spec"]["podCIDRs"] for node, found in c.nodes().items()}
    for (here, there), device in expected.items():
        found = ways(c, here)
        for pods in ranges[there]:
            assert found.get(pods) == device, f"{pods} on {here}: {found}"


def leave(c, machine):
    """The other machines have no way to a machine that was reset and deleted."""
    c.k("drain", machine, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s", timeout=90)
    pods = c.nodes()[machine]["spec"]["podCIDRs"]
    c[machine].okay("reset", timeout=150)
    c.k("delete", "node", machine, "--ignore-not-found")
    for other in c.machines:
        if other != machine:
            until(lambda other=other: not set(pods) & set(ways(c, other)), 30, what=f"{other} has no way to {machine}")
    left = c.show(machine, "sh", "-c", "ip -o link; nft list tables; ip route show proto 120; ip -6 route show proto 120")
    for trace in ("cni0", "vxlan", "table", "proto 120"):
        assert trace not in left, left
    c.machines.pop(machine).remove()


DUAL = "machines/dual-stack"
BOTH = (f"{DUAL}/worker-joins",)
ALL = (f"{DUAL}/control-plane-is-joined-across-a-router",)
RUNNING = (f"{DUAL}/pods-have-addresses-of-both-families",)


@check(f"{DUAL}/init", deadline=180)
def init(c):
    c.begin("dual-stack", "46", "aab")
    c["m1"].okay("init", "--node-name", "m1", "--pod-cidr", V4_FIRST[0], "--service-cidr", V4_FIRST[1], "--node-local-dns", timeout=170)
    # Pods can be created as soon as the command ends.
    c.k("run", "early", "--image=ironclad.local/busybox:1", "--restart=Never", "--", "true")
    c.k("delete", "pod", "early", "--wait=false")
    assert node_addresses(c.nodes()["m1"]) == c["m1"].addresses


@check(f"{DUAL}/worker-joins", deadline=120, needs=(f"{DUAL}/init",))
def worker(c):
    c["m2"].okay(*c.invite(), "--node-name", "m2", timeout=170)
    node = c.nodes()["m2"]
    assert node_addresses(node) == c["m2"].addresses, node["status"]["addresses"]
    assert versions(pods.split("/")[0] for pods in node["spec"]["podCIDRs"]) == c.families, node["spec"]


@check(f"{DUAL}/control-plane-is-joined-across-a-router", deadline=180, needs=BOTH)
def control_plane(c):
    c["m3"].okay(*c.invite("--control-plane"), "--node-name", "m3", timeout=170)
    MachineKubectl(c["m3"])("run", "early", "--image=ironclad.local/busybox:1", "--restart=Never", "--", "true")
    c.k("delete", "pod", "early", "--wait=false", "--ignore-not-found")
    assert node_addresses(c.nodes()["m3"]) == c["m3"].addresses


@check(f"{DUAL}/pods-have-addresses-of-both-families", deadline=120, needs=ALL)
def pods(c):
    start_talkers(c)


@check(f"{DUAL}/pods-reach-each-other-in-each-family", deadline=120, needs=RUNNING)
def pairs(c):
    reach_each_other(c)


@check(f"{DUAL}/machines-of-one-link-have-routes-and-others-tunnels", needs=RUNNING)
def backends(c):
    expect_ways(c, {("m1", "m2"): "eth0", ("m2", "m1"): "eth0", ("m1", "m3"): "vxlan-pods", ("m2", "m3"): "vxlan-pods",
                    ("m3", "m1"): "vxlan-pods", ("m3", "m2"): "vxlan-pods"})


@check(f"{DUAL}/services-are-reached-from-all-machines", deadline=180, needs=RUNNING)
def services(c):
    reach_services(c)


@check(f"{DUAL}/policies-hold-on-all-machines-in-each-family", deadline=120, needs=RUNNING)
def policies(c):
    """Denied, allowed by a policy, and free again."""
    allow = [{"from": [{"podSelector": {"matchLabels": LABELS}}], "ports": [{"port": 8080}]}]
    for words, stdin, expect in (
        (("apply", "-f", "-"), policy("deny"), False), (("apply", "-f", "-"), policy("allow", ingress=allow), True),
        (("delete", "networkpolicy", "allow"), None, False), (("delete", "networkpolicy", "deny"), None, True),
    ):
        c.k(*words, stdin=stdin)

        def hold(expect=expect):
            found, pairs = list_answers(c)
            return found == (pairs if expect else set())
        until(hold, 25, what=f"{words} {stdin}")


@check(f"{DUAL}/joined-control-plane-has-a-dns-server-of-its-node", deadline=90, needs=RUNNING)
def node_dns(c):
    """Pods of a worker have the Service only: its machine has no identity for a server."""
    with open(os.path.join(c["m1"].folder, "settings.json")) as f:
        own = json.load(f)["nodeDns"]
    service = json.loads(MachineKubectl(c["m1"], "kube-system")("get", "service", "kube-dns", "-o", "json"))["spec"]["clusterIP"]
    for node, pod in c.talkers().items():
        found = re.findall(r"(?m)^nameserver (\S+)", c.k("exec", name(pod), "--", "cat", "/etc/resolv.conf"))
        assert found == ([service] if node == "m2" else [own, service]), (node, found)
        c.k("exec", name(pod), "--", "nslookup", "talker.default.svc.cluster.local")
    # It is that of the machine itself which responds.
    server = next(part for part in c["m3"].components() if part["name"] == "node-dns")
    lookup = ("exec", name(c.talkers()["m3"]), "--", "timeout", "10", "nslookup", "talker.default.svc.cluster.local", own)
    c.k(*lookup)
    os.kill(server["pid"], signal.SIGSTOP)
    try:
        stopped = c.k.run(*lookup, okay=None)
        assert stopped.returncode != 0, stopped.stdout
    finally:
        os.kill(server["pid"], signal.SIGCONT)
    until(lambda: c.k(*lookup), 20)


@check(f"{DUAL}/machines-leave", deadline=240, needs=RUNNING)
def leaves(c):
    for machine in ("m3", "m2"):
        leave(c, machine)


TUNNELS = "machines/tunnels"
TUNNELED = (f"{TUNNELS}/worker-joins-across-a-router",)


@check(f"{TUNNELS}/worker-joins-across-a-router", deadline=240)
def tunnels(c):
    c.begin("tunnels", "64", "ab")
    c["m1"].okay("init", "--node-name", "m1", "--cni", "ironclad", "--cni-backend", "vxlan", "--pod-cidr", V6_FIRST[0],
                 "--service-cidr", V6_FIRST[1], timeout=170)
    c["m2"].okay(*c.invite(), "--node-name", "m2", timeout=170)
    assert node_addresses(c.nodes()["m2"]) == c["m2"].addresses
    start_talkers(c)


@check(f"{TUNNELS}/pods-reach-each-other-in-each-family", deadline=120, needs=TUNNELED)
def tunnel_pairs(c):
    reach_each_other(c)
    expect_ways(c, {("m1", "m2"): "vxlan-pods", ("m2", "m1"): "vxlan-pods"})


@check(f"{TUNNELS}/services-are-reached-from-all-machines", deadline=120, needs=TUNNELED)
def tunnel_services(c):
    reach_services(c)


@check(f"{TUNNELS}/worker-leaves", deadline=200, needs=TUNNELED)
def tunnel_leaves(c):
    leave(c, "m2")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ironclad", required=True)
    parser.add_argument("--work", required=True)
    context = Context(parser.parse_args())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        code = main(context)
    finally:
        context.close()
    sys.exit(code)
