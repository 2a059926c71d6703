#!/usr/bin/env python3
"""Resizes of running pods: the limits in the cgroups of the node and the status change, and no container restarts.

    resize.py --kubeconfig FILE
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, until  # noqa: E402

MIB = 1 << 20
RESIZE = "/api/v1/namespaces/resize/pods/{}/resize"
CGROUPS = "/sys/fs/cgroup"
# Files with the CPU quota and the memory limit, of cgroup v2 and v1.
QUOTAS = ("cpu.max", "cpu.cfs_quota_us")
LIMITS = ("memory.max", "memory.limit_in_bytes")


class Context:
    def __init__(self, options):
        self.k = Kubectl(options.kubeconfig, "resize")

    def pod(self, pod):
        return json.loads(self.k("get", "pod", pod, "-o", "json"))

    def resize(self, pod, change):
        """Changes the spec of a pod by its subresource `resize`, which older versions of kubectl can't name."""
        def replace():
            changed = self.pod(pod)
            change(changed["spec"])
            self.k("replace", "--raw", RESIZE.format(pod), "-f", "-", stdin=json.dumps(changed))
            return True
        until(replace, 20, what=f"{pod} is resized")


def resources(cpu, memory):
    return {"requests": {"cpu": "50m", "memory": "16Mi"}, "limits": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}


def start(c, pod, of_pod, of_container):
    container = {"name": "c", "image": "ironclad.local/busybox:1", "command": ["sleep", "3600"], "resources": of_container or {}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container], **({"resources": of_pod} if of_pod else {})}
    c.k("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec}))
    c.k("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s", timeout=70)
    return c.pod(pod)


def folders(part):
    """Returns the folders of cgroups, in all hierarchies, whose name has a part."""
    return [top for top, _, _ in os.walk(CGROUPS) if part in os.path.basename(top)]


def read(where, files):
    """Returns the first number in the first of these files that is in one of the folders."""
    for path in (os.path.join(folder, file) for folder in where for file in files):
        if os.path.exists(path):
            with open(path) as f:
                return f.read().split()[0]
    raise AssertionError(f"none of {files} in {where}")


def limits_of_pod(pod):
    """Returns quota and limit of the pod's cgroup; the driver for systemd writes the UID with underscores."""
    uid = pod["metadata"]["uid"]
    where = folders(f"pod{uid}") or folders(f"pod{uid.replace('-', '_')}")
    return read(where, QUOTAS), read(where, LIMITS)


def limits_of_container(pod):
    where = folders(pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2])
    return read(where, QUOTAS), read(where, LIMITS)


def expect(c, pod, find, cpu, memory):
    wanted = (str(cpu * 100), str(memory * MIB))
    until(lambda: find(c.pod(pod)) == wanted, 60, what=f"the cgroups of {pod} have {wanted}")


def is_settled(pod):
    kinds = {condition["type"] for condition in pod["status"]["conditions"]}
    return not kinds & {"PodResizePending", "PodResizeInProgress"}


def expect_status(c, pod, of_status, cpu, memory, before):
    """Waits until the status has the limits; the container must be the one of before."""
    limits = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    until(lambda: is_settled(c.pod(pod)) and of_status(c.pod(pod)["status"])["limits"] == limits, 60,
          what=f"the status of {pod} has {limits}")
    now, earlier = (p["status"]["containerStatuses"][0] for p in (c.pod(pod), before))
    assert (now["containerID"], now["restartCount"]) == (earlier["containerID"], 0), now


@check("resize/namespace")
def namespace(c):
    c.k("create", "namespace", "resize")
    until(lambda: c.k("get", "serviceaccount", "default"), 30)


@check("resize/container-grows-and-shrinks", deadline=240, needs=("resize/namespace",))
def container(c):
    before = start(c, "container", None, resources(200, 64))
    expect(c, "container", limits_of_container, 200, 64)
    for cpu, memory in ((400, 128), (100, 96)):
        c.resize("container", lambda spec, to=(cpu, memory): spec["containers"][0].update(resources=resources(*to)))
        expect(c, "container", limits_of_container, cpu, memory)
        expect(c, "container", limits_of_pod, cpu, memory)
        expect_status(c, "container", lambda status: status["containerStatuses"][0]["resources"], cpu, memory, before)


@check("resize/pod-grows-and-shrinks", deadline=240, needs=("resize/namespace",))
def pod(c):
    before = start(c, "whole", resources(300, 96), None)
    expect(c, "whole", limits_of_pod, 300, 96)
    for cpu, memory in ((500, 160), (150, 80)):
        c.resize("whole", lambda spec, to=(cpu, memory): spec.update(resources=resources(*to)))
        expect(c, "whole", limits_of_pod, cpu, memory)
        expect_status(c, "whole", lambda status: status["resources"], cpu, memory, before)


@check("resize/beyond-the-node-is-rejected", deadline=120, needs=("resize/container-grows-and-shrinks",))
def beyond(c):
    before = limits_of_container(c.pod("container"))
    changed = c.pod("container")
    changed["spec"]["containers"][0]["resources"] = resources(10_000_000, 96)
    changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "10000"
    done = c.k.run("replace", "--raw", RESIZE.format("container"), "-f", "-", stdin=json.dumps(changed), okay=False)
    assert "node didn't have enough allocatable resources" in done.stderr, done.stderr
    assert limits_of_container(c.pod("container")) == before
    c.k("delete", "namespace", "resize", timeout=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    sys.exit(main(Context(parser.parse_args())))
