#!/usr/bin/env python3
"""`ironclad backup` and `restore`: a cluster on the simulated runtime moves to another machine with every object.

    backup.py --ironclad BINARY --work DIR
"""
import argparse
import json
import os
import stat
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, shell, until  # noqa: E402

SAVED = ("backup/every-object-is-restored",)
# Any write changes the first, and the times of writers are in the second.
ALWAYS = ("resourceVersion", "managedFields")
# Containers start again, with other IDs, addresses and times. A pod is not ready in between, which changes the times of its owners' conditions.
TIMES = ("lastTransitionTime", "lastUpdateTime", "lastHeartbeatTime", "lastProbeTime")
CHANGED_STATUS = {
    "Pod": (*TIMES, "startTime", "startedAt", "finishedAt", "containerID", "restartCount", "lastState", "podIP", "podIPs"),
    "Deployment": TIMES, "ReplicaSet": TIMES, "Node": TIMES,
}
CHANGED = {
    # The new processes are the holders.
    "Lease": ("renewTime", "acquireTime", "holderIdentity", "leaseTransitions"),
    # Repeated events are counted, and not added.
    "Event": ("count", "lastTimestamp", "series"),
    # Controllers note when the endpoints changed.
    "EndpointSlice": ("endpoints.kubernetes.io/last-change-trigger-time",), "Endpoints": ("endpoints.kubernetes.io/last-change-trigger-time",),
}
# A restore removes the endpoints of the former API servers, and a process of an API server replaces the Lease of its host: these objects have
# other UIDs and times of creation.
MADE_AGAIN = (("Lease", "kube-system", "apiserver-"), ("EndpointSlice", "default", "kubernetes"), ("Endpoints", "default", "kubernetes"))
DEFINITION = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "shifts.example.com"},
              "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "shifts", "kind": "Shift"}, "versions": [
                  {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                      "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}
SHIFT = {"apiVersion": "example.com/v1", "kind": "Shift", "metadata": {"name": "night"}, "spec": {"hours": 8}}


class Context:
    def __init__(self, options):
        self.ironclad, self.work = options.ironclad, options.work
        self.old, self.new, self.file = (os.path.join(options.work, name) for name in ("old", "new", "backup.tar"))

    def run(self, *words, data=None, okay=True):
        done = shell([self.ironclad, *words, "--data-dir", data or self.old], timeout=180)
        assert (done.returncode == 0) == okay, f"{words} ended with {done.returncode}: {done.stderr}"
        return done.stderr

    def kubectl(self, data):
        return Kubectl(os.path.join(data, "admin.kubeconfig"))


def drop(value, names):
    """Returns a value without fields of these names, at any depth."""
    if isinstance(value, dict):
        return {name: drop(field, names) for name, field in value.items() if name not in names}
    return [drop(field, names) for field in value] if isinstance(value, list) else value


def comparable(item):
    """Returns an object without what the programs write again after a restore."""
    kind = item["kind"]
    item = drop(item, ALWAYS)
    if kind in CHANGED_STATUS:
        item["status"] = drop(item.get("status", {}), CHANGED_STATUS[kind])
    if kind in CHANGED:
        item = drop(item, CHANGED[kind])
    meta = item["metadata"]
    if any((kind, meta.get("namespace")) == made[:2] and meta["name"].startswith(made[2]) for made in MADE_AGAIN):
        item = drop(item, ("uid", "creationTimestamp"))
    return item


def objects(k):
    """Returns all objects by kind, namespace and name."""
    kinds = k("api-resources", "--verbs=list", "-o", "name").split()
    items = json.loads(k("get", ",".join(kinds), "-A", "-o", "json"))["items"]
    return {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): comparable(item) for item in items}


def check_equal(before, after):
    """The new processes may add events, and a controller its ServiceAccount if it had not begun before the backup."""
    changed = [show_change(key, item, after.get(key)) for key, item in before.items() if after.get(key) != item]
    added = [key for key in after if key not in before and key[0] != "Event" and key[:2] != ("ServiceAccount", "kube-system")]
    assert not changed and not added, f"changed: {changed[:6]}; added: {added}"
    return True


def show_change(key, before, after):
    """Returns the fields that differ."""
    old, new = dict(list_fields(before)), dict(list_fields(after or {}))
    return f"{key}: {[(field, old.get(field), new.get(field)) for field in {**old, **new} if old.get(field) != new.get(field)][:8]}"


def list_fields(value, path=""):
    """Yields the path and the value of each field."""
    if isinstance(value, (dict, list)) and value:
        for name, field in value.items() if isinstance(value, dict) else enumerate(value):
            yield from list_fields(field, f"{path}.{name}")
    else:
        yield path, value


