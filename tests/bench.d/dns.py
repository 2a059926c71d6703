#!/usr/bin/env python3
"""Cost of requests of cluster-dns, and of CoreDNS in the same run if it is installed, at the same API server.

CoreDNS is $STOCK_COREDNS, or coredns in PATH.
"""
import argparse
import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from alone import free_port, running, start  # noqa: E402
from figures import table, write  # noqa: E402

NAMESPACE = "bench-dns"
SERVICES, HEADLESS, ENDPOINTS = 1000, 100, 20
# kubeadm's, without what has no counterpart here: loop, reload, loadbalance, which shuffles records, and the log of errors.
COREFILE = """.:{port} {{
    bind 127.0.0.1
    health 127.0.0.1:{health}
    ready 127.0.0.1:{ready}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig} c
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    prometheus 127.0.0.1:{metrics}
    forward . 127.0.0.1:{resolver} {{
        max_concurrent 1000
    }}
    cache 30 {{
        disable success cluster.local
        disable denial cluster.local
    }}
}}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=1, help="alternate the servers so often")
    parser.add_argument("--options", default="", help="options of dns-bench")
    options = parser.parse_args()
    stock = os.environ.get("STOCK_COREDNS") or shutil.which("coredns")
    rounds = []
    with running(f"{options.bin}/kube-apiserver", f"{options.bin}/kvstore") as alone:
        create_objects(alone)
        for _ in range(options.rounds):
            figures = {"measured": measure(options, alone, own_server)}
            if stock:
                figures["stock"] = measure(options, alone, lambda *words: stock_server(stock, *words))
            show(figures)
            rounds.append(figures)
    write(options, rounds)


def create_objects(alone):
    """Creates the namespace, Services, and headless Services with endpoints."""
    context = ssl.create_default_context(cafile=f"{alone.folder}/ca.crt")
    context.load_cert_chain(f"{alone.folder}/admin.crt", f"{alone.folder}/admin.key")
    connection = http.client.HTTPSConnection("127.0.0.1", alone.port, context=context)

    def post(path, body):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        if response.status != 201:
            raise SystemExit(f"{path}: {response.status} {text[:300]}")

    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    services = f"/api/v1/namespaces/{NAMESPACE}/services"
    post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for i in range(SERVICES):
        post(services, {"metadata": {"name": f"s{i}"}, "spec": {"ports": ports, "selector": {"app": f"s{i}"}}})
    for i in range(HEADLESS):
        post(services, {"metadata": {"name": f"h{i}"}, "spec": {"ports": ports, "clusterIP": "None"}})
        endpoints = [{"addresses": [f"10.244.{i}.{n + 1}"], "conditions": {"ready": True}} for n in range(ENDPOINTS)]
        post(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
             {"metadata": {"name": f"h{i}-1", "labels": {"kubernetes.io/service-name": f"h{i}"}}, "addressType": "IPv4",
              "ports": ports, "endpoints": endpoints})


def own_server(options, alone, port, resolver):
    return start(alone.folder, "cluster-dns", f"{options.bin}/cluster-dns", f"--kubeconfig={alone.kubeconfig}",
                 f"--listen=127.0.0.1:{port}", f"--upstream=127.0.0.1:{resolver}", "--allow=127.0.0.0/8",
                 f"--health-address=127.0.0.1:{free_port()}")


def stock_server(stock, options, alone, port, resolver):
    path = f"{alone.folder}/Corefile"
    with open(path, "w") as f:
        f.write(COREFILE.format(port=port, health=free_port(), ready=free_port(), metrics=free_port(), resolver=resolver,
                                kubeconfig=alone.kubeconfig))
    return start(alone.folder, "coredns", stock, "-conf", path)


def measure(options, alone, begin):
    port, resolver = free_port(), free_port()
    with ended(begin(options, alone, port, resolver)) as server:
        wait_answer(port, f"s{SERVICES - 1}.{NAMESPACE}.svc.cluster.local")
        words = ["--seconds=2"] if options.quick else []
        command = [f"{options.bin}/dns-bench", f"--server=127.0.0.1:{port}", f"--pid={server.pid}", f"--resolver=127.0.0.1:{resolver}",
                   f"--services={SERVICES}", f"--headless={HEADLESS}"]
        done = subprocess.run(command + words + options.options.split(), stdout=subprocess.PIPE, text=True, timeout=600)
        if done.returncode != 0:
            raise SystemExit("dns-bench failed; its log is on standard error")
        return json.loads(done.stdout)


@contextlib.contextmanager
def ended(process):
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_answer(port, name):
    """Waits until the server answers with an address."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    request = b"\0\1\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1"
    end = time.monotonic() + 60
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.2)
        s.connect(("127.0.0.1", port))
        while time.monotonic() < end:
            try:
                s.send(request)
                if int.from_bytes(s.recv(4096)[6:8], "big") > 0:
                    return
            except OSError:
                pass
            time.sleep(0.1)
    raise SystemExit(f"no answer for {name} within 60 s")


def show(figures):
    columns = list(figures)
    rows = []
    for row in figures["measured"]:
        found = [next((r for r in figures[name] if r["what"] == row["what"]), None) for name in columns]
        rows.append([row["what"], *(describe(r) if r else "" for r in found)])
    table(["requests", *columns], rows)


def describe(row):
    text = f"{row['rate']:.0f}/s, CPU {row['cpu_us']} us, {row['rate_per_core']:.0f}/s and core; at {row['paced_rate']:.0f}/s " \
           f"p50 {row['p50_us']} us, p99 {row['p99_us']} us; RSS {row['rss_mb']} MB"
    return text + (f"; lost {row['lost']}, WRONG {row['wrong']}" if row["lost"] or row["wrong"] else "")


main()
