#!/usr/bin/env python3
"""The cluster's own pod network (`--cni ironclad`) on two nodes of one machine, in each family of the cluster.

    pod_network.py --kubeconfig FILE --data-dir DIR --ironclad BINARY
"""
import argparse
import ipaddress
import json
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, shell, until  # noqa: E402

# Answers with the name of the pod and the address from which the request came.
SERVER = """mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\\necho\\necho "$(hostname) saw $REMOTE_ADDR"\\n' >/tmp/www/cgi-bin/who
chmod +x /tmp/www/cgi-bin/who
exec httpd -f -p 8080 -h /tmp/www"""
LABELS = {"app": "talker"}
HOST_PORT = 18080
TALKERS = [
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "talker"}, "spec": {
        "selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [{
                "name": "c", "image": "ironclad.local/busybox:1", "command": ["sh", "-c", SERVER],
                "ports": [{"containerPort": 8080, "hostPort": HOST_PORT}],
                "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "talker"}, "spec": {
        "selector": LABELS, "ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80, "targetPort": 8080}]}},
]
# Of the cluster: the checks run in several ones.
NAME = os.environ.get("NETWORK", "pod-network")
STARTED = (f"{NAME}/pods-have-an-address-of-each-family",)
# Requests one after the other, and stops at a file: prints how many were sent and how many failed.
TRAFFIC = """sent=0 failed=0
while [ ! -e /tmp/stop ] || [ $sent -lt 10 ]; do
  sent=$((sent+1)); {request} >/dev/null 2>&1 || failed=$((failed+1))
  [ $sent -eq 1 ] && touch /tmp/begun
done
rm -f /tmp/stop /tmp/begun; echo "$sent $failed\""""


class Context:
    def __init__(self, options):
        self.k, self.data, self.ironclad = Kubectl(options.kubeconfig, "pod-network"), options.data_dir, options.ironclad
        with open(os.path.join(self.data, "settings.json")) as f:
            self.settings = json.load(f)
        self.families = [ipaddress.ip_network(part).version for part in self.settings["podCidr"].split(",")]

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json"))

    def nodes(self):
        return self.json("nodes")["items"]

    def talkers(self):
        return sorted(self.json("pods", "-l", "app=talker")["items"], key=lambda pod: pod["spec"].get("nodeName", ""))

    def components(self):
        return json.loads(shell([self.ironclad, "status", "--data-dir", self.data, "--output", "json"]).stdout)["components"]

    def component(self, component):
        return next(c for c in self.components() if c["name"] == component)

    def ask(self, pod, address, port=80, seconds=5):
        return self.k("exec", name(pod), "--", "wget", "-q", "-O-", "-T", str(seconds), url(address, port))

    def under_traffic(self, pod, request, disturb):
        """Has a pod send requests while `disturb` runs. Returns the numbers of requests and of failures."""
        script = TRAFFIC.replace("{request}", request)
        sender = self.k.start("exec", name(pod), "--", "sh", "-c", script)
        try:
            until(lambda: self.k.run("exec", name(pod), "--", "test", "-e", "/tmp/begun"), 30)
            disturb()
        finally:
            self.k("exec", name(pod), "--", "touch", "/tmp/stop")
        output, _ = sender.communicate(timeout=60)
        return [int(word) for word in output.split()]

    def restart(self, component):
        """Kills a component, and waits until its next process is ready."""
        before = self.component(component)
        os.kill(before["pid"], signal.SIGKILL)

        def is_back():
            now = self.component(component)
            return now["ready"] and now["pid"] not in (None, before["pid"])
        until(is_back, 20, what=f"{component} runs again")


def name(item):
    return item["metadata"]["name"]


def url(address, port):
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}/cgi-bin/who"


def pod_addresses(pod):
    return [ip["ip"] for ip in pod["status"]["podIPs"]]


