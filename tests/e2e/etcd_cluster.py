#!/usr/bin/env python3
"""Three API servers on a real etcd cluster of three members: network namespaces on one bridge. Needs root.

    etcd_cluster.py --bin-dir DIR --work DIR

Each machine has a member and an API server, which knows all members (`--etcd-servers`). Two machines also have a scheduler and a
controller manager, which use the API server of their machine. The data of the members come from kvstore, by a snapshot. $ETCD names
another etcd than that in PATH.
"""
import argparse
import json
import os
import re
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
LED = ("etcd-cluster/two-schedulers-and-controller-managers-have-a-leader",)
COMPONENTS = ("kube-scheduler", "kube-controller-manager")
# API servers write them as long as they run.
WRITTEN_BY_SERVERS = ("Lease", "Event", "Endpoints", "EndpointSlice")


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
            # The name of the host is in the identity of a candidate for a Lease.
            inside = ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name, *command]
            self.processes[name] = subprocess.Popen(inside, stdout=log, stderr=log)

    def end(self, name, number=signal.SIGTERM):
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=60)

    def start_kvstore(self):
        files = self.c.files
        self.start("kvstore", os.path.join(self.c.bin_dir, "kvstore"), "--name", self.name, "--data-dir", os.path.join(self.c.work, "kvstore"),
                   "--listen-client-urls", self.url(2379), "--advertise-client-urls", self.url(2379), "--client-cert-auth",
                   "--cert-file", files["crt"], "--key-file", files["key"], "--trusted-ca-file", files["ca"])

    def start_component(self, name):
        files, kubeconfig = self.c.files, self.c.write_kubeconfig(self.name, name)
        more = {"kube-scheduler": [], "kube-controller-manager": [
            "--service-account-private-key-file", files["sa"], "--root-ca-file", files["ca"], "--use-service-account-credentials=true"]}
        self.start(name, os.path.join(self.c.bin_dir, name), "--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig,
                   "--authorization-kubeconfig", kubeconfig, "--bind-address=127.0.0.1", "--leader-elect=true", *more[name])

    def restore(self, snapshot):
        """Makes the data of the member from a snapshot, as etcd's documentation of disaster recovery says."""
        done = shell(["etcdctl", "snapshot", "restore", snapshot, "--name", self.name, "--data-dir", os.path.join(self.c.work, self.name),
                      "--initial-cluster", self.c.peers(), "--initial-advertise-peer-urls", self.url(2380)], env={**os.environ, "ETCDCTL_API": "3"})
        assert done.returncode == 0, done.stderr

    def count_received(self):
        """Returns the bytes that this machine has received from each member, on connections that are open."""
        done = shell(["ip", "netns", "exec", self.namespace, "ss", "-tniHO", "state", "established", "dport", "=", ":2379"])
        found = dict.fromkeys(self.c.machines, 0)
        for line in done.stdout.splitlines():
            received = re.search(r"bytes_received:(\d+)", line)
            for name, machine in self.c.machines.items():
                if received and f" {machine.address}:2379 " in line:
                    found[name] += int(received[1])
        return found

    def find_member_in_use(self):
        """Returns the machine whose member responds to the API server of this one. Those that it has left may be connected still."""
        before = self.count_received()
        time.sleep(4)
        grown = {name: count - before[name] for name, count in self.count_received().items()}
        most = max(grown, key=grown.get)
        assert grown[most] > 3 * sum(count for name, count in grown.items() if name != most), grown
        return self.c[most]

    def start_etcd(self):
        c, files = self.c, self.c.files
        peers = c.peers()
        secured = [f"--{prefix}{flag}={files[name]}" for prefix in ("", "peer-")
                   for flag, name in (("cert-file", "crt"), ("key-file", "key"), ("trusted-ca-file", "ca"))]
        self.start("etcd", c.etcd, "--name", self.name, "--data-dir", os.path.join(c.work, self.name), "--initial-cluster", peers,
                   "--listen-client-urls", self.url(2379), "--advertise-client-urls", self.url(2379), "--listen-peer-urls", self.url(2380),
                   "--initial-advertise-peer-urls", self.url(2380), "--client-cert-auth", "--peer-client-cert-auth", *secured)

    def start_api_server(self, stores=None):
        c, files = self.c, self.c.files
        stores = stores or c.machines.values()
        self.start("kube-apiserver", os.path.join(c.bin_dir, "kube-apiserver"), "--etcd-servers", ",".join(m.url(2379) for m in stores),
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
                ("admin", "/O=system:masters/CN=admin", "extendedKeyUsage=clientAuth"),
                *((name, f"/CN=system:{name}", "extendedKeyUsage=clientAuth") for name in COMPONENTS)):
            openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
            with open(os.path.join(self.work, f"{name}.ext"), "w") as f:
                f.write(extensions)
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt",
                    "-days", "2", "-extfile", f"{name}.ext")
        openssl("genpkey", "-algorithm", "RSA", "-out", "sa.key")
        paths = {"ca": "ca.crt", "crt": "server.crt", "key": "server.key", "sa": "sa.key"}
        return {name: os.path.join(self.work, path) for name, path in paths.items()}

    def peers(self):
        return ",".join(f"{name}={machine.url(2380)}" for name, machine in self.machines.items())

    def kubectl(self, name):
        """Returns a kubectl for the API server of one machine."""
        return Kubectl(self.write_kubeconfig(name, "admin"))

    def write_kubeconfig(self, name, identity):
        path = os.path.join(self.work, f"{name}-{identity}.kubeconfig")
        user = {"client-certificate": f"{self.work}/{identity}.crt", "client-key": f"{self.work}/{identity}.key"}
        cluster = {"server": self[name].url(6443), "certificate-authority": self.files["ca"]}
        with open(path, "w") as f:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": cluster}],
                       "users": [{"name": "u", "user": user}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, f)
        return path

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


