#!/usr/bin/env python3
"""A cluster without a pod network (`--cni none`): the node waits for one, and is Ready once the user has installed it.

    foreign_network.py --ironclad BINARY --work DIR

The cluster runs in a mount namespace: its runtime reads the machine's directories of plugins and their configurations.
"""
import argparse
import json
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, until  # noqa: E402

IMAGES = os.path.join(os.path.dirname(__file__), "..", "..", "deploy", "images")
RANGE = "10.244.0.0/16"
FOLDERS = ("/opt/cni/bin", "/etc/cni/net.d")
# Ends when its standard input does.
PREPARE = "mount --make-rprivate / && mkdir -p {f} && for d in {f}; do mount -t tmpfs tmpfs $d; done && echo ready && exec cat"
CONFLIST = {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ironclad-cni", "bridge": "cni0", "ipam": {
    "type": "host-local", "dataDir": "{work}/records", "ranges": [[{"subnet": "10.244.0.0/24"}]]}, "capabilities": {"portMappings": True}}]}
UP = ("foreign-network/node-waits-for-a-network",)
# A second address on the bridge of tests/areas/cluster.sh, as another node's.
DEVICE, OTHER = "node0", "198.51.100.77"
# The address record of kubernetes.default.svc.cluster.local, with the ID 7.
LOOKUP = b"\0\7\1\0\0\1\0\0\0\0\0\0\nkubernetes\7default\3svc\7cluster\5local\0\0\1\0\1"


class Context:
    def __init__(self, options):
        self.ironclad, self.work = options.ironclad, options.work
        self.data = os.path.join(self.work, "data")
        script = PREPARE.format(f=" ".join(FOLDERS))
        self.holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"

    @property
    def k(self):
        return Kubectl(os.path.join(self.data, "admin.kubeconfig"))

    def inside(self, *words, timeout=120):
        enter = ["nsenter", "-t", str(self.holder.pid), "--mount", "--"]
        return subprocess.run([*enter, *words], capture_output=True, text=True, timeout=timeout)

    def node(self):
        return json.loads(self.k("get", "nodes", "-o", "json"))["items"][0]

    def readiness(self):
        return next(x for x in self.node()["status"]["conditions"] if x["type"] == "Ready")


@check("foreign-network/node-waits-for-a-network", deadline=120)
def start(c):
    done = c.inside(c.ironclad, "up", "--data-dir", c.data, "--pick-ports", "--cni", "none", timeout=200)
    assert done.returncode == 0, done.stderr
    assert "no pod network" in done.stderr and "10.244.0.0/16" in done.stderr, done.stderr
    condition = c.readiness()
    assert condition["status"] == "False" and "NetworkReady" in condition["message"], condition
    found = c.inside(c.ironclad, "doctor", "--data-dir", c.data)
    assert found.returncode == 1 and "has no pod network" in found.stdout, found.stdout + found.stderr
    assert "enforced" in c.k.run("apply", "-f", "-", stdin=json.dumps({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
        "spec": {"podSelector": {}}})).stderr, "a policy that this program does not enforce brings a warning"
    c.k("delete", "networkpolicy", "deny")


def link_loopback(c):
    """containerd before 2.0 runs this plugin beside that of the network."""
    c.inside("ln", "-sf", "ironclad-cni", f"{FOLDERS[0]}/loopback")


def import_agent(c):
    """Makes the image of the agent, and imports it into the runtime of the cluster. Returns its name."""
    done = subprocess.run([IMAGES, "--bin-dir", os.path.dirname(c.ironclad), "--output", c.work, "ironclad-cni"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    run = json.loads(c.inside(c.ironclad, "status", "--data-dir", c.data, "--output", "json").stdout)["runDir"]
    [socket_path] = [os.path.join(folder, "containerd.sock") for folder, _, files in os.walk(run) if "containerd.sock" in files]
    imported = c.inside("ctr", "--address", socket_path, "--namespace", "k8s.io", "images", "import", done.stdout.split()[-1])
    assert imported.returncode == 0, imported.stderr
    return done.stderr.split()[1]


def agent(c, image):
    """As the page describes it: a DaemonSet of privileged pods in the network of the node."""
    folders = (*FOLDERS, f"{c.work}/agent")
    words = [f"--cluster-cidr={RANGE}", f"--install-plugin={FOLDERS[0]}", f"--data-dir={c.work}/agent", "--hostname-override=$(NODE_NAME)"]
    name = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    labels, meta = {"app": "agent"}, {"name": "ironclad-cni", "namespace": "kube-system"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "ironclad-cni"},
         "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "ironclad-cni"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ironclad-cni"},
         "subjects": [{"kind": "ServiceAccount", "name": "ironclad-cni", "namespace": "kube-system"}]},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "hostNetwork": True, "serviceAccountName": "ironclad-cni", "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "agent", "image": image, "imagePullPolicy": "Never", "args": words, "env": [name],
                                "securityContext": {"privileged": True},
                                "volumeMounts": [{"name": f"v{n}", "mountPath": folder} for n, folder in enumerate(folders)]}],
                "volumes": [{"name": f"v{n}", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}} for n, folder in enumerate(folders)]}}}},
    ]