def node_addresses(node):
    return [a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"]


def versions(addresses):
    return [ipaddress.ip_address(address).version for address in addresses]


@check(f"{NAME}/nodes-have-an-address-and-a-range-of-each-family")
def nodes(c):
    for node in c.nodes():
        ranges = [ipaddress.ip_network(text) for text in node["spec"]["podCIDRs"]]
        assert [r.version for r in ranges] == c.families, node["spec"]
        assert versions(node_addresses(node)) == c.families, node["status"]["addresses"]
    kubernetes = Kubectl(c.k.kubeconfig).run("get", "service", "kubernetes", "-o", "json").stdout
    assert versions(json.loads(kubernetes)["spec"]["clusterIPs"]) == c.families[:1], kubernetes


@check(f"{NAME}/pods-have-an-address-of-each-family", deadline=120)
def pods(c):
    c.k("create", "namespace", "pod-network")
    c.k("apply", "-f", "-", stdin="\n---\n".join(json.dumps(item) for item in TALKERS))
    c.k("rollout", "status", "daemonset/talker", "--timeout=90s", timeout=100)
    ranges = {name(n): n["spec"]["podCIDRs"] for n in c.nodes()}
    # A node may have become Ready after that.
    until(lambda: sum("podIPs" in pod["status"] for pod in c.talkers()) == len(ranges) == 2, 60, what="a pod runs on each node")
    for pod in c.talkers():
        addresses = pod_addresses(pod)
        assert versions(addresses) == c.families, addresses
        for address, pods in zip(addresses, ranges[pod["spec"]["nodeName"]]):
            assert ipaddress.ip_address(address) in ipaddress.ip_network(pods), (address, pods)


@check(f"{NAME}/pods-of-both-nodes-see-each-others-addresses", deadline=90, needs=STARTED)
def pairs(c):
    for caller in c.talkers():
        for callee in c.talkers():
            for source, address in zip(pod_addresses(caller), pod_addresses(callee)):
                answer = until(lambda caller=caller, address=address: c.ask(caller, address, 8080))
                expected = f"{name(callee)} saw .*{re.escape(source)}\\]?$"
                assert re.search(expected, answer.strip()), f"{name(caller)} asked {address}: {answer}"


@check(f"{NAME}/services-have-an-address-of-each-family", deadline=90, needs=STARTED)
def services(c):
    addresses = c.json("service", "talker")["spec"]["clusterIPs"]
    assert versions(addresses) == c.families, addresses
    names = {name(pod) for pod in c.talkers()}
    for pod in c.talkers():
        for address in [*addresses, "talker.pod-network.svc.cluster.local"]:
            seen = set()

            def all_seen(pod=pod, seen=seen, address=address):
                seen.add(c.ask(pod, address).split()[0])
                return seen == names
            until(all_seen, 30, 0.02, f"answers of {names} at {address} on {pod['spec']['nodeName']}")
    for address in addresses:
        until(lambda address=address: "saw" in shell(["curl", "-g", "-s", "-m", "3", url(address, 80)]).stdout, 20,
              what=f"the machine reaches {address}")


@check(f"{NAME}/host-ports-lead-to-the-pod-of-the-node", deadline=90, needs=STARTED)
def host_ports(c):
    here = {pod["spec"]["nodeName"]: name(pod) for pod in c.talkers()}
    for node in c.nodes():
        for address in node_addresses(node):
            def answer(address=address):
                return shell(["curl", "-g", "-s", "-m", "3", url(address, HOST_PORT)]).stdout
            until(lambda node=node, answer=answer: answer().startswith(here[name(node)] + " saw"), 20, what=f"host port at {address}")
            for pod in c.talkers():
                assert c.ask(pod, address, HOST_PORT).startswith(here[name(node)]), (name(pod), address)


@check(f"{NAME}/way-to-the-other-node-is-that-of-the-backend", needs=STARTED)
def backend(c):
    routes = [line for family in "46" for line in shell(["ip", f"-{family}", "route", "show", "proto", "120"]).stdout.split("\n") if line]
    assert len(routes) == len(c.families), routes
    is_tunnel = c.settings["cniBackend"] == "vxlan"
    assert all(("dev vxlan-pods" in route) == is_tunnel for route in routes), routes


@check(f"{NAME}/traffic-goes-on-while-the-agents-restart", deadline=90, needs=STARTED)
def agents(c):
    caller, callee = c.talkers()
    agents = [component["name"] for component in c.components() if component["name"].startswith("ironclad-cni")]
    assert len(agents) == 2, agents
    for address in pod_addresses(callee):
        sent, failed = c.under_traffic(caller, f"wget -q -O- -T 2 '{url(address, 8080)}'", lambda: [c.restart(agent) for agent in agents])
        assert sent > 1 and failed == 0, f"{failed} of {sent} requests to {address} failed"


@check(f"{NAME}/names-resolve-while-the-dns-server-of-the-node-restarts", deadline=90, needs=STARTED)
def node_dns(c):
    address = c.settings.get("nodeDns")
    if not address:
        raise Skip("the cluster has no DNS servers of its nodes")
    for pod in c.talkers():
        servers = re.findall("^nameserver (.*)$", c.k("exec", name(pod), "--", "cat", "/etc/resolv.conf"), re.MULTILINE)
        assert servers[0] == address and len(servers) == 2, servers
        c.k("exec", name(pod), "--", "nslookup", "talker.pod-network.svc.cluster.local", address)
    pod = next(p for p in c.talkers() if p["spec"]["nodeName"] == c.settings["nodeName"])
    sent, failed = c.under_traffic(pod, "wget -q -O- -T 2 http://talker.pod-network.svc.cluster.local/cgi-bin/who", lambda: c.restart("node-dns"))
    # A server that has started and knows no Services yet responds with a failure.
    assert sent > 5 and failed <= 2, f"{failed} of {sent} requests failed"


@check(f"{NAME}/dns-server-of-the-node-responds-to-pods-with-the-network-of-the-node", deadline=90, needs=STARTED)
def host_network(c):
    """They send from the address of the server itself."""
    address = c.settings.get("nodeDns")
    if not address:
        raise Skip("the cluster has no DNS servers of its nodes")
    for number, node in enumerate(c.nodes()):
        agent = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"agent-{number}"}, "spec": {
            "nodeName": name(node), "hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "ironclad.local/busybox:1", "command": ["sleep", "600"]}]}}
        c.k("apply", "-f", "-", stdin=json.dumps(agent))
        c.k("wait", "--for=condition=Ready", f"pod/{name(agent)}", "--timeout=60s", timeout=70)
        c.k("exec", name(agent), "--", "nslookup", "talker.pod-network.svc.cluster.local", address)
        c.k("delete", "pod", name(agent), "--wait=false")


@check(f"{NAME}/dns-server-of-the-node-connects-again-without-root", deadline=90, needs=STARTED)
def reconnects(c):
    """Its credentials are read at each new connection, and it has given up root."""
    address = c.settings.get("nodeDns")
    if not address:
        raise Skip("the cluster has no DNS servers of its nodes")
    c.restart("kube-apiserver")
    until(lambda: c.k.run("get", "services", okay=None).returncode == 0, 30, what="the API server responds")
    c.k("create", "service", "clusterip", "later", "--tcp=80:80")
    for pod in c.talkers():
        until(lambda pod=pod: c.k.run("exec", name(pod), "--", "nslookup", "later.pod-network.svc.cluster.local", address, okay=None).returncode == 0,
              40, what=f"the server of {pod['spec']['nodeName']} knows a new Service")


@check(f"{NAME}/host-port-53-does-not-take-the-place-of-the-dns-server", deadline=90, needs=STARTED)
def host_port_53(c):
    address = c.settings.get("nodeDns")
    if not address:
        raise Skip("the cluster has no DNS servers of its nodes")
    node = c.settings["nodeName"]
    container = {"name": "c", "image": "ironclad.local/busybox:1", "command": ["sleep", "600"],
                 "ports": [{"containerPort": 53, "hostPort": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]}
    thief = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief"},
             "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}}
    c.k("apply", "-f", "-", stdin=json.dumps(thief))
    c.k("wait", "--for=condition=Ready", "pod/thief", "--timeout=60s", timeout=70)
    pod = next(p for p in c.talkers() if p["spec"]["nodeName"] == node)
    c.k("exec", name(pod), "--", "nslookup", "talker.pod-network.svc.cluster.local", address)
    c.k("delete", "pod", "thief", "--wait=false")


@check(f"{NAME}/isolated-pod-asks-the-dns-server-of-its-node", deadline=90, needs=STARTED)
def isolated(c):
    """A policy does not restrict what a pod and its own node send to each other."""
    address = c.settings.get("nodeDns")
    if not address:
        raise Skip("the cluster has no DNS servers of its nodes")
    pod, other = c.talkers()
    spec = {"podSelector": {"matchLabels": LABELS}, "policyTypes": ["Egress", "Ingress"]}
    c.k("apply", "-f", "-", stdin=json.dumps({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                                              "metadata": {"name": "isolated"}, "spec": spec}))
    target = url(pod_addresses(other)[0], 8080)
    until(lambda: c.k.run("exec", name(pod), "--", "wget", "-q", "-O-", "-T", "1", target, okay=None).returncode != 0, 20,
          what="the policy is enforced")
    c.k("exec", name(pod), "--", "nslookup", "talker.pod-network.svc.cluster.local", address)
    c.k("delete", "networkpolicy", "isolated")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    sys.exit(main(Context(parser.parse_args())))