def is_ready(c, name):
    return c.kubectl(name).run("get", "--raw", "/readyz", "--request-timeout=3s")


def objects(c, name):
    """Returns everything that is stored, but for what API servers write as long as they run."""
    k = c.kubectl(name)
    kinds = k("api-resources", "--verbs=list", "-o", "name").split()
    items = json.loads(k("get", ",".join(kinds), "-A", "-o", "json"))["items"]
    return {(item["apiVersion"], item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): item
            for item in items if item["kind"] not in WRITTEN_BY_SERVERS}


@check("etcd-cluster/data-of-kvstore-are-saved", deadline=120)
def saved(c):
    """An API server on one member of kvstore, which etcd's own program saves."""
    first = c["e1"]
    first.start_kvstore()
    first.start_api_server([first])
    until(lambda: is_ready(c, "e1"), 60, 0.5)
    k = c.kubectl("e1")
    k("create", "configmap", "moved", "--from-literal=a=b")
    k("create", "secret", "generic", "moved", "--from-literal=a=b")
    k("create", "deployment", "moved", "--image=web:1", "--replicas=3")
    # No server writes any more.
    c.before = until(lambda: (found := objects(c, "e1")) == objects(c, "e1") and found, 60, 1)
    first.end("kube-apiserver")
    c.snapshot = os.path.join(c.work, "snapshot.db")
    c.etcdctl("e1", "snapshot", "save", c.snapshot, seconds=30)
    first.end("kvstore")


@check("etcd-cluster/api-servers-are-ready", deadline=120, needs=("etcd-cluster/data-of-kvstore-are-saved",))
def ready(c):
    for machine in c.machines.values():
        machine.restore(c.snapshot)
        machine.start_etcd()
    for machine in c.machines.values():
        machine.start_api_server()
    for name in NAMES:
        until(lambda name=name: c.kubectl(name).run("get", "--raw", "/readyz", "--request-timeout=3s"), 60, 0.5)
    assert "etcd" in c.etcdctl("e1", "version"), "etcdctl"


@check("etcd-cluster/objects-of-kvstore-are-there", deadline=60, needs=FORMED)
def moved(c):
    """Equal as a whole, with UIDs and resource versions."""
    for name in NAMES:
        found = objects(c, name)
        changed = [key for key in c.before if found.get(key) != c.before[key]]
        added = [key for key in found if key not in c.before]
        assert not changed and not added, f"{name}: changed {[(c.before[key], found.get(key)) for key in changed[:2]]}; added {added}"


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
    # A watch begins when kubectl has listed what there is.
    until(lambda: all(watcher.added for watcher in watchers.values()), 30, what="the watches have begun")
    seen = len(writer.acknowledged)
    until(lambda: len(writer.acknowledged) > seen + 20, 20)
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
        late = set(writer.acknowledged[seen:])
        until(lambda watcher=watcher, late=late: late <= set(watcher.added), 20, what=f"every event at {name}")
        watcher.end()
        twice = [found for found, count in watcher.added.items() if count > 1]
        assert not twice, f"{name} reported {twice[:5]} again"
    c.kubectl("e1").run("delete", "configmaps", "--all", "--wait=false")
    print(f"      {victim}: writes again after {again:.1f} s, through each other server after {served:.1f} s; longest write {writer.longest:.1f} s "
          f"of {len(expected)}")


