#!/usr/bin/env python3
"""A real cluster survives failures of its machine: processes killed, everything stopped and started again.

    survive.py --kubeconfig FILE --data-dir DIR --ironclad BINARY
"""
import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, shell, until  # noqa: E402


class Context:
    def __init__(self, options):
        self.k, self.data, self.ironclad = Kubectl(options.kubeconfig, "hello"), options.data_dir, options.ironclad

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json"))

    def status(self):
        return json.loads(shell([self.ironclad, "status", "--data-dir", self.data, "--output", "json"]).stdout)

    def components(self):
        return {c["name"]: c for c in self.status()["components"]}

    def containers(self):
        """Returns container IDs and restart counts of the example's backend, by pod."""
        return {p["metadata"]["name"]: [(s["containerID"], s["restartCount"]) for s in p["status"]["containerStatuses"]]
                for p in self.json("pods", "-l", "app=backend")["items"]}

    def processes(self):
        """Returns the ids of the supervisor and of every component that runs now; one that waits for its restart has none."""
        status = self.status()
        return [pid for pid in [status["supervisor"], *(c["pid"] for c in status["components"])] if pid]

    def up(self):
        done = shell([self.ironclad, "up", "--data-dir", self.data], timeout=170)
        if done.returncode:
            down = [x for x in self.status()["components"] if not x["ready"]]
            logs = [shell(["tail", "-n", "5", x["log"]]).stdout for x in down]
            assert False, "\n".join([done.stdout[-500:], done.stderr[-500:], *logs])

    def settled(self):
        self.k("rollout", "status", "deployment/backend", "--timeout=90s", timeout=100)


class Traffic:
    """Sends a request to a Service every 50 ms and counts failures."""

    def __init__(self, url):
        self.url, self.good, self.bad, self.end = url, 0, [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.end.is_set():
            done = subprocess.run(["curl", "-s", "-m", "3", self.url], capture_output=True)
            if done.returncode == 0:
                self.good += 1
            else:
                self.bad.append(done.returncode)
            time.sleep(0.05)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join(20)


@check("survive/second-cluster-is-refused")
def second(c):
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "other")
        done = shell([c.ironclad, "up", "--data-dir", data, "--pick-ports"], timeout=100)
        assert done.returncode == 1 and "another cluster's pod network" in done.stderr, f"{done.returncode}: {done.stderr}"
        assert shell([c.ironclad, "down", "--data-dir", data, "--purge"], timeout=100).returncode == 0
    c.settled()
    assert "table ip kube-proxy" in shell("nft list tables").stdout


@check("survive/kill-each-under-traffic", deadline=420)
def kill_each(c):
    c.settled()
    service = c.json("service", "backend")["spec"]
    before = c.containers()
    with Traffic(f"http://{service['clusterIP']}:{service['ports'][0]['port']}/") as traffic:
        for name, component in sorted(c.components().items()):
            os.kill(component["pid"], signal.SIGKILL)
            until(lambda: (lambda now: now["ready"] and now["pid"] != component["pid"])(c.components()[name]), 60,
                  what=f"{name} is back")
        until(lambda: c.k("get", "--raw", "/readyz") == "ok", 30)
        c.settled()
    assert traffic.good > 5 and not traffic.bad, f"{traffic.good} requests answered, curl failed with {traffic.bad[:20]}"
    assert c.containers() == before, f"containers changed: {before} -> {c.containers()}"


@check("survive/runtime-that-keeps-restarting", deadline=120)
def restarting(c):
    """A containerd that is away for seconds takes neither the node nor the endpoints of its pods away.

    The kubelet asks the runtime every 10 s and calls it down 30 s after its last answer: 15 s leave a slow machine 5 s.
    """
    c.settled()
    service = c.json("service", "backend")["spec"]
    end = time.time() + 15
    with Traffic(f"http://{service['clusterIP']}:{service['ports'][0]['port']}/") as traffic:
        while time.time() < end:
            component = c.components()["containerd"]
            if component["ready"] and component["pid"]:
                os.kill(component["pid"], signal.SIGKILL)
            time.sleep(0.3)
        conditions = next(n["status"]["conditions"] for n in c.json("nodes")["items"]
                          if n["metadata"]["name"] == component["node"])
        assert [x["status"] for x in conditions if x["type"] == "Ready"] == ["True"], conditions
        until(lambda: c.components()["containerd"]["ready"], 60, what="containerd is back")
        c.settled()
    assert traffic.good > 5 and not traffic.bad, f"{traffic.good} requests answered, curl failed with {traffic.bad[:20]}"


@check("survive/kill-everything", deadline=300)
def kill_all(c):
    service = c.json("service", "backend")["spec"]
    before = c.containers()
    with Traffic(f"http://{service['clusterIP']}:{service['ports'][0]['port']}/") as traffic:
        for pid in c.processes():
            os.kill(pid, signal.SIGKILL)
        c.up()
        c.settled()
    assert traffic.good > 5 and not traffic.bad, f"{traffic.good} requests answered, curl failed with {traffic.bad[:20]}"
    assert c.containers() == before, f"containers changed: {before} -> {c.containers()}"


