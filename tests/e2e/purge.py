#!/usr/bin/env python3
"""`ironclad down --purge` removes everything of a cluster.

    purge.py --note FILE                                          what there is before the cluster, of others
    purge.py --before FILE --data-dir DIR --ironclad BINARY
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import check, main, shell, until  # noqa: E402

TRACES = {
    "mounts": "awk '{print $2}' /proc/mounts | grep -E '/run/ironclad'",
    "namespaces": "ip netns list | grep cni-; awk '$3 == \"nsfs\" {print $2}' /proc/mounts | grep -v /run/netns/",
    "tables": "nft list tables | grep -iE 'ironclad|kube-proxy|(pods|hostports)-ic'",
    "devices": "ip -brief link show | grep -oE '^(ironclad0|ironclad-n[a-z0-9]+|ironclad-dns|vxlan-pods|ic-[0-9a-f]{8}|icn[0-9]*-[0-9a-f]{8})'",
    "routes": "(ip -4 route show; ip -6 route show) | grep -E '^10\\.244\\.|^198\\.1[89]\\.|^fd'",
    "cgroups": "find /sys/fs/cgroup -maxdepth 3 -type d -name '*kubepods*' -o -maxdepth 3 -type d -name '*ironclad*'",
}


def lines(command):
    return set(shell(command).stdout.strip().split("\n")) - {""}


def traces():
    return {what: sorted(lines(command)) for what, command in TRACES.items()}


@check("purge/nothing-is-left", deadline=200)
def purge(c):
    with open(c.before) as f:
        before = json.load(f)
    settings = os.path.join(c.data_dir, "settings.json")
    done = shell([c.ironclad, "down", "--data-dir", c.data_dir, "--purge"], timeout=180)
    assert done.returncode == 0, done.stderr
    assert not os.path.exists(c.data_dir) and not os.path.exists(settings), f"{c.data_dir} is still there"
    commands = {what: (command, set(before[what])) for what, command in TRACES.items()}
    commands["processes"] = (f"pgrep -af -- '{c.data_dir}([/ ]|$)' | grep -v purge.py", set())
    commands["mounts of the folder"] = (f"grep -F '{c.data_dir}' /proc/mounts", set())
    left = []
    for what, (command, others) in commands.items():
        try:
            until(lambda command=command, others=others: not lines(command) - others, 10)
        except AssertionError:
            left.append(f"{what}: {sorted(lines(command) - others)}"[:300])
    assert not left, "; ".join(left)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--note")
    parser.add_argument("--before")
    parser.add_argument("--data-dir")
    parser.add_argument("--ironclad")
    options = parser.parse_args()
    if options.note:
        with open(options.note, "w") as f:
            json.dump(traces(), f)
        sys.exit(0)
    sys.exit(main(options))