def read_leaders(c, through):
    """Returns the machine that leads, and the time of the last renewal, of each component."""
    found = {}
    for name in COMPONENTS:
        spec = json.loads(c.kubectl(through).run("get", "lease", name, "-n", "kube-system", "-o", "json", "--request-timeout=3s").stdout)["spec"]
        found[name] = spec["holderIdentity"].split("_")[0], spec["renewTime"]
    return found


def lead(c, machine):
    """Lets one machine lead both: the other one stops its candidates for as long as that takes."""
    [other] = [name for name in ("e1", "e2") if name != machine]
    for name in COMPONENTS:
        if name in c[other].processes:
            c[other].end(name)
    until(lambda: {leader for leader, _ in read_leaders(c, "e3").values()} == {machine}, 60, 0.5)
    for name in COMPONENTS:
        c[other].start_component(name)


def schedule(c, through, name):
    """A Deployment gets a pod, and the pod a node."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "i:1"}]}}
    k = c.kubectl(through)
    k("create", "-f", "-", stdin=json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                                             "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}))
    until(lambda: k("get", "pods", "-l", f"app={name}", "-o", "jsonpath={.items[0].spec.nodeName}") == "n1", 60, 0.2, f"a pod of {name} has a node")


@check("etcd-cluster/two-schedulers-and-controller-managers-have-a-leader", deadline=120, needs=FORMED)
def led(c):
    k = c.kubectl("e1")
    k("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}))
    k("patch", "node", "n1", "--subresource=status", "-p", json.dumps({"status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "99"}}}))
    for machine in ("e1", "e2"):
        for name in COMPONENTS:
            c[machine].start_component(name)
    until(lambda: read_leaders(c, "e3"), 60, 0.5)
    schedule(c, "e3", "first")


def find_renewals(c, before, deadline=90):
    """Returns the seconds until each Lease has another holder, or is renewed by the same one, at least a second after now."""
    began, found = time.monotonic(), {}

    def renewed():
        seconds = time.monotonic() - began
        for name, (leader, at) in read_leaders(c, "e3").items():
            if name not in found and at != before[name][1] and seconds > 1:
                found[name] = leader, seconds
        return len(found) == len(COMPONENTS)
    until(renewed, deadline, 0.2, "the Leases are renewed")
    return found


@check("etcd-cluster/leaders-are-replaced-after-kill-of-their-api-server", deadline=240, needs=LED)
def server_killed(c):
    """They know no other server: the candidates of the other machine lead when the Leases end."""
    lead(c, "e1")
    before = until(lambda: read_leaders(c, "e3"))
    c["e1"].end("kube-apiserver", signal.SIGKILL)
    try:
        moved_to = {}
        began = time.monotonic()

        def replaced():
            for name, (leader, _) in read_leaders(c, "e3").items():
                if leader != before[name][0]:
                    moved_to.setdefault(name, time.monotonic() - began)
            return len(moved_to) == len(COMPONENTS)
        until(replaced, 90, 0.2, "the leaders are on another machine")
        schedule(c, "e3", "second")
    finally:
        c["e1"].start_api_server()
    until(lambda: is_ready(c, "e1"), 60, 0.5)
    print("      API server of the leaders killed: " + ", ".join(f"{name} leads again after {moved_to[name]:.1f} s" for name in COMPONENTS))


@check("etcd-cluster/leaders-stay-after-kill-of-the-member-in-use", deadline=240, needs=LED)
def member_killed(c):
    """Their API server uses another member within seconds, so that nothing but a renewal is late."""
    lead(c, "e2")
    victim = until(c["e2"].find_member_in_use, 60, 0)
    before = until(lambda: read_leaders(c, "e3"))
    victim.end("etcd", signal.SIGKILL)
    try:
        found = find_renewals(c, before)
        schedule(c, "e3", "third")
    finally:
        victim.start_etcd()
    until(lambda: c.etcdctl(victim.name, "endpoint", "health") is not None, 60, 0.5)
    print(f"      member {victim.name} of the leaders' API server killed: " + ", ".join(
        f"{name} renewed after {seconds:.1f} s ({'same leader' if leader == before[name][0] else leader})" for name, (leader, seconds) in found.items()))
    others = {name: leader for name, (leader, _) in found.items() if leader != before[name][0]}
    assert not others, f"other leaders: {others}, before {before}"


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