def processes(word):
    """Returns the ids of all processes with `word` in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if word.encode() in f.read() and int(pid) != os.getpid():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def power_off(c):
    """Simulates a power loss: removes processes, mounts, /run, network namespaces, bridges, rules, cgroups."""
    run = c.status()["runDir"]
    shims = [pid for pid in processes(f"{run}/") if "containerd-shim" in program(pid)]
    pods = [int(pid) for shim in shims for pid in children(shim)]
    for pid in [*c.processes(), *shims, *pods]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    mounts = [line.split()[1] for line in open("/proc/mounts")]
    for point in reversed([m for m in mounts if m.startswith((run + "/", c.data + "/"))]):
        shell(["umount", "--lazy", point])
    shell(["rm", "-rf", run])
    for link in json.loads(shell("ip -json link show type bridge").stdout):
        if link["ifname"].startswith(("ironclad", "ic-", "icn")):
            shell(["ip", "link", "delete", link["ifname"]])
    for table in shell("nft list tables").stdout.split("\n"):
        if "ironclad" in table or "kube-proxy" in table:
            shell(["nft", "delete", *table.split()])
    shell(r"find /sys/fs/cgroup -depth -type d \( -path '*/kubepods*' -o -path '*/ironclad*-n[0-9]*' \) -exec rmdir {} +")


def program(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return f.read().split()


@check("survive/reboot", deadline=300)
def reboot(c):
    names = sorted(c.containers())
    power_off(c)
    # The unit does this at boot; without systemd the test does.
    keeper = subprocess.Popen([c.ironclad, "supervise", "--data-dir", c.data],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: c.k("get", "--raw", "/readyz") == "ok", 60)
        until(lambda: all(restarts >= 1 for pod in c.containers().values() for _, restarts in pod), 90,
              what="containers run again")
        c.settled()
        assert sorted(c.containers()) == names, f"pods changed: {names} -> {sorted(c.containers())}"
        service = c.json("service", "backend")["spec"]
        url = f"http://{service['clusterIP']}:{service['ports'][0]['port']}/"
        until(lambda: shell(["curl", "-sf", "-m", "3", url]).stdout, 60)
    finally:
        c.up()
    assert keeper.poll() is None, "the supervisor ended"


@check("survive/down-and-up", deadline=400)
def down_and_up(c):
    c.k("create", "configmap", "kept", "--from-literal=a=b")
    version = c.json("configmap", "kept")["metadata"]["uid"]
    done = shell([c.ironclad, "down", "--data-dir", c.data], timeout=170)
    assert done.returncode == 0, done.stderr
    stopped = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    c.up()
    # At once: a Node still has the report of the kubelet that was stopped.
    for node in c.json("nodes")["items"]:
        [ready] = [x for x in node["status"]["conditions"] if x["type"] == "Ready"]
        assert ready["status"] == "True" and ready["lastHeartbeatTime"] >= stopped, f"{node['metadata']['name']}: {ready}"
    assert c.json("configmap", "kept")["metadata"]["uid"] == version
    c.settled()
    service = c.json("service", "backend")["spec"]
    until(lambda: shell(["curl", "-sf", "-m", "3", f"http://{service['clusterIP']}:{service['ports'][0]['port']}/"]).stdout, 60)


@check("survive/restored-backup-runs-the-pods-of-before", deadline=400)
def backup(c):
    """The pods of the backup run with new containers, and what was created after it is gone: on the nodes too."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "backup.tar")
        pods = {p["metadata"]["name"]: p["metadata"]["uid"] for p in c.json("pods", "-l", "app=backend")["items"]}
        for words in (["backup", file], ["down"], ["restore", file]):
            done = shell([c.ironclad, *words, "--data-dir", c.data], timeout=170)
            assert done.returncode == 0, f"{words}: {done.stderr}"
            if words[0] == "backup":
                c.k("create", "configmap", "later")
                c.k("run", "later", "--image=ironclad.local/busybox:1", "--", "sleep", "1000")
                c.k("wait", "pod/later", "--for=condition=Ready", "--timeout=60s", timeout=70)
    c.up()
    assert "later" not in c.k("get", "configmaps,pods", "-o", "name")
    c.settled()
    assert {p["metadata"]["name"]: p["metadata"]["uid"] for p in c.json("pods", "-l", "app=backend")["items"]} == pods
    service = c.json("service", "backend")["spec"]
    until(lambda: shell(["curl", "-sf", "-m", "3", f"http://{service['clusterIP']}:{service['ports'][0]['port']}/"]).stdout, 60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    sys.exit(main(Context(parser.parse_args())))
