#!/usr/bin/env python3
"""A second machine joins the cluster, works as a node, and is reset: a network and mount namespace, on one link with the first.

    join.py --kubeconfig FILE --data-dir DIR --ironclad BINARY --work DIR
"""
import argparse
import ipaddress
import json
import os
import re
import shlex
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, shell, until  # noqa: E402

NODE = "joined-1"
GATEWAY = "ironclad.node-restriction.kubernetes.io/gateway"
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "operations", "add-a-node.md")
# Runs in the new namespaces. /sys shows the devices of the machine's own network, and the cgroups of the kernel.
PREPARE = """set -e
mount --make-rprivate /
mkdir -p {w}/sys {w}/run {w}/cni /run/containerd /var/lib/cni
mount --rbind /sys {w}/sys
umount --lazy /sys
mount -t sysfs sysfs /sys
mount --rbind {w}/sys/fs/cgroup /sys/fs/cgroup
umount --lazy {w}/sys
mount --bind {w}/run /run/containerd
mount --bind {w}/cni /var/lib/cni
mount --make-rshared /
ip link set lo up
echo ready
exec sleep infinity"""

SERVER = """mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\\necho\\necho "$(hostname) saw $REMOTE_ADDR"\\n' >/tmp/www/cgi-bin/who
chmod +x /tmp/www/cgi-bin/who
echo started on $NODE
exec httpd -f -p 8080 -h /tmp/www"""
LABELS = {"app": "guest"}
GUESTS = [
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "guest"}, "spec": {
        "selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [{
                "name": "c", "image": "ironclad.local/busybox:1", "command": ["sh", "-c", SERVER],
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "guest"}, "spec": {
        "type": "NodePort", "selector": LABELS, "ports": [{"port": 80, "targetPort": 8080}]}},
]
JOINED = ("join/worker",)
RUNNING = ("join/worker", "join/pods-run")


def find_bridge(address):
    """Returns the name and the network of the bridge that has an address. A device of a real network gets no second machine."""
    for device in json.loads(shell("ip -json -details address show type bridge").stdout):
        for found in device.get("addr_info", ()):
            if found.get("local") == address:
                return device["ifname"], ipaddress.ip_network(f"{address}/{found['prefixlen']}", strict=False)
    raise Skip(f"{address} is not on a bridge, as it is in the network of tests/areas/cluster.sh")


class Machine:
    """A second machine: namespaces whose link is on the bridge of the first one's address."""

    def __init__(self, work, address, taken):
        bridge, network = find_bridge(address)
        own = next(str(host) for host in network.hosts() if str(host) not in taken)
        self.work, self.folder = work, os.path.join(work, "data")
        os.makedirs(work, exist_ok=True)
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", PREPARE.format(w=work)], stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline().strip() == "ready", "the namespaces of the second machine"
        # Ends with the namespace.
        link = f"join-{os.getpid()}"[:15]
        for command in (f"ip link add {link} type veth peer name eth0 netns {self.holder.pid}",
                        f"ip link set {link} master {bridge} up"):
            done = shell(command)
            assert done.returncode == 0, done.stderr
        for command in (f"ip address add {own}/{network.prefixlen} dev eth0", "ip link set eth0 up", f"ip route add default via {address}"):
            done = self.run(*command.split())
            assert done.returncode == 0, done.stderr
        self.address = own

    def run(self, *words, **options):
        return shell(["nsenter", "-t", str(self.holder.pid), "--net", "--mount", *words], **options)

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Context:
    def __init__(self, options):
        self.k, self.data, self.ironclad = Kubectl(options.kubeconfig, "join"), options.data_dir, options.ironclad
        self.work, self.machine, self.before = options.work, None, None

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json"))

    def command(self, *words):
        done = shell([self.ironclad, *words, "--data-dir", self.data])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def join(self, *words, **options):
        return self.machine.run(self.ironclad, "join", *words, "--data-dir", self.machine.folder, **options)

    def pods(self):
        return self.json("pods", "-l", "app=guest")["items"]

    def guest(self):
        return next(pod for pod in self.pods() if pod["spec"]["nodeName"] == NODE)

    def ask(self, pod, url):
        return self.k("exec", name(pod), "--", "wget", "-q", "-O-", "-T", "5", url)


