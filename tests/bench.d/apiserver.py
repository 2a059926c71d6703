#!/usr/bin/env python3
"""Cost of requests of kube-apiserver on kvstore, and of stock ones on etcd if they are installed.

The stock components are $STOCK_APISERVER and $STOCK_ETCD, or kube-apiserver and etcd in PATH.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from alone import running  # noqa: E402
from figures import table, write  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--apiserver", help="another build of kube-apiserver to measure instead")
    parser.add_argument("--options", default="", help="options of `cluster-bench apiserver`")
    options = parser.parse_args()
    own = options.apiserver or f"{options.bin}/kube-apiserver"
    figures = {"measured": measure(options, own, f"{options.bin}/kvstore")}
    stock, etcd = find("STOCK_APISERVER", "kube-apiserver"), find("STOCK_ETCD", "etcd")
    if stock and etcd:
        figures["stock"] = measure(options, stock, etcd)
    show(figures)
    write(options, figures)


def find(variable, name):
    return os.environ.get(variable) or shutil.which(name)


def measure(options, apiserver, store):
    """Starts a store and an API server alone, and measures them."""
    with running(apiserver, store) as alone:
        words = ["--objects=1600", "--requests=500", "--watchers=100", "--rounds=2"] if options.quick else []
        command = [f"{options.bin}/cluster-bench", "apiserver", f"--kubeconfig={alone.kubeconfig}", f"--pid={alone.pid}"]
        done = subprocess.run(command + words + options.options.split(), stdout=subprocess.PIPE, text=True, timeout=3600)
        if done.returncode != 0:
            raise SystemExit(f"{apiserver}: cluster-bench failed; its log is on standard error")
        return json.loads(done.stdout)


def show(figures):
    columns = list(figures)
    rows = [[row["what"], row["size"]] for row in figures["measured"]]
    for name in columns:
        found = {(row["what"], row["size"]): row for row in figures[name]}
        for row in rows:
            row.append(describe(found.get((row[0], row[1]), {})))
    table(["work", "objects or watchers", *columns], rows)


def describe(row):
    if "rate" in row:
        return f"{row['rate']:.0f}/s, {row['p50_ms']} and {row['p99_ms']} ms, CPU {row['cpu_ms']} ms"
    return " ".join(f"{value} {unit}" for unit, value in row.items() if unit not in ("what", "size"))


main()
