#!/usr/bin/env python3
"""`ironclad down --purge` leaves nothing of a cluster behind.

    purge.py --data-dir DIR --ironclad BINARY
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import check, main, shell, until  # noqa: E402


@check("purge/nothing-is-left", deadline=200)
def purge(c):
    settings = os.path.join(c.data_dir, "settings.json")
    done = shell([c.ironclad, "down", "--data-dir", c.data_dir, "--purge"], timeout=180)
    assert done.returncode == 0, done.stderr
    assert not os.path.exists(c.data_dir) and not os.path.exists(settings), f"{c.data_dir} is still there"
    left = []
    for what, command in {
        "processes": f"pgrep -af -- '{c.data_dir}([/ ]|$)' | grep -v purge.py",
        "mounts": f"grep -F '{c.data_dir}' /proc/mounts; grep -E '/run/ironclad' /proc/mounts",
        "namespaces": "ip netns list | grep cni-",
        "tables": "nft list tables | grep -iE 'ironclad|kube-proxy'",
        "bridges": "ip -o link show type bridge | grep -E 'ironclad0|ic-[0-9a-f]{8}'",
        "cgroups": "find /sys/fs/cgroup -maxdepth 3 -type d -name '*kubepods*' -o -maxdepth 3 -type d -name '*ironclad*'",
    }.items():
        try:
            until(lambda command=command: not shell(command).stdout.strip(), 10)
        except AssertionError:
            left.append(f"{what}: {shell(command).stdout.strip()[:300]}")
    assert not left, "; ".join(left)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    sys.exit(main(parser.parse_args()))
