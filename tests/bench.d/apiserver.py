#!/usr/bin/env python3
"""Cost of requests of kube-apiserver on kvstore, and of stock ones on etcd if they are installed.

The stock components are $STOCK_APISERVER and $STOCK_ETCD, or kube-apiserver and etcd in PATH.
`--growth` measures how the cost grows with the numbers of objects, watchers and CustomResourceDefinitions.
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

# Runs of the growth, each with servers of its own: the command of cluster-bench and its options.
GROWTH = [
    *((("apiserver", f"--objects={count}", "--requests=4000", "--rounds=3", "--parts=get,select,patch,list"))
      for count in (1_000, 10_000, 100_000)),
    *((("apiserver", "--objects=64", f"--watchers={count}", "--parts=watch")) for count in (10, 100, 1_000, 10_000)),
    *((("extension", f"--crds={count}", "--rounds=3", "--parts=crds")) for count in (1, 100, 500)),
]
# The stock server needs more than the 60 s of a request to delete 100,000 pods, and minutes for 500 definitions.
STOCK_LIMITS = ("--objects=100000", "--crds=500")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--apiserver", help="another build of kube-apiserver to measure instead")
    parser.add_argument("--options", default="", help="options of `cluster-bench apiserver`")
    options = parser.parse_args()
    own = options.apiserver or f"{options.bin}/kube-apiserver"
    figures = {"measured": measure(options, own, f"{options.bin}/kvstore", GROWTH)}
    stock, etcd = find("STOCK_APISERVER", "kube-apiserver"), find("STOCK_ETCD", "etcd")
    if stock and etcd:
        growth = [words for words in GROWTH if not set(STOCK_LIMITS) & set(words)]
        figures["stock"] = measure(options, stock, etcd, growth)
    show(figures)
    write(options, figures)


def find(variable, name):
    return os.environ.get(variable) or shutil.which(name)


def measure(options, apiserver, store, growth):
    """Starts a store and an API server alone for each run, and returns the figures of all."""
    short = ["--objects=1600", "--requests=500", "--watchers=100", "--rounds=2"] if options.quick else []
    runs = growth if options.growth else [("apiserver", *short)]
    return [row for words in runs for row in run(options, apiserver, store, words)]


def run(options, apiserver, store, words):
    with running(apiserver, store) as alone:
        command = [f"{options.bin}/cluster-bench", words[0], f"--kubeconfig={alone.kubeconfig}", f"--pid={alone.pid}"]
        done = subprocess.run([*command, *words[1:], *options.options.split()], stdout=subprocess.PIPE, text=True, timeout=3600)
        if done.returncode != 0:
            raise SystemExit(f"{apiserver}: cluster-bench failed; its log is on standard error")
        return json.loads(done.stdout)


def show(figures):
    columns = list(figures)
    # Of runs that differ in something else, the first one counts.
    rows = [list(key) for key in dict.fromkeys((row["what"], row["size"]) for row in figures["measured"])]
    for name in columns:
        found = {(row["what"], row["size"]): row for row in reversed(figures[name])}
        for row in rows:
            row.append(describe(found.get((row[0], row[1]), {})))
    table(["work", "objects or watchers", *columns], rows)


def describe(row):
    if "rate" in row:
        return f"{row['rate']:.0f}/s, {row['p50_ms']} and {row['p99_ms']} ms, CPU {row['cpu_ms']} ms"
    return " ".join(f"{value} {unit}" for unit, value in row.items() if unit not in ("what", "size"))


main()
