#!/usr/bin/env python3
"""A cluster of several nodes on one machine: each node has what is its own, and pods of all nodes reach each other.

    nodes.py --kubeconfig FILE --data-dir DIR --ironclad BINARY
"""
import argparse
import ipaddress
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, shell, until  # noqa: E402

# Answers with the name of the pod and the address from which the request came.
SERVER = """mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\\necho\\necho "$(hostname) saw $REMOTE_ADDR"\\n' >/tmp/www/cgi-bin/who
chmod +x /tmp/www/cgi-bin/who
echo started on $NODE
exec httpd -f -p 8080 -h /tmp/www"""

LABELS = {"app": "talker"}
TALKERS = [
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "talker"}, "spec": {
        "selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [{
                "name": "c", "image": "ironclad.local/busybox:1", "command": ["sh", "-c", SERVER],
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "talker"}, "spec": {
        "type": "NodePort", "selector": LABELS, "ports": [{"port": 80, "targetPort": 8080}]}},
]
RUNNING = ("nodes/daemon-runs-on-each",)


class Context:
    def __init__(self, options):
        self.k, self.data, self.ironclad = Kubectl(options.kubeconfig, "nodes"), options.data_dir, options.ironclad

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json"))

    def nodes(self):
        return self.json("nodes")["items"]

    def talkers(self):
        return self.json("pods", "-l", "app=talker")["items"]

    def status(self):
        return json.loads(shell([self.ironclad, "status", "--data-dir", self.data, "--output", "json"]).stdout)

    def ask(self, pod, url):
        return self.k("exec", name(pod), "--", "wget", "-q", "-O-", "-T", "5", url)


def name(item):
    return item["metadata"]["name"]


def internal_ip(node):
    return next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP")


@check("nodes/names-addresses-and-ranges-differ")
def values(c):
    nodes = c.nodes()
    assert len(nodes) > 1, f"{len(nodes)} node"
    for values in ([name(n) for n in nodes], [internal_ip(n) for n in nodes], [n["spec"]["podCIDR"] for n in nodes]):
        assert len(set(values)) == len(nodes), values
    placed = {component["node"] for component in c.status()["components"]}
    assert placed == {name(n) for n in nodes}, f"the status names {placed}"


@check("nodes/daemon-runs-on-each", deadline=120)
def daemon(c):
    c.k("create", "namespace", "nodes")
    c.k("apply", "-f", "-", stdin="\n---\n".join(json.dumps(item) for item in TALKERS))
    c.k("rollout", "status", "daemonset/talker", "--timeout=90s", timeout=100)
    ranges = {name(n): ipaddress.ip_network(n["spec"]["podCIDR"]) for n in c.nodes()}
    assert {pod["spec"]["nodeName"] for pod in c.talkers()} == set(ranges)
    for pod in c.talkers():
        assert ipaddress.ip_address(pod["status"]["podIP"]) in ranges[pod["spec"]["nodeName"]], pod["status"]


@check("nodes/pods-see-each-others-addresses", deadline=90, needs=RUNNING)
def pairs(c):
    pods = c.talkers()
    for caller in pods:
        for callee in pods:
            url = f"http://{callee['status']['podIP']}:8080/cgi-bin/who"
            answer = until(lambda caller=caller, url=url: c.ask(caller, url))
            expected = f"{name(callee)} saw .*{re.escape(caller['status']['podIP'])}\\b"
            assert re.search(expected, answer), f"{name(caller)} on {caller['spec']['nodeName']} asked: {answer}"


@check("nodes/services-and-names-on-each", deadline=120, needs=RUNNING)
def services(c):
    names = {name(pod) for pod in c.talkers()}
    for pod in c.talkers():
        seen = set()

        def all_seen(pod=pod, seen=seen):
            seen.add(c.ask(pod, "http://talker.nodes.svc.cluster.local/cgi-bin/who").split()[0])
            return seen == names
        until(all_seen, 40, 0.05, f"answers of {names} on {pod['spec']['nodeName']}")
        script = "exec 2>&1; wget -q -O- -T 5 --no-check-certificate https://kubernetes.default.svc/readyz"
        until(lambda pod=pod, script=script: c.k("exec", name(pod), "--", "sh", "-c", script).endswith("ok"), what=f"/readyz on {pod['spec']['nodeName']}")


def policy(policy_name, **spec):
    return json.dumps({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": policy_name},
                       "spec": {"podSelector": {"matchLabels": LABELS}, **spec}})


@check("nodes/policies-isolate-pods-of-the-node-and-of-others", deadline=120, needs=RUNNING)
def policies(c):
    """A client on the node of a talker, a policy that denies, one that allows, and the end of both."""
    talkers = c.talkers()
    image = {"name": "c", "image": "ironclad.local/busybox:1", "command": ["sleep", "600"]}
    guest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guest", "labels": {"app": "guest"}},
             "spec": {"nodeName": talkers[0]["spec"]["nodeName"], "terminationGracePeriodSeconds": 0, "containers": [image]}}
    c.k("apply", "-f", "-", stdin=json.dumps(guest))
    c.k("wait", "--for=condition=Ready", "pod/guest", "--timeout=60s", timeout=70)

    def connects(url):
        return c.k.run("exec", "guest", "--", "wget", "-q", "-O-", "-T", "1", url, okay=None).returncode == 0

    urls = [f"http://{pod['status']['podIP']}:8080/cgi-bin/who" for pod in talkers]
    urls.append("http://talker.nodes.svc.cluster.local/cgi-bin/who")
    allow = [{"from": [{"podSelector": {"matchLabels": {"app": "guest"}}}], "ports": [{"port": 8080}]}]
    for change, expect in [
        (lambda: "", True),
        (lambda: c.k.run("apply", "-f", "-", stdin=policy("deny")).stderr, False),
        (lambda: c.k.run("apply", "-f", "-", stdin=policy("allow", ingress=allow)).stderr, True),
        (lambda: c.k.run("delete", "networkpolicy", "allow").stderr, False),
        (lambda: c.k.run("delete", "networkpolicy", "deny").stderr, True),
    ]:
        assert "not enforced" not in change()
        for url in urls:
            until(lambda url=url, expect=expect: connects(url) == expect, 20, 0.05, f"{url}: {expect}")
    c.k("delete", "pod", "guest", "--wait=false")


