#!/usr/bin/env python3
"""The API server on Debian's etcd instead of kvstore: the same flags, the same responses, and it survives a restart.

    etcd.py --kubeconfig FILE --data-dir DIR --ironclad BINARY   (a simulated cluster, whose API server's flags are borrowed)
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, shell, until  # noqa: E402


class Context:
    def __init__(self, options):
        self.folder = tempfile.mkdtemp(prefix="ironclad-etcd.")
        done = shell([options.ironclad, "status", "--data-dir", options.data_dir, "--output", "json"])
        pid = next(c["pid"] for c in json.loads(done.stdout)["components"] if c["name"] == "kube-apiserver")
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            words = [w.decode() for w in f.read().split(b"\0")[:-1]]
        self.words = [w for w in words if not re.match(r"--(etcd-|secure-port|port-file)", w)]
        self.kubeconfig, self.processes, self.k = options.kubeconfig, [], None

    def start_etcd(self):
        urls = ["http://127.0.0.1:0", "http://127.0.0.1:0"]
        log = os.path.join(self.folder, "etcd.log")
        self.etcd = subprocess.Popen(
            ["etcd", "--data-dir", os.path.join(self.folder, "data"), "--listen-client-urls", urls[0], "--advertise-client-urls",
             "http://127.0.0.1:1", "--listen-peer-urls", urls[1], "--logger=zap", "--log-outputs", log],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(self.etcd)
        return until(lambda: listening(self.etcd.pid, log), 20, what="etcd listens")

    def start_server(self, port):
        port_file = os.path.join(self.folder, "port")
        if os.path.exists(port_file):
            os.unlink(port_file)
        self.server = subprocess.Popen(
            [*self.words, f"--etcd-servers=http://127.0.0.1:{port}", "--secure-port=0", f"--port-file={port_file}"],
            stdout=subprocess.DEVNULL, stderr=open(os.path.join(self.folder, "server.log"), "a"))
        self.processes.append(self.server)
        until(lambda: os.path.exists(port_file), 20, what="the API server's port file")
        text = open(self.kubeconfig).read()
        text = re.sub(r"(server: https://[^:]+):\d+", rf"\g<1>:{open(port_file).read().strip()}", text)
        changed = os.path.join(self.folder, "kubeconfig")
        with open(os.open(changed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(text)
        self.k = Kubectl(changed)
        until(lambda: self.k("get", "--raw", "/readyz") == "ok", 20)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def listening(pid, log):
    """Returns etcd's client port: of its two listening ports the one that serves /health."""
    done = shell("ss -ltnpH")
    for port in re.findall(rf"127\.0\.0\.1:(\d+)\s.*pid={pid},", done.stdout):
        if "health" in shell(["curl", "-s", "-m", "1", f"http://127.0.0.1:{port}/health"]).stdout:
            return int(port)
    return None


@check("etcd/server-is-ready")
def ready(c):
    c.port = c.start_etcd()
    c.start_server(c.port)


@check("etcd/verbs", needs=["etcd/server-is-ready"])
def verbs(c):
    c.k("create", "configmap", "one", "--from-literal=a=b")
    c.k("patch", "configmap", "one", "-p", '{"data": {"c": "d"}}')
    assert json.loads(c.k("get", "configmap", "one", "-o", "json"))["data"] == {"a": "b", "c": "d"}
    watch = c.k.start("get", "configmaps", "-w", "-o", "name")
    try:
        c.k("create", "configmap", "two")
        assert any("two" in line for line in iter(watch.stdout.readline, "") if "two" in line)
    finally:
        watch.kill()
        watch.wait()
    c.k("delete", "configmap", "two")
    assert "NotFound" in c.k.run("get", "configmap", "two", okay=False).stderr


@check("etcd/stored-as-upstream-stores", needs=["etcd/verbs"])
def stored(c):
    done = subprocess.run(["etcdctl", f"--endpoints=http://127.0.0.1:{c.port}", "get", "/registry/configmaps/default/one",
                           "--print-value-only"], capture_output=True, env=dict(os.environ, ETCDCTL_API="3"), timeout=60)
    assert done.stdout.startswith(b"k8s\0"), done.stdout[:20]
    c.k("create", "deployment", "d", "--image=i:1", "--replicas=0")
    assert c.k("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}") == "0"


@check("etcd/survives-restarts", needs=["etcd/verbs"])
def restarts(c):
    c.server.kill()
    c.server.wait()
    c.start_server(c.port)
    assert c.k("get", "configmap", "one", "-o", "jsonpath={.data.a}") == "b"
    version = json.loads(c.k("get", "configmap", "one", "-o", "json"))["metadata"]["resourceVersion"]
    assert int(version) > 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    context = Context(parser.parse_args())
    try:
        status = main(context)
    finally:
        context.end()
    sys.exit(status)
