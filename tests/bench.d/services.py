#!/usr/bin/env python3
"""Cost of 10,000 Services with 50,000 endpoints in kube-proxy, and in the stock one if it is installed, at the same API server.

All of it runs in a network namespace of its own. The stock program is --peer-binary, $STOCK_KUBE_PROXY, or stock-kube-proxy in PATH.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from alone import free_port, running, start  # noqa: E402
from figures import TICKS, table, write  # noqa: E402

NAMESPACE, NODE = "bench-services", "bench"
ENDPOINTS = 5
NETLINK_NETFILTER, NFNLGRP_NFTABLES = 12, 7
# Upstream's least time between two syncs is 1 s: changes are farther apart, so that none waits for it.
PAUSE = 1.2


def main():
    options = arguments()
    if os.environ.get("BENCH_NAMESPACE") != "own":
        os.environ["BENCH_NAMESPACE"] = "own"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "addr", "add", "192.0.2.2/32", "dev", "lo"], check=True)
    programs = {"measured": options.proxy or f"{options.bin}/kube-proxy"}
    stock = options.peer_binary or os.environ.get("STOCK_KUBE_PROXY") or shutil.which("stock-kube-proxy")
    if stock:
        programs["stock"] = stock
    rounds = []
    with running(f"{options.bin}/kube-apiserver", f"{options.bin}/kvstore") as alone:
        create_objects(alone, options.services)
        for _ in range(options.rounds):
            rounds.append({name: measure(alone, program, options) for name, program in programs.items()})
    show(rounds, options)
    write(options, {"services": options.services, "mode": options.mode, "rounds": rounds})


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--quick", action="store_true", help="1,000 Services and 10 changes")
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1, help="alternate the programs so often")
    parser.add_argument("--mode", default="nftables", choices=["nftables", "iptables"])
    parser.add_argument("--proxy", help="another build of kube-proxy to measure instead")
    parser.add_argument("--peer-binary", help="the stock kube-proxy")
    options = parser.parse_args()
    if options.quick:
        options.services, options.changes = 1000, 10
    return options


class Connection:
    """A connection to the API server as administrator."""

    def __init__(self, alone):
        context = ssl.create_default_context(cafile=f"{alone.folder}/ca.crt")
        context.load_cert_chain(f"{alone.folder}/admin.crt", f"{alone.folder}/admin.key")
        self.http = http.client.HTTPSConnection("127.0.0.1", alone.port, context=context)

    def send(self, method, path, body, kind="application/json"):
        self.http.request(method, path, json.dumps(body), {"Content-Type": kind})
        response = self.http.getresponse()
        text = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {text[:300]}")


def endpoint_address(number):
    return f"10.{100 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"


def endpoint(address, number):
    pod = {"kind": "Pod", "namespace": NAMESPACE, "name": f"pod-{number}", "uid": f"00000000-0000-4000-8000-{number:012d}"}
    return {"addresses": [address], "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": f"node-{number % 100}", "targetRef": pod}


def create_objects(alone, count):
    connection = Connection(alone)
    connection.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    connection.send("POST", "/api/v1/nodes", {"metadata": {"name": NODE}, "spec": {"podCIDR": "10.244.0.0/24"}})
    status = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.2"}]}}
    connection.send("PATCH", f"/api/v1/nodes/{NODE}/status", status, "application/merge-patch+json")
    workers = threading.local()

    def create(n):
        if not hasattr(workers, "connection"):
            workers.connection = Connection(alone)
        name = f"service-{n}"
        labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
        workers.connection.send("POST", f"/api/v1/namespaces/{NAMESPACE}/services", {
            "metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
        first = n * ENDPOINTS
        endpoints = [endpoint(endpoint_address(i), i) for i in range(first, first + ENDPOINTS)]
        workers.connection.send("POST", f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", {
            "metadata": {"name": name, "labels": labels}, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(count)))


class Process:
    """A running kube-proxy."""

    def __init__(self, alone, program, options):
        self.metrics = free_port()
        self.process = start(alone.folder, "proxy", program, f"--kubeconfig={alone.kubeconfig}", f"--proxy-mode={options.mode}",
                             f"--hostname-override={NODE}", "--cluster-cidr=10.244.0.0/16", "--conntrack-max-per-core=0",
                             f"--healthz-bind-address=127.0.0.1:{free_port()}", f"--metrics-bind-address=127.0.0.1:{self.metrics}")

    def cpu(self):
        """Returns the seconds of the process and of the programs that it ran."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return sum(int(field) for field in fields[11:15]) / TICKS

    def memory(self, name):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith(name)) / 1024

    def count(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=30)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{") or line.startswith(name + " "))

    def wait_installed(self, services):
        """Waits for the last Service's rules; asks for the metric alone, which costs the program next to nothing."""
        end = time.monotonic() + 1800
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise SystemExit(f"kube-proxy ended with {self.process.returncode}")
            try:
                if self.count("kubeproxy_sync_full_proxy_rules_duration_seconds_count") > 0:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"the rules of {services} Services were not installed within 1,800 s")