def documented(start, **values):
    """Returns the words of the only command of the operators' page that begins so, with `values` instead of its examples."""
    with open(PAGE) as f:
        blocks = re.findall(r"^```sh\n(.*?)^```", f.read(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith(start)]
    assert len(lines) == 1, f"{start}: {lines}"
    words = shlex.split(lines[0])
    for example, value in values.items():
        position = [i for i, word in enumerate(words) if word.startswith(example)]
        assert len(position) == 1, f"{example} in {words}"
        words[position[0]] = value
    return words[1:]


def name(item):
    return item["metadata"]["name"]


def internal_ip(node):
    return next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP")


TRACES = {
    "devices": "ip -brief link show | awk '{print $1}' | sed 's/@.*//' | sort",
    "routes": "ip -4 route show table all",
    "tables": "nft list tables | sort",
    "mounts": "awk '{print $2}' /proc/mounts | sort",
}


def traces(machine):
    return {what: machine.run("sh", "-c", command).stdout for what, command in TRACES.items()}


def changes(machine, what, before):
    """Returns the lines that were added or removed since, sorted. A mount of another process may end: the kernel removes its
    copies in all mount namespaces with the folder that it was on."""
    now, before = set(traces(machine)[what].splitlines()), set(before.splitlines())
    removed = before - now
    if what == "mounts":
        removed &= set(shell(TRACES[what]).stdout.splitlines())
    return sorted(removed | now - before)


@check("join/worker", deadline=200)
def worker(c):
    nodes = c.json("nodes")["items"]
    first = next(n for n in nodes if GATEWAY not in n["metadata"]["labels"])
    # The gateway of the test's network has the first address.
    gateways = [word for word in shell("ip -4 route show default").stdout.split() if word.count(".") == 3]
    c.machine = Machine(c.work, internal_ip(first), [internal_ip(n) for n in nodes] + gateways)
    c.before = traces(c.machine)
    command = c.command(*documented("ironclad token create")).split()
    assert command[:2] == ["ironclad", "join"], command
    value = {flag: command[command.index(flag) + 1] for flag in ("join", "--token", "--discovery-token-ca-cert-hash")}
    token = value["--token"]
    file = os.path.join(c.work, "token.txt")
    with open(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write(token)
    words = documented("ironclad join", **{"192.0.2.1:": value["join"], "token.txt": file,
                                           "sha256:": value["--discovery-token-ca-cert-hash"]})
    done = c.join(*words[1:], "--node-name", NODE, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "ready after" in done.stderr and token not in done.stderr, done.stderr
    node = c.json("node", NODE)
    assert internal_ip(node) == c.machine.address and node["metadata"]["labels"]["disk"] == "ssd", node
    secret = token.split(".")[1]
    found = shell(["grep", "-rl", secret, c.machine.folder]).stdout
    assert not found, f"the token is still in {found}"
    c.command(*documented("ironclad token delete", abcdef=token.split(".")[0]))


@check("join/pods-run", deadline=120, needs=JOINED)
def pods_run(c):
    c.k("create", "namespace", "join")
    c.k("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": GUESTS}))
    c.k("rollout", "status", "daemonset/guest", "--timeout=90s", timeout=100)
    ranges = {name(n): ipaddress.ip_network(n["spec"]["podCIDR"]) for n in c.json("nodes")["items"]}
    pod = c.guest()
    assert ipaddress.ip_address(pod["status"]["podIP"]) in ranges[NODE], pod["status"]


@check("join/logs-and-exec", deadline=60, needs=RUNNING)
def logs(c):
    pod = c.guest()
    # The server's certificate is requested when the node has its address, and approved.
    until(lambda: f"started on {NODE}" in c.k("logs", name(pod)), 30, what="logs of the pod")
    assert c.k("exec", name(pod), "--", "hostname").strip() == name(pod)


@check("join/pods-of-all-machines-reach-each-other", deadline=90, needs=RUNNING)
def pairs(c):
    pods = c.pods()
    for caller in pods:
        for callee in pods:
            url = f"http://{callee['status']['podIP']}:8080/cgi-bin/who"
            answer = until(lambda caller=caller, url=url: c.ask(caller, url), 20)
            expected = f"{name(callee)} saw .*{re.escape(caller['status']['podIP'])}\\b"
            assert re.search(expected, answer), f"{name(caller)} on {caller['spec']['nodeName']} asked: {answer}"


def policy(policy_name, **spec):
    return json.dumps({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": policy_name},
                       "spec": {"podSelector": {"matchLabels": LABELS}, **spec}})


@check("join/policies-hold-on-all-machines", deadline=120, needs=RUNNING)
def policies(c):
    """Packets between the pods of two machines, in both directions: denied, allowed by a policy, and free again."""
    pods = c.pods()
    pairs = [(caller, callee) for caller in pods for callee in pods if caller["spec"]["nodeName"] != callee["spec"]["nodeName"]]
    assert any(callee["spec"]["nodeName"] == NODE for _, callee in pairs), pairs

    def connects(caller, callee):
        url = f"http://{callee['status']['podIP']}:8080/cgi-bin/who"
        done = c.k.run("exec", name(caller), "--", "wget", "-q", "-O-", "-T", "1", url, okay=None)
        return done.returncode == 0

    allow = [{"from": [{"podSelector": {"matchLabels": LABELS}}], "ports": [{"port": 8080}]}]
    for change, expect in [
        (lambda: c.k.run("apply", "-f", "-", stdin=policy("deny")).stderr, False),
        (lambda: c.k.run("apply", "-f", "-", stdin=policy("allow", ingress=allow)).stderr, True),
        (lambda: c.k.run("delete", "networkpolicy", "allow").stderr, False),
        (lambda: c.k.run("delete", "networkpolicy", "deny").stderr, True),
    ]:
        assert "not enforced" not in change()
        for caller, callee in pairs:
            until(lambda caller=caller, callee=callee, expect=expect: connects(caller, callee) == expect, 20, 0.05,
                  f"{name(caller)} to {name(callee)}: {expect}")


@check("join/services-and-names", deadline=90, needs=RUNNING)
def services(c):
    names = {name(pod) for pod in c.pods()}
    for pod in c.pods():
        seen = set()

        def all_seen(pod=pod, seen=seen):
            seen.add(c.ask(pod, "http://guest.join.svc.cluster.local/cgi-bin/who").split()[0])
            return seen == names
        until(all_seen, 40, 0.05, f"answers of {names} on {pod['spec']['nodeName']}")
    script = "exec 2>&1; wget -q -O- -T 5 --no-check-certificate https://kubernetes.default.svc/readyz"
    until(lambda: c.k("exec", name(c.guest()), "--", "sh", "-c", script).endswith("ok"), what=f"/readyz on {NODE}")


@check("join/machines-reach-pods-and-node-ports", deadline=90, needs=RUNNING)
def machines(c):
    service = c.json("service", "guest")["spec"]
    port = service["ports"][0]["nodePort"]
    addresses = [f"{pod['status']['podIP']}:8080" for pod in c.pods()]
    addresses += [f"{internal_ip(n)}:{port}" for n in c.json("nodes")["items"]] + [f"{service['clusterIP']}:80"]
    for run in (shell, lambda words: c.machine.run(*words)):
        for address in addresses:
            url = ["curl", "-s", "-m", "3", f"http://{address}/cgi-bin/who"]
            until(lambda run=run, url=url: "saw" in run(url).stdout, 20, what=f"an answer of {address}")


@check("join/machine-resolves-names", deadline=60, needs=RUNNING)
def resolves(c):
    """Cluster DNS serves pods; pods in the network of a joined machine are served as well."""
    dns = json.loads(c.k("get", "service", "kube-dns", "-n", "kube-system", "-o", "json"))["spec"]["clusterIP"]
    found = until(lambda: c.machine.run("busybox", "nslookup", "guest.join.svc.cluster.local", dns).stdout, 20)
    assert c.json("service", "guest")["spec"]["clusterIP"] in found, found


@check("join/node-changes-itself-only", needs=JOINED)
def identity(c):
    kubelet = Kubectl(os.path.join(c.machine.folder, "config", "kubelet.kubeconfig"))
    assert f"system:node:{NODE}" in kubelet("auth", "whoami")
    other = next(name(n) for n in c.json("nodes")["items"] if name(n) != NODE)
    for words in (("label", "node", other, "taken=yes"), ("get", "secrets", "-A"), ("delete", "node", other),
                  ("label", "node", other, f"{GATEWAY}=192.0.2.1"), ("label", "node", NODE, f"{GATEWAY}=192.0.2.1"),
                  ("get", "configmaps", "-A")):
        assert "orbidden" in kubelet.run(*words, okay=False).stderr, words


@check("join/second-join-changes-nothing", deadline=100, needs=JOINED)
def again(c):
    def pids():
        status = c.machine.run(c.ironclad, "status", "--data-dir", c.machine.folder, "--output", "json")
        assert status.returncode == 0, status.stderr
        return {component["name"]: component["pid"] for component in json.loads(status.stdout)["components"]}
    before = pids()
    assert set(before) == {"containerd", "kubelet", "kube-proxy"}, before
    done = c.join(timeout=90)
    assert done.returncode == 0, done.stderr
    assert pids() == before


@check("join/routes-are-repaired", deadline=100, needs=JOINED)
def routes(c):
    def count():
        return len(shell("ip -4 route show proto 119").stdout.splitlines())
    assert count() == 1, shell("ip -4 route").stdout
    shell("ip -4 route flush proto 119")
    # Each change of a node repairs them; without one, the next minute does.
    c.k("label", "node", NODE, "repair=yes")
    until(lambda: count() == 1, 30, what="the route to the joined machine")


@check("join/reset-leaves-nothing", deadline=200, needs=JOINED)
def reset(c):
    c.k(*documented("kubectl drain"), "--timeout=60s", timeout=90)
    done = c.machine.run(c.ironclad, *documented("ironclad reset"), "--data-dir", c.machine.folder, timeout=150)
    assert done.returncode == 0 and f"kubectl delete node {NODE}" in done.stdout, done.stderr
    c.k(*documented("kubectl delete"))
    assert not os.path.exists(c.machine.folder), os.listdir(c.machine.folder)
    left = []
    for what, before in c.before.items():
        try:
            until(lambda what=what, before=before: not changes(c.machine, what, before), 10)
        except AssertionError:
            left.append(f"{what}: {changes(c.machine, what, before)}"[:400])
    commands = {
        "processes": f"pgrep -af -- '{c.machine.folder}([/ ]|$)' | grep -v join.py",
        "route of the first machine": "ip -4 route show proto 119",
    }
    for what, command in commands.items():
        try:
            until(lambda command=command: not shell(command).stdout.strip(), 20)
        except AssertionError:
            left.append(f"{what}: {shell(command).stdout}"[:400])
    assert not left, "; ".join(left)
    c.k("delete", "namespace", "join", "--ignore-not-found", "--wait=false")


def stop(context):
    """Resets the second machine if a check failed before."""
    if context.machine is None:
        return
    if os.path.exists(context.machine.folder):
        context.machine.run(context.ironclad, "reset", "--data-dir", context.machine.folder, timeout=150)
        context.k.run("delete", "node", NODE, "--ignore-not-found", okay=None)
    context.machine.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    parser.add_argument("--work", required=True)
    context = Context(parser.parse_args())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        code = main(context)
    finally:
        stop(context)
    sys.exit(code)
