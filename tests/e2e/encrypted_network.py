#!/usr/bin/env python3
"""A cluster of two nodes whose pods' packets between nodes are encrypted (`ironclad up --cni-backend wireguard`), with real containers. For a
kernel with WireGuard: the area vm runs it in a virtual machine.

    encrypted_network.py --ironclad BINARY --data-dir DIR
"""
import argparse
import ipaddress
import json
import os
import re
import socket
import statistics
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, shell, until  # noqa: E402

# In each response, and so in each packet of a connection that is not encrypted.
MARKER = "these-are-the-words-of-a-pod"
MIB = 32
# Answers with the name of the pod and the address from which the request came.
SERVER = f"""mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\\necho\\necho "$(hostname) saw $REMOTE_ADDR {MARKER}"\\n' >/tmp/www/cgi-bin/who
chmod +x /tmp/www/cgi-bin/who
head -c {MIB << 20} /dev/zero >/tmp/www/large
exec httpd -f -p 8080 -h /tmp/www"""
LABELS = {"app": "talker"}
TALKERS = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "talker"}, "spec": {
    "selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": {
        "terminationGracePeriodSeconds": 1, "containers": [{
            "name": "c", "image": "ironclad.local/busybox:1", "command": ["sh", "-c", SERVER],
            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "timeoutSeconds": 10}}]}}}}
# Prints the seconds of one download. The clock of the kernel has steps of 10 ms.
DOWNLOAD = "begin=$(cut -d' ' -f1 /proc/uptime); wget -q -O /dev/null {url} && echo $begin $(cut -d' ' -f1 /proc/uptime)"
PORT = 51820
# The machine of this check may translate each instruction.
PATIENCE = 240


class Context:
    def __init__(self, options):
        self.ironclad, self.data = options.ironclad, options.data_dir
        self.k = Kubectl(os.path.join(self.data, "admin.kubeconfig"))
        self.rates = {}

    def up(self, *words):
        done = shell([self.ironclad, "up", "--data-dir", self.data, *words], timeout=600)
        assert done.returncode == 0, done.stderr[-900:]

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json", timeout=PATIENCE))

    def talkers(self):
        """Returns the running pods, in the order of their nodes."""
        pods = [pod for pod in self.json("pods", "-l", "app=talker")["items"]
                if "podIP" in pod["status"] and "deletionTimestamp" not in pod["metadata"]]
        assert len(pods) == 2, [pod["status"] for pod in pods]
        return sorted(pods, key=lambda pod: pod["spec"]["nodeName"])

    def start_talkers(self):
        self.k("rollout", "status", "daemonset/talker", f"--timeout={PATIENCE}s", timeout=PATIENCE + 10)
        return until(self.talkers, PATIENCE)

    def execute(self, pod, script):
        return self.k("exec", pod["metadata"]["name"], "--", "sh", "-c", script, timeout=PATIENCE)


class Tap(threading.Thread):
    """Reads the packets on the link between the nodes."""

    def __init__(self, c):
        super().__init__(daemon=True)
        with open(os.path.join(c.data, "settings.json")) as f:
            self.pods = ipaddress.ip_network(json.load(f)["podCidr"])
        [other] = [a["address"] for node in c.json("nodes")["items"] for a in node["status"]["addresses"]
                   if a["type"] == "InternalIP" and a["address"] != own_address(c)]
        device = json.loads(shell(["ip", "-j", "route", "get", other]).stdout)[0]["dev"]
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((device, 0))
        self.socket.settimeout(0.5)
        self.encrypted = self.plain = self.marked = 0
        self.over = False

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.join(30)

    def run(self):
        while not self.over:
            try:
                self.count(self.socket.recv(65536))
            except TimeoutError:
                pass

    def count(self, frame):
        self.marked += MARKER.encode() in frame
        if frame[12:14] != b"\x08\x00" or len(frame) < 34:
            return
        begin = 14 + (frame[14] & 15) * 4
        ends = [ipaddress.ip_address(frame[at:at + 4]) for at in (26, 30)]
        self.plain += any(end in self.pods for end in ends)
        # UDP
        if frame[23] == 17 and len(frame) >= begin + 4:
            self.encrypted += PORT in struct.unpack("!HH", frame[begin:begin + 4])


def own_address(c):
    with open(os.path.join(c.data, "settings.json")) as f:
        return json.load(f)["nodeAddress"]


def address(pod):
    return pod["status"]["podIP"]


def reach_each_other(c, pods):
    """Each pod sees the address of the other one."""
    for caller, callee in (pods, pods[::-1]):
        answer = until(lambda caller=caller, callee=callee: c.execute(caller, f"wget -q -O- -T 20 http://{address(callee)}:8080/cgi-bin/who"), PATIENCE)
        assert re.search(rf"^{callee['metadata']['name']} saw .*{re.escape(address(caller))}\]? {MARKER}$", answer.strip()), answer


def measure(c, pods):
    """Returns the MiB/s of a download by a pod of one node from one of the other: the median of three."""
    rates = []
    for _ in range(3):
        begin, end = map(float, c.execute(pods[0], DOWNLOAD.format(url=f"http://{address(pods[1])}:8080/large")).split())
        rates.append(MIB / max(end - begin, 0.01))
    print(f"      {', '.join(f'{rate:.1f}' for rate in rates)} MiB/s", flush=True)
    return statistics.median(rates)


@check("encrypted/two-nodes-become-ready", deadline=600)
def started(c):
    c.up("--nodes", "2", "--cni", "ironclad", "--cni-backend", "wireguard", "--node-ip", "198.51.100.10")
    keys = [node["metadata"]["annotations"]["ironclad/wireguard-public-key"] for node in c.json("nodes")["items"]]
    assert len(set(keys)) == 2, keys


@check("encrypted/pods-reach-each-other-and-nothing-is-readable-on-the-link", deadline=600, needs=("encrypted/two-nodes-become-ready",))
def encrypted(c):
    c.k("apply", "-f", "-", stdin=json.dumps(TALKERS), timeout=PATIENCE)
    pods = c.start_talkers()
    with Tap(c) as tap:
        reach_each_other(c, pods)
    assert tap.encrypted > 10 and tap.plain == tap.marked == 0, vars(tap)
    c.rates["wireguard"] = measure(c, pods)


@check("encrypted/another-backend-sends-in-the-clear", deadline=600, needs=("encrypted/pods-reach-each-other-and-nothing-is-readable-on-the-link",))
def plain(c):
    """Shows that the check before would see it, and what encryption costs here."""
    c.up("--cni-backend", "auto")
    # Pods keep the packet size of their start.
    c.k("rollout", "restart", "daemonset/talker", timeout=PATIENCE)
    pods = c.start_talkers()
    with Tap(c) as tap:
        reach_each_other(c, pods)
    assert tap.encrypted == 0 and tap.plain > 10 and tap.marked > 0, vars(tap)
    rate = measure(c, pods)
    print(f"      {c.rates['wireguard'] / rate:.2f} of {rate:.1f} MiB/s with WireGuard", flush=True)


@check("encrypted/cluster-is-removed", deadline=600, needs=("encrypted/two-nodes-become-ready",))
def removed(c):
    done = shell([c.ironclad, "down", "--data-dir", c.data, "--purge"], timeout=500)
    assert done.returncode == 0, done.stderr[-900:]
    assert "wireguard" not in shell(["ip", "-o", "link"]).stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ironclad", required=True)
    parser.add_argument("--data-dir", required=True)
    sys.exit(main(Context(parser.parse_args())))
