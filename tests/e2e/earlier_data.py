#!/usr/bin/env python3
"""`ironclad up` with today's programs on the data directory that those of an earlier commit wrote (`tests/e2e/data`). Needs root.

    earlier_data.py --ironclad BINARY --work DIR
"""
import argparse
import json
import os
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, shell, until  # noqa: E402

FILE = os.path.join(os.path.dirname(__file__), "data", "cluster-82f0c1c7.tar.xz")
# The address of the node, as in the network of tests/lib/cluster.sh.
ADDRESS = "198.51.100.10"
# Events expire after an hour. A Lease of an API server that ended is deleted after an hour. The list of components is not stored.
EXPIRING = ("Event", "Lease", "ComponentStatus")
# Written by users only: the programs of a release may change the rest.
OWN = (("Secret", "password"), ("ConfigMap", "settings"), ("Deployment", "web"), ("Service", "web"), ("ResourceQuota", "limits"),
       ("Role", "reader"), ("CustomResourceDefinition", "shifts.example.com"), ("Shift", "night"))
STARTED = ("earlier-data/cluster-starts",)


class Context:
    def __init__(self, options):
        self.ironclad, self.work = os.path.abspath(options.ironclad), options.work
        self.data = os.path.join(options.work, "data")
        self.before = None

    @property
    def k(self):
        return Kubectl(os.path.join(self.data, "admin.kubeconfig"))

    def run(self, *words):
        done = shell([self.ironclad, *words, "--data-dir", self.data], timeout=150)
        assert done.returncode == 0, f"{words} ended with {done.returncode}: {done.stderr[-900:]}"
        return done


def by_key(items):
    """Returns the objects by kind, namespace and name."""
    return {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): item for item in items}


def content(item):
    """Returns what a user has written. A write of the same in a new form changes the resource version."""
    meta = {name: value for name, value in item["metadata"].items() if name not in ("resourceVersion", "managedFields")}
    return {**{name: value for name, value in item.items() if name != "status"}, "metadata": meta}


@check("earlier-data/cluster-starts", deadline=200)
def starts(c):
    """The directory has moved, and the programs, too: both are in its settings."""
    if os.geteuid() != 0 or ADDRESS not in shell("ip -o address").stdout:
        raise Skip(f"the node of the data has the address {ADDRESS}, which only root gives to the network of the tests")
    with tarfile.open(FILE) as archive:
        archive.extractall(c.work, filter="fully_trusted")
    path = os.path.join(c.data, "settings.json")
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    settings.update(dataDir=c.data, binDir=os.path.dirname(c.ironclad))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(settings, file)
    with open(os.path.join(c.work, "objects.json"), encoding="utf-8") as file:
        c.before = by_key(json.load(file)["items"])
    c.run("up")
    assert "no problems" in until(lambda: "no problems" in (text := c.run("doctor").stdout) and text, 60)


@check("earlier-data/every-object-is-there", deadline=60, needs=STARTED)
def objects(c):
    kinds = c.k("api-resources", "--verbs=list", "-o", "name").split()
    after = by_key(json.loads(c.k("get", ",".join(kinds), "-A", "-o", "json"))["items"])
    compared = {key: item for key, item in c.before.items() if key[0] not in EXPIRING}
    assert len(compared) > 200, len(compared)
    missing = [key for key, item in compared.items() if after.get(key, {"metadata": {}})["metadata"].get("uid") != item["metadata"]["uid"]]
    assert not missing, f"missing, or made again: {missing}"
    own = [key for key in compared if (key[0], key[2]) in OWN]
    assert len(own) == len(OWN), own
    changed = [(content(compared[key]), content(after[key])) for key in own if content(compared[key]) != content(after[key])]
    assert not changed, f"changed: {changed}"


@check("earlier-data/cluster-works", deadline=120, needs=STARTED)
def works(c):
    """The controllers continue with the objects, and the store with its revisions."""
    last = max(int(item["metadata"]["resourceVersion"]) for item in c.before.values() if item["metadata"].get("resourceVersion"))
    c.k("scale", "deployment/web", "--replicas=3")
    c.k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    created = json.loads(c.k("create", "configmap", "later", "-o", "json"))
    assert int(created["metadata"]["resourceVersion"]) > last, created["metadata"]
    c.k("patch", "shift", "night", "--type=merge", "-p", '{"spec": {"hours": 9}}')
    c.run("down")
    c.run("up")
    assert c.k("get", "shift", "night", "-o", "jsonpath={.spec.hours}") == "9"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ironclad", required=True)
    parser.add_argument("--work", required=True)
    context = Context(parser.parse_args())
    os.makedirs(context.work, exist_ok=True)
    try:
        status = main(context)
    finally:
        if os.path.isdir(context.data):
            shell([context.ironclad, "down", "--data-dir", context.data, "--purge"], timeout=100)
    sys.exit(status)
