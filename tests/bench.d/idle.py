#!/usr/bin/env python3
"""Idle for three minutes with the example running: memory, CPU and disk writes of each process."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from figures import CONTROL_PLANE, arguments, components, table, usage, write  # noqa: E402

SECONDS = int(os.environ.get("IDLE_SECONDS", "180"))


def main():
    options = arguments()
    kubectl = [os.environ.get("KUBECTL", "kubectl"), "--kubeconfig", options.kubeconfig]
    subprocess.run([*kubectl, "apply", "-f", "deploy/examples/hello.yaml"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*kubectl, "-n", "hello", "rollout", "status", "deployment/backend", "--timeout=120s"], check=True,
                   stdout=subprocess.DEVNULL)
    time.sleep(20)
    pids = components(options)
    before = {name: usage(pid) for name, pid in pids.items()}
    time.sleep(SECONDS)
    rows, figures = [], {}
    for name, pid in pids.items():
        rss, cpu, written = usage(pid)
        share = (cpu - before[name][1]) / SECONDS * 100
        figures[name] = {"rss_mb": round(rss, 1), "cpu_percent": round(share, 2), "written_mb": round(written - before[name][2], 2)}
        rows.append((name, *figures[name].values()))
    total = lambda names, key: round(sum(figures[n][key] for n in names if n in figures), 2)  # noqa: E731
    ours = [n for n in figures if n != "containerd"]
    for label, names in (("control plane", CONTROL_PLANE), ("all but the runtime", ours)):
        rows.append((f"**{label}**", total(names, "rss_mb"), total(names, "cpu_percent"), total(names, "written_mb")))
    table(("process", "RSS MB", "% of a core", f"MB written in {SECONDS} s"), rows)
    write(options, figures)


main()