@check("backup/every-object-is-restored", deadline=200)
def restored(c):
    """The new machine has another folder and nothing else of the old one."""
    c.run("up", "--simulated", "--pick-ports", "--node-name", "first")
    k = c.kubectl(c.old)
    k("create", "secret", "generic", "password", "--from-literal=a=b")
    k("create", "deployment", "web", "--image=web:1", "--replicas=2")
    k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    k("apply", "-f", "-", stdin=json.dumps(DEFINITION))
    until(lambda: k("apply", "-f", "-", stdin=json.dumps(SHIFT)), what="the custom resource is served")
    token = k("create", "token", "default").strip()
    # The rights of joining nodes were taken away: a restore must not grant them again.
    k("delete", "clusterrolebinding", "ironclad:node-autoapprove-bootstrap")
    # Controllers write for a moment what follows from these.
    before = until(lambda: (found := objects(k)) == objects(k) and found, 60, 1, "no object changes any more")
    c.run("backup", c.file)
    assert stat.S_IMODE(os.stat(c.file).st_mode) == 0o600
    k("delete", "secret", "password")
    c.run("down", "--purge")
    c.run("restore", c.file, data=c.new)
    c.run("up", data=c.new)
    k = c.kubectl(c.new)
    k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    # Nodes and endpoints are written again as the components start.
    until(lambda: check_equal(before, objects(k)), 60, 1, "the objects are equal")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    review = json.loads(k("create", "-f", "-", "-o", "json", stdin=json.dumps(review)))
    assert review["status"].get("authenticated"), review["status"]


@check("backup/file-that-exists-is-kept", needs=SAVED)
def kept(c):
    before = os.stat(c.file).st_size
    assert "exists" in c.run("backup", c.file, data=c.new, okay=False)
    assert os.stat(c.file).st_size == before and sorted(os.listdir(c.work)) == ["backup.tar", "new"]


@check("backup/running-cluster-is-not-replaced", needs=SAVED)
def running(c):
    assert "ironclad down" in c.run("restore", c.file, data=c.new, okay=False)
    c.kubectl(c.new)("get", "secret", "password")


@check("backup/state-of-before-is-kept", deadline=100, needs=SAVED)
def state_of_before(c):
    k = c.kubectl(c.new)
    k("create", "configmap", "later")
    c.run("down", data=c.new)
    c.run("restore", c.file, data=c.new)
    [folder] = [name for name in os.listdir(c.new) if name.startswith("before-restore-")]
    assert os.path.isdir(os.path.join(c.new, folder, "store")) and os.path.isfile(os.path.join(c.new, folder, "pki", "ca.key"))
    c.run("up", data=c.new)
    assert "later" not in k("get", "configmaps", "-o", "name")


@check("backup/damaged-file-changes-nothing", deadline=100, needs=SAVED)
def damaged(c):
    c.run("down", data=c.new)
    with open(c.file, "rb") as f:
        whole = f.read()
    names = sorted(os.listdir(c.new))
    def flip(at):
        return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]
    # In a key, in the snapshot, and cut off.
    key, middle = whole.index(b"PRIVATE KEY"), len(whole) - len(whole) // 3
    for bad in (flip(key), flip(middle), whole[:middle], b"", os.urandom(5000)):
        path = os.path.join(c.work, "damaged.tar")
        with open(path, "wb") as f:
            f.write(bad)
        c.run("restore", path, data=c.new, okay=False)
        assert sorted(os.listdir(c.new)) == names
        os.remove(path)
    c.run("up", data=c.new)


@check("backup/interrupted-restore-is-repeated", deadline=100, needs=SAVED)
def interrupted(c):
    """A restore ended when the store was moved away: nothing starts until a whole backup was restored, and the store is kept."""
    c.run("down", data=c.new)
    kept, state = (os.path.join(c.new, name) for name in ("before-restore-1", "restore-in-progress"))
    os.makedirs(kept)
    os.makedirs(state)
    with open(os.path.join(state, "state.json"), "w") as f:
        json.dump({"kept": kept}, f)
    os.rename(os.path.join(c.new, "store"), os.path.join(kept, "store"))
    for _ in range(2):
        assert "run `ironclad restore` again" in c.run("up", data=c.new, okay=False)
        assert "run `ironclad restore` again" in c.run("supervise", data=c.new, okay=False)
        c.run("restore", __file__, data=c.new, okay=False)
    # As on a new machine, where the settings would come last.
    os.remove(os.path.join(c.new, "settings.json"))
    assert kept in c.run("restore", c.file, data=c.new)
    assert os.path.isdir(os.path.join(kept, "store")) and not os.path.exists(state)
    c.run("up", data=c.new)
    c.kubectl(c.new)("get", "secret", "password")


@check("backup/directory-of-another-program-is-kept", needs=SAVED)
def foreign(c):
    """Also if it has the name of the directory in which a restore is prepared, and contains the backup."""
    other = os.path.join(c.work, "other")
    copy = os.path.join(other, "restore-in-progress", "backup.tar")
    os.makedirs(os.path.dirname(copy))
    os.link(c.file, copy)
    for file in (c.file, copy):
        c.run("restore", file, data=other, okay=False)
        assert os.path.exists(copy)
    os.remove(copy)
    os.removedirs(os.path.dirname(copy))


@check("backup/stopped-cluster-is-not-saved", deadline=100, needs=SAVED)
def stopped(c):
    c.run("down", data=c.new)
    other = os.path.join(c.work, "other.tar")
    assert "must run" in c.run("backup", other, data=c.new, okay=False)
    within = os.path.join(c.new, "pki", "backup.tar")
    assert "a directory that is saved" in c.run("backup", within, data=c.new, okay=False)
    assert sorted(os.listdir(c.work)) == ["backup.tar", "new"]
    c.run("down", "--purge", data=c.new)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ironclad", required=True)
    parser.add_argument("--work", required=True)
    options = parser.parse_args()
    os.makedirs(options.work)
    context = Context(options)
    status = main(context)
    for folder in (context.old, context.new):
        if os.path.exists(folder):
            shell([options.ironclad, "down", "--purge", "--data-dir", folder], timeout=100)
    sys.exit(status)
