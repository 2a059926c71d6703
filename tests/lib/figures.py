"""Shared by the benchmarks: arguments, a cluster's processes and their cost, tables."""
import argparse
import json
import os
import subprocess

TICKS = os.sysconf("SC_CLK_TCK")
CONTROL_PLANE = ("kvstore", "kube-apiserver", "kube-scheduler", "kube-controller-manager")


def arguments():
    parser = argparse.ArgumentParser()
    for word in ("kubeconfig", "data-dir", "bin", "up-log", "json"):
        parser.add_argument(f"--{word}", required=True)
    return parser.parse_args()


def components(options):
    done = subprocess.run([f"{options.bin}/ironclad", "status", "--data-dir", options.data_dir, "--output", "json"],
                          capture_output=True, text=True)
    return {c["name"]: c["pid"] for c in json.loads(done.stdout)["components"]}


def usage(pid):
    """Returns RSS in MB, CPU seconds and MB written of a process."""
    with open(f"/proc/{pid}/status") as f:
        rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{pid}/io") as f:
        written = next(int(line.split()[1]) for line in f if line.startswith("write_bytes")) / 1e6
    return rss, (int(fields[11]) + int(fields[12])) / TICKS, written


def table(headings, rows):
    print("| " + " | ".join(headings) + " |\n|" + "---|" * len(headings))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def write(options, figures):
    with open(options.json, "w") as f:
        json.dump(figures, f, indent=1)


def bench(options, *words):
    done = subprocess.run([f"{options.bin}/cluster-bench", *words], capture_output=True, text=True, timeout=400)
    if done.returncode != 0:
        raise SystemExit(f"cluster-bench {' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout)
