#!/usr/bin/env python3
"""Pod start through the API (POST until a watch shows Running) compared with the same runtime alone (CRI)."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from figures import arguments, bench, table, write  # noqa: E402


def endpoint(data_dir):
    with open(os.path.join(data_dir, "settings.json")) as f:
        settings = json.load(f)
    given = settings.get("runtimeEndpoint") or settings.get("runtime_endpoint")
    for folder in ("/run/ironclad", *(f"/run/{n}" for n in os.listdir("/run") if n.startswith("ironclad-")), data_dir):
        if given:
            break
        for root, _, files in os.walk(folder):
            if "containerd.sock" in files:
                given = f"unix://{root}/containerd.sock"
    return given


def main():
    options = arguments()
    socket = endpoint(options.data_dir)
    runs = {
        "runtime alone, one after another": ("floor", "--endpoint", socket, "--count", "20"),
        "through the API, one after another": ("pods", "--kubeconfig", options.kubeconfig, "--count", "20"),
        "runtime alone, 50 with 4 callers": ("floor", "--endpoint", socket, "--count", "50", "--callers", "4"),
        "through the API, 50 at once": ("pods", "--kubeconfig", options.kubeconfig, "--count", "50", "--together"),
    }
    figures = {name: bench(options, *words) for name, words in runs.items()}
    table(("work", "median ms", "p90 ms", "max ms", "all s"),
          [(n, f["median_ms"], f["p90_ms"], f["max_ms"], f["whole_s"]) for n, f in figures.items()])
    write(options, figures)


main()
