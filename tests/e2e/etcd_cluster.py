#!/usr/bin/env python3
"""Three API servers on a real etcd cluster of three members: network namespaces on one bridge. Needs root.

    etcd_cluster.py --bin-dir DIR --work DIR

Each machine has a member and an API server, which knows all members (`--etcd-servers`). $ETCD names another etcd than that in PATH.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, shell, until  # noqa: E402
from writers import Writer  # noqa: E402

NAMES = ("e1", "e2", "e3")
PORTS = (2379, 2380, 6443)
FORMED = ("etcd-cluster/api-servers-are-ready",)


class Machine:
    """A network namespace on the bridge with a member of etcd and an API server."""

    def __init__(self, c, name, number):
        self.c, self.name, self.address = c, name, f"10.213.11.{number}"
        self.link, self.namespace, self.processes = f"{c.tag}{number}", f"{c.tag}-{name}", {}
        for command in (f"ip netns add {self.namespace}",
                        f"ip link add {self.link} type veth peer name eth0 netns {self.namespace}",
                        f"ip link set {self.link} master {c.tag} up",
                        f"ip -n {self.namespace} address add {self.address}/24 dev eth0",
                        f"ip -n {self.namespace} link set eth0 up", f"ip -n {self.namespace} link set lo up",
                        f"ip -n {self.namespace} route add default via 10.213.11.254"):
            done = shell(command)
            assert done.returncode == 0, f"{command}: {done.stderr}"

    def url(self, port):
        return f"https://{self.address}:{port}"

    def start(self, name, *command):
        with open(os.path.join(self.c.work, f"{self.name}-{name}.log"), "a") as log:
            inside = ["ip", "netns", "exec", self.namespace, *command]
            self.processes[name] = subprocess.Popen(inside, stdout=log, stderr=log)

    def start_etcd(self):
        c, files = self.c, self.c.files
        peers = ",".join(f"{name}={machine.url(2380)}" for name, machine in c.machines.items())
        secured = [f"--{prefix}{flag}={files[name]}" for prefix in ("", "peer-")
                   for flag, name in (("cert-file", "crt"), ("key-file", "key"), ("trusted-ca-file", "ca"))]
        self.start("etcd", c.etcd, "--name", self.name, "--data-dir", os.path.join(c.work, self.name), "--initial-cluster", peers,
                   "--listen-client-urls", self.url(2379), "--advertise-client-urls", self.url(2379), "--listen-peer-urls", self.url(2380),
                   "--initial-advertise-peer-urls", self.url(2380), "--client-cert-auth", "--peer-client-cert-auth", *secured)

    def start_api_server(self):
        c, files = self.c, self.c.files
        self.start("kube-apiserver", os.path.join(c.bin_dir, "kube-apiserver"), "--etcd-servers", ",".join(m.url(2379) for m in c.machines.values()),
                   "--etcd-cafile", files["ca"], "--etcd-certfile", files["crt"], "--etcd-keyfile", files["key"],
                   "--secure-port=6443", "--bind-address", self.address, "--advertise-address", self.address,
                   "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC", "--client-ca-file", files["ca"],
                   "--tls-cert-file", files["crt"], "--tls-private-key-file", files["key"],
                   "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file", files["sa"],
                   "--service-account-signing-key-file", files["sa"])

    def connect(self, yes):
        shell(f"ip link set {self.link} {'up' if yes else 'down'}")

    def send(self, name, number):
        self.processes[name].send_signal(number)

    def remove(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        shell(["ip", "link", "delete", self.link])
        shell(["ip", "netns", "delete", self.namespace])


class Context:
    def __init__(self, options):
        self.bin_dir, self.work = os.path.abspath(options.bin_dir), os.path.abspath(options.work)
        self.etcd = os.environ.get("ETCD") or shutil.which("etcd")
        self.tag, self.machines = f"ice{os.getpid() % 10_000}", {}
        os.makedirs(self.work, exist_ok=True)
        for command in (f"ip link add {self.tag} type bridge", f"ip address add 10.213.11.254/24 dev {self.tag}",
                        f"ip link set {self.tag} up"):
            done = shell(command)
            assert done.returncode == 0, f"{command}: {done.stderr}"
        for number, name in enumerate(NAMES, 1):
            self.machines[name] = Machine(self, name, number)
        self.files = self.make_certificates()

    def __getitem__(self, name):
        return self.machines[name]

    def make_certificates(self):
        """One CA; one certificate for all servers and members, and one of an administrator."""
        def openssl(*words):
            subprocess.run(["openssl", *words], cwd=self.work, check=True, capture_output=True)

        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca", "-days", "2")
        hosts = ",".join(f"IP:{machine.address}" for machine in self.machines.values())
        for name, subject, extensions in (
                ("server", "/CN=server", f"subjectAltName={hosts}\nextendedKeyUsage=serverAuth,clientAuth"),
                ("admin", "/O=system:masters/CN=admin", "extendedKeyUsage=clientAuth")):
            openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
            with open(os.path.join(self.work, f"{name}.ext"), "w") as f:
                f.write(extensions)
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt",
                    "-days", "2", "-extfile", f"{name}.ext")
        openssl("genpkey", "-algorithm", "RSA", "-out", "sa.key")
        paths = {"ca": "ca.crt", "crt": "server.crt", "key": "server.key", "sa": "sa.key"}
        return {name: os.path.join(self.work, path) for name, path in paths.items()}

    def kubectl(self, name):
        """Returns a kubectl for the API server of one machine."""
        path = os.path.join(self.work, f"{name}.kubeconfig")
        user = {"client-certificate": f"{self.work}/admin.crt", "client-key": f"{self.work}/admin.key"}
        cluster = {"server": self[name].url(6443), "certificate-authority": self.files["ca"]}
        with open(path, "w") as f:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": cluster}],
                       "users": [{"name": "u", "user": user}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, f)
        return Kubectl(path)

    def etcdctl(self, name, *words, seconds=3):
        files = self.files
        done = shell(["etcdctl", f"--endpoints={self[name].url(2379)}", f"--cacert={files['ca']}", f"--cert={files['crt']}",
                      f"--key={files['key']}", f"--command-timeout={seconds}s", *words], env={**os.environ, "ETCDCTL_API": "3"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def leader(self, through):
        """Returns the name of the leading member, according to one member."""
        status = json.loads(self.etcdctl(through, "endpoint", "status", "--write-out=json"))[0]["Status"]
        members = json.loads(self.etcdctl(through, "member", "list", "--write-out=json"))["members"]
        return next(found["name"] for found in members if found["ID"] == status["leader"])

    def writer(self, first):
        servers = [self[name].url(6443) for name in NAMES]
        return Writer(servers, self.files["ca"], f"{self.work}/admin.crt", f"{self.work}/admin.key", NAMES.index(first))

    def close(self):
        for machine in self.machines.values():
            machine.remove()
        shell(["ip", "link", "delete", self.tag])


class Watcher(threading.Thread):
    """Watches ConfigMaps through one API server; counts how often each was added."""

    def __init__(self, k):
        super().__init__(daemon=True)
        self.process = k.start("get", "configmaps", "--watch-only", "--output-watch-events", "-o", "jsonpath={.type} {.object.metadata.name}{'\\n'}")
        self.added = {}

    def run(self):
        for line in self.process.stdout:
            kind, _, name = line.strip().partition(" ")
            if kind == "ADDED":
                self.added[name] = self.added.get(name, 0) + 1

    def end(self):
        self.process.kill()
        self.process.wait()
        self.join(10)


@check("etcd-cluster/api-servers-are-ready", deadline=120)
def ready(c):
    for machine in c.machines.values():
        machine.start_etcd()
    for machine in c.machines.values():
        machine.start_api_server()
    for name in NAMES:
        until(lambda name=name: c.kubectl(name).run("get", "--raw", "/readyz", "--request-timeout=3s"), 60, 0.5)
    assert "etcd" in c.etcdctl("e1", "version"), "etcdctl"


def write(c, name):
    """Writes through one API server."""
    return c.kubectl(name).run("annotate", "namespace", "default", f"time={time.time()}", "--overwrite", "--request-timeout=3s")


def survive(c, victim, break_it, repair):
    """Breaks the member of a machine under traffic: no write fails for a client with retries, none is lost, and none is seen twice."""
    others = [name for name in NAMES if name != victim]
    watchers = {name: Watcher(c.kubectl(name)) for name in others}
    for watcher in watchers.values():
        watcher.start()
    writer = c.writer(victim)
    writer.start()
    until(lambda: len(writer.acknowledged) > 20, 20)
    began, written = time.monotonic(), len(writer.acknowledged)
    break_it()
    try:
        until(lambda: len(writer.acknowledged) > written + 1, 40, 0.02)
        again = time.monotonic() - began
        # Each of the other API servers serves again, whichever member it was connected to.
        for name in others:
            until(lambda name=name: write(c, name), 60, 0.2)
        served = time.monotonic() - began
    finally:
        repair()
    for name in NAMES:
        until(lambda name=name: c.kubectl(name).run("get", "--raw", "/readyz", "--request-timeout=3s"), 60, 0.5)
        until(lambda name=name: c.etcdctl(name, "endpoint", "health") is not None, 60, 0.5)
    writer.end()
    expected = set(writer.acknowledged)
    for name in NAMES:
        found = json.loads(c.kubectl(name)("get", "configmaps", "-o", "json"))
        missing = expected - {item["metadata"]["name"] for item in found["items"]}
        assert not missing, f"{name} lost {sorted(missing)[:5]} of {len(expected)}"
    for name, watcher in watchers.items():
        # The first ones may have been written before the watch began.
        late = set(writer.acknowledged[10:])
        until(lambda watcher=watcher, late=late: late <= set(watcher.added), 20, what=f"every event at {name}")
        watcher.end()
        twice = [found for found, count in watcher.added.items() if count > 1]
        assert not twice, f"{name} reported {twice[:5]} again"
    c.kubectl("e1").run("delete", "configmaps", "--all", "--wait=false")
    print(f"      {victim}: writes again after {again:.1f} s, through each other server after {served:.1f} s; longest write {writer.longest:.1f} s "
          f"of {len(expected)}")


FAULTS = {
    "kill": (lambda machine: machine.send("etcd", signal.SIGKILL), lambda machine: (machine.processes["etcd"].wait(), machine.start_etcd())),
    "stop": (lambda machine: machine.send("etcd", signal.SIGSTOP), lambda machine: machine.send("etcd", signal.SIGCONT)),
    "cut": (lambda machine: machine.connect(False), lambda machine: machine.connect(True)),
}


def register(word, role):
    @check(f"etcd-cluster/survives-{word}-of-{role}", deadline=180, needs=FORMED)
    def fault(c):
        leader = until(lambda: c.leader("e1"), 20)
        victim = leader if role == "leader" else next(name for name in NAMES if name != leader)
        break_it, repair = FAULTS[word]
        survive(c, victim, lambda: break_it(c[victim]), lambda: repair(c[victim]))


for _word in FAULTS:
    for _role in ("leader", "follower"):
        register(_word, _role)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--work", required=True)
    context = Context(parser.parse_args())
    try:
        code = main(context)
    finally:
        context.close()
    sys.exit(code)