class Notifications:
    """What the kernel notifies of changed nftables rules."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        # SO_RCVBUFFORCE: all notifications of a change.
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)
        self.socket.bind((0, 1 << (NFNLGRP_NFTABLES - 1)))

    def wait(self, text, seconds=60):
        """Waits until a changed rule contains the bytes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.socket.settimeout(max(end - time.monotonic(), 0.001))
            if text in self.socket.recv(1 << 20):
                return
        raise SystemExit(f"no rule within {seconds} s")


def change(connection, notifications, number, services):
    """Moves one endpoint; returns the milliseconds from the request until the response, and until the kernel has the rule."""
    service, address = number * 7919 % services, f"10.200.{number // 250}.{number % 250 + 1}"
    patch = [{"op": "replace", "path": "/endpoints/0/addresses/0", "value": address}]
    path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/service-{service}"
    begun = time.monotonic()
    connection.send("PATCH", path, patch, "application/json-patch+json")
    responded = time.monotonic()
    notifications.wait(socket.inet_aton(address))
    return (responded - begun) * 1000, (time.monotonic() - begun) * 1000


CHANGES = iter(range(1, 60_000))


def measure(alone, program, options):
    begun = time.monotonic()
    proxy = Process(alone, program, options)
    try:
        proxy.wait_installed(options.services)
        figures = {"install_s": time.monotonic() - begun, "install_cpu_s": proxy.cpu(), "peak_mb": proxy.memory("VmHWM")}
        # Until what follows an installation is done, and memory is returned.
        time.sleep(15)
        figures["rss_mb"] = proxy.memory("VmRSS")
        notifications, connection, cpu, took = Notifications(), Connection(alone), proxy.cpu(), []
        for _ in range(options.changes):
            took.append(change(connection, notifications, next(CHANGES), options.services))
            time.sleep(PAUSE)
        figures["change_cpu_ms"] = (proxy.cpu() - cpu) * 1000 / options.changes
        figures["request_median_ms"] = statistics.median(requested for requested, _ in took)
        took = sorted(installed for _, installed in took)
        figures["change_median_ms"] = statistics.median(took)
        figures["change_p99_ms"] = took[min(len(took) - 1, len(took) * 99 // 100)]
        figures["rss_after_mb"] = proxy.memory("VmRSS")
        return {name: round(value, 1) for name, value in figures.items()}
    finally:
        proxy.process.terminate()
        proxy.process.wait()
        subprocess.run(["nft", "flush", "ruleset"], check=True)


def show(rounds, options):
    names = list(rounds[0])
    print(f"{options.services} Services, {options.services * ENDPOINTS} endpoints, mode {options.mode}")
    heads = [f"{name} {n + 1}" if len(rounds) > 1 else name for n in range(len(rounds)) for name in names]
    rows = [[what.replace("_", " "), *(figures[name][what] for figures in rounds for name in names)]
            for what in rounds[0][names[0]]]
    table(["figure", *heads], rows)


main()
