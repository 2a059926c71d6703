#!/usr/bin/env python3
"""Change of one endpoint with few and with 1,000 Services: the lines of the transaction (nft monitor), and the delay."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from figures import arguments, components, table, usage, write  # noqa: E402

NAMESPACE = "bench-proxy"


def objects(first, last):
    for i in range(first, last):
        yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{i}", "namespace": NAMESPACE},
               "spec": {"ports": [{"port": 80, "targetPort": 8080}]}}
        yield {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
               "metadata": {"name": f"s{i}", "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": f"s{i}"}},
               "endpoints": [{"addresses": [f"10.244.{200 + i // 250}.{i % 250 + 1}"], "conditions": {"ready": True}}],
               "ports": [{"name": "", "port": 8080, "protocol": "TCP"}]}


def installed(address):
    return address in subprocess.run(["nft", "list", "table", "ip", "kube-proxy"], capture_output=True, text=True).stdout


def wait(condition, what, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def change(kubectl, name, address):
    """Moves one endpoint; returns the milliseconds until the rules have it, and the lines of the transaction."""
    monitor = subprocess.Popen(["nft", "monitor"], stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    begun = time.monotonic()
    patch = json.dumps([{"op": "replace", "path": "/endpoints/0/addresses/0", "value": address}])
    subprocess.run([*kubectl, "-n", NAMESPACE, "patch", "endpointslice", name, "--type=json", "-p", patch], check=True,
                   stdout=subprocess.DEVNULL)
    wait(lambda: installed(address), "the new endpoint")
    took = (time.monotonic() - begun) * 1000
    time.sleep(1)
    monitor.terminate()
    lines = [line for line in monitor.stdout.read().splitlines() if "kube-proxy" in line]
    return round(took), len(lines)


def main():
    options = arguments()
    kubectl = [os.environ.get("KUBECTL", "kubectl"), "--kubeconfig", options.kubeconfig]
    subprocess.run([*kubectl, "create", "namespace", NAMESPACE], check=True, stdout=subprocess.DEVNULL)
    figures, rows = {}, []
    for first, last in ((0, 10), (10, 1000)):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects(first, last))})
        subprocess.run([*kubectl, "create", "-f", "-"], input=text, text=True, check=True, stdout=subprocess.DEVNULL)
        wait(lambda last=last: installed(f"10.244.{200 + (last - 1) // 250}.{(last - 1) % 250 + 1}"), "the last Service's rules")
        cpu = usage(components(options)["kube-proxy"])[1]
        took, lines = change(kubectl, "s5", f"10.244.199.{last % 250 + 1}")
        cpu = usage(components(options)["kube-proxy"])[1] - cpu
        figures[last] = {"services": last, "lines": lines, "ms": took, "cpu_ms": round(cpu * 1000)}
        rows.append(figures[last].values())
    table(("Services", "lines the kernel was told", "ms from kubectl's start", "proxy CPU ms"), rows)
    write(options, figures)


main()