@check("foreign-network/agent-of-the-pod-network-runs-in-a-pod", deadline=180, needs=UP)
def agent_in_a_pod(c):
    objects = agent(c, import_agent(c))
    system = Kubectl(c.k.kubeconfig, "kube-system")
    system("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    try:
        until(lambda: c.readiness()["status"] == "True", 90, what="the node is Ready")
        link_loopback(c)
        c.k("run", "guest", "--image=ironclad.local/busybox:1", "--restart=Never", "--", "sleep", "600")
        c.k("wait", "--for=condition=Ready", "pod/guest", "--timeout=60s", timeout=70)
        c.k("exec", "guest", "--", "nslookup", "kubernetes.default.svc.cluster.local")
        records = [name for name in os.listdir(f"{c.work}/agent/pods") if name.endswith(".json")]
        assert len(records) == 1, f"the plugin that the agent has copied made {records}"
    finally:
        # Until its kubelet has confirmed the end: the next pod gets the same address from the records of another network.
        c.k("delete", "pod", "guest", "--grace-period=1", "--ignore-not-found", "--timeout=60s", timeout=70)
        # With its pod: an agent that still runs writes the configuration again.
        system("delete", "daemonset/ironclad-cni", "--cascade=foreground", "--timeout=60s", timeout=70)
    # As the page says: after the pods, with the program of the machine.
    program = os.path.join(os.path.dirname(c.ironclad), "ironclad-cni")
    done = c.inside(program, "--cleanup", f"--cluster-cidr={RANGE}", f"--data-dir={c.work}/agent", "--hostname-override=x")
    assert done.returncode == 0, done.stderr
    left = subprocess.run(["sh", "-c", "ip -o link; nft list tables"], capture_output=True, text=True, check=True).stdout
    assert "cni0" not in left, left
    assert c.inside("ls", FOLDERS[1]).stdout == "", "the configuration is left"


@check("foreign-network/node-is-ready-with-the-network-of-the-user", deadline=120, needs=UP)
def install(c):
    conflist = os.path.join(c.work, "pods.conflist")
    with open(conflist, "w") as f:
        f.write(json.dumps(CONFLIST).replace("{work}", c.work))
    for source, target in ((os.path.join(os.path.dirname(c.ironclad), "ironclad-cni"), FOLDERS[0]), (conflist, f"{FOLDERS[1]}/10-pods.conflist")):
        done = c.inside("cp", source, target)
        assert done.returncode == 0, done.stderr
    link_loopback(c)
    until(lambda: c.readiness()["status"] == "True", 60, what="the node is Ready")
    c.k("run", "guest", "--image=ironclad.local/busybox:1", "--restart=Never", "--", "sleep", "600")
    c.k("wait", "--for=condition=Ready", "pod/guest", "--timeout=60s", timeout=70)
    c.k("exec", "guest", "--", "nslookup", "kubernetes.default.svc.cluster.local")
    c.k("delete", "pod", "guest", "--grace-period=0", "--force")


def resolves(source, server):
    """Returns whether the cluster's DNS answers an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind((source, 0))
        client.settimeout(1)
        client.sendto(LOOKUP, server)
        try:
            return client.recv(512)[:2] == LOOKUP[:2]
        except TimeoutError:
            return False


def warning(c):
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"}, "spec": {"podSelector": {}}}
    return c.k.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(policy)).stderr


@check("foreign-network/network-of-the-user-enforces-policies", deadline=120, needs=UP)
def enforced(c):
    assert "not enforced" in warning(c)
    for options, warns in (("--network-policies-enforced",), False), ((), False), (("--network-policies-enforced=false",), True):
        done = c.inside(c.ironclad, "up", "--data-dir", c.data, *options)
        assert done.returncode == 0, done.stderr
        assert ("not enforced" in warning(c)) == warns, (options, warning(c))


@check("foreign-network/nodes-are-clients-of-the-clusters-dns", deadline=60, needs=UP)
def dns_of_nodes(c):
    """A network that masquerades, such as flannel: requests of pods of other nodes come from their node's address."""
    if subprocess.run(["ip", "address", "add", f"{OTHER}/24", "dev", DEVICE], capture_output=True, check=False).returncode != 0:
        raise Skip(f"there is no {DEVICE}, as in the network of tests/areas/cluster.sh")
    found = json.loads(c.k("get", "endpointslice", "kube-dns-node", "-n", "kube-system", "-o", "json"))
    server = (found["endpoints"][0]["addresses"][0], found["ports"][0]["port"])
    until(lambda: resolves(server[0], server), 10, what="an answer for the node")
    assert not resolves(OTHER, server), f"{OTHER} is no node"
    c.k("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}))
    c.k("patch", "node", "other", "--subresource=status", "-p", json.dumps({"status": {"addresses": [{"type": "InternalIP", "address": OTHER}]}}))
    until(lambda: resolves(OTHER, server), 10, what="an answer for the other node")
    c.k("delete", "node", "other")
    until(lambda: not resolves(OTHER, server), 10, what="no answer after the deletion of the node")


@check("foreign-network/down-leaves-the-network-of-the-user", deadline=120)
def down(c):
    try:
        done = c.inside(c.ironclad, "down", "--data-dir", c.data, "--purge")
        assert done.returncode == 0, done.stderr
        assert c.inside("ls", f"{FOLDERS[1]}/10-pods.conflist").returncode == 0
    finally:
        for words in (("link", "delete", "cni0"), ("address", "delete", f"{OTHER}/24", "dev", DEVICE)):
            subprocess.run(["ip", *words], capture_output=True, check=False)
        c.holder.stdin.close()
        c.holder.wait(timeout=60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ironclad", required=True)
    parser.add_argument("--work", required=True)
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    sys.exit(main(Context(options)))