@check("nodes/machine-reaches-pods-and-node-ports", deadline=90, needs=RUNNING)
def from_machine(c):
    port = c.json("service", "talker")["spec"]["ports"][0]["nodePort"]
    addresses = [f"{pod['status']['podIP']}:8080" for pod in c.talkers()] + [f"{internal_ip(n)}:{port}" for n in c.nodes()]
    for address in addresses:
        until(lambda address=address: "saw" in shell(["curl", "-s", "-m", "3", f"http://{address}/cgi-bin/who"]).stdout, 20,
              what=f"an answer of {address}")


@check("nodes/kubelets-serve-logs-exec-and-port-forward", deadline=90, needs=RUNNING)
def kubelets(c):
    for pod in c.talkers():
        node = pod["spec"]["nodeName"]
        assert f"started on {node}" in c.k("logs", name(pod))
        assert c.k("exec", name(pod), "--", "hostname").strip() == name(pod)
        forward = c.k.start("port-forward", f"pod/{name(pod)}", ":8080")
        try:
            local = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
            assert local, f"port-forward to {node}"
            text = until(lambda local=local: shell(["curl", "-s", "-m", "3", f"http://127.0.0.1:{local.group(1)}/cgi-bin/who"]).stdout, 30)
            assert name(pod) in text, text
        finally:
            forward.kill()
            forward.wait()


@check("nodes/kubelet-changes-its-own-node-only")
def identity(c):
    folder = os.path.join(c.data, "nodes")
    if not os.path.isdir(folder):
        raise Skip("there is one node")
    own = [component["node"] for component in c.status()["components"] if component["name"] == "kubelet-2"][0]
    other = next(name(n) for n in c.nodes() if name(n) != own)
    kubelet = Kubectl(os.path.join(folder, "2", "config", "kubelet.kubeconfig"))
    assert f"system:node:{own}" in kubelet("auth", "whoami")
    assert "orbidden" in kubelet.run("label", "node", other, "taken=yes", okay=False).stderr
    assert "orbidden" in kubelet.run("get", "secrets", "-A", okay=False).stderr
    assert "orbidden" in kubelet.run("delete", "node", other, okay=False).stderr


@check("nodes/loopback-addresses-are-guarded-on-each")
def guard(c):
    pins = os.path.join(c.status()["runDir"], "namespaces")
    networks = [f"--net={os.path.join(pins, pin)}" for pin in sorted(os.listdir(pins)) if pin.endswith(".net")]
    assert len(networks) == len(c.nodes()) - 1, networks
    for network in networks:
        tables = shell(["nsenter", network, "nft", "list", "tables"]).stdout.split("\n")
        table = next(table for table in tables if table.startswith("table ip ironclad"))
        rules = shell(["nsenter", network, "nft", "list", *table.split()]).stdout
        assert rules.count("127.0.0.0/8 drop") == 2 and "masquerade" not in rules, rules


@check("nodes/mounts-stay-on-their-node", needs=RUNNING)
def mounts(c):
    """A mount of another node's would keep its volumes busy."""
    with open("/proc/mounts") as f:
        points = [line.split()[1] for line in f]
    foreign = [p for p in points if p.startswith((f"{c.data}/nodes/", f"{c.status()['runDir']}/nodes/"))]
    assert not foreign, foreign[:5]


@check("nodes/status-that-others-changed-is-reported-again", needs=RUNNING, deadline=150)
def unknown(c):
    """As after an interruption: the node lifecycle controller calls the node and its pods not ready, and the kubelet is back.

    The kubelet reads its Node again for each report, as upstream, and not only when its own view has changed.
    """
    node = name(c.nodes()[1])
    pod = next(p for p in c.talkers() if p["spec"]["nodeName"] == node)

    def ready(kind, of):
        return next(x["status"] for x in c.json(kind, of)["status"]["conditions"] if x["type"] == "Ready")

    # Twice: new images may be the reason of the first report.
    for _ in range(2):
        for kind, of, status in (("node", node, "Unknown"), ("pod", name(pod), "False")):
            c.k("patch", kind, of, "--subresource=status", "-p", json.dumps(
                {"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Test"}]}}))
        until(lambda: ready("node", node) == "True", 30, what="the node is Ready again")
        until(lambda: ready("pod", name(pod)) == "True", 30, what="its pod is Ready again")
    until(lambda: not c.json("node", node)["spec"].get("taints"), 30, what="no taint is left")


@check("nodes/second-up-changes-nothing", deadline=120)
def again(c):
    before = {component["name"]: component["pid"] for component in c.status()["components"]}
    done = shell([c.ironclad, "up", "--data-dir", c.data], timeout=100)
    assert done.returncode == 0, done.stderr
    assert {component["name"]: component["pid"] for component in c.status()["components"]} == before
    fewer = shell([c.ironclad, "up", "--data-dir", c.data, "--nodes", "1"])
    assert fewer.returncode == 1 and "can't be removed yet" in fewer.stderr, fewer.stderr
    c.k("delete", "namespace", "nodes", "--ignore-not-found", timeout=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    sys.exit(main(Context(parser.parse_args())))
