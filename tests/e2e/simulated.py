#!/usr/bin/env python3
"""All binaries on loopback with kubelets on the simulated runtime: workloads converge, also after any process is killed.

    simulated.py --kubeconfig FILE --data-dir DIR --ironclad BINARY
"""
import argparse
import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, shell, until  # noqa: E402

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
    "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}}}

WEB = ("simulated/deployment",)


class Context:
    def __init__(self, options):
        self.k, self.data, self.ironclad = Kubectl(options.kubeconfig), options.data_dir, options.ironclad

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json"))

    def components(self):
        done = shell([self.ironclad, "status", "--data-dir", self.data, "--output", "json"])
        return {c["name"]: c for c in json.loads(done.stdout)["components"]}

    def scaled(self, replicas):
        self.k("scale", "deployment", "web", f"--replicas={replicas}")
        until(lambda: self.json("deployment", "web")["status"].get("readyReplicas", 0) == replicas, 60,
              what=f"{replicas} ready replicas")


@check("simulated/node-ready")
def node_ready(c):
    c.k("wait", "node", "--all", "--for=condition=Ready", "--timeout=30s")


@check("simulated/nodes-have-addresses-of-their-own")
def node_addresses(c):
    nodes = c.json("nodes")["items"]
    addresses = [a["address"] for n in nodes for a in n["status"]["addresses"] if a["type"] == "InternalIP"]
    ranges = [n["spec"]["podCIDR"] for n in nodes]
    assert len(set(addresses)) == len(set(ranges)) == len(nodes) == 2, f"{addresses} {ranges}"


@check("simulated/deployment", deadline=90)
def deployment(c):
    c.k("apply", "-f", "-", stdin=json.dumps(DEPLOYMENT))
    c.k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    addresses = [p["status"]["podIP"] for p in c.json("pods", "-l", "app=web")["items"]]
    assert len(set(addresses)) == 3, addresses


@check("simulated/service-endpoints", needs=WEB)
def service(c):
    c.k("expose", "deployment", "web", "--port=80")
    until(lambda: sum(len(s["endpoints"]) for s in c.json("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]) == 3)


@check("simulated/pod-status-of-another-client-is-repaired", deadline=90, needs=WEB)
def repaired(c):
    """The node lifecycle controller marks the pods of a node that was not ready; only the kubelet reverts that."""
    name = c.json("pods", "-l", "app=web")["items"][0]["metadata"]["name"]

    def ready():
        conditions = c.json("pod", name)["status"]["conditions"]
        return next(condition["status"] for condition in conditions if condition["type"] == "Ready")
    # The second repair may come 10 s after the first.
    for _ in range(2):
        change = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        c.k("patch", "pod", name, "--subresource=status", "--type=strategic", "-p", json.dumps(change))
        until(lambda: ready() == "True", 30, what="the pod is ready again")


@check("simulated/pod-failed-by-another-client-is-torn-down", deadline=90)
def failed_by_client(c):
    c.k("run", "victim", "--image=web:1")
    c.k("wait", "pod/victim", "--for=condition=Ready", "--timeout=30s", timeout=40)
    c.k("patch", "pod", "victim", "--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Failed", "reason": "Lost"}}')
    until(lambda: "terminated" in c.json("pod", "victim")["status"]["containerStatuses"][0]["state"], 40,
          what="the container is terminated")
    status = c.json("pod", "victim")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Lost"), status
    c.k("delete", "pod", "victim", "--timeout=30s", timeout=40)


@check("simulated/rollout", deadline=90, needs=WEB)
def rollout(c):
    c.k("set", "image", "deployment/web", "c=web:2")
    c.k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    c.k("rollout", "undo", "deployment/web")
    c.k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    assert c.json("deployment", "web")["spec"]["template"]["spec"]["containers"][0]["image"] == "web:1"


@check("simulated/owner-chain-is-collected", deadline=90)
def collected(c):
    c.k("create", "deployment", "brief", "--image=web:1")
    until(lambda: c.json("pods", "-l", "app=brief")["items"])
    c.k("delete", "deployment", "brief")
    until(lambda: not c.json("pods", "-l", "app=brief")["items"] and not c.json("rs", "-l", "app=brief")["items"], 60)


@check("simulated/namespace-is-emptied", deadline=90)
def namespace(c):
    c.k("create", "ns", "gone")
    c.k("create", "configmap", "x", "-n", "gone")
    c.k("create", "deployment", "d", "-n", "gone", "--image=web:1")
    c.k("delete", "ns", "gone", timeout=80)


@check("simulated/kill-each-process", deadline=300, needs=WEB)
def kill_each(c):
    for turn, name in enumerate(sorted(c.components())):
        before = c.components()[name]
        os.kill(before["pid"], signal.SIGKILL)
        until(lambda: (lambda now: now["ready"] and now["pid"] != before["pid"])(c.components()[name]), 60,
              what=f"{name} is back")
        until(lambda: c.k("get", "--raw", "/readyz") == "ok", 30)
        c.scaled(2 + turn % 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    sys.exit(main(Context(parser.parse_args())))
