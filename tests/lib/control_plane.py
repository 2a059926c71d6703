"""A control plane of three machines and workers: network namespaces on one bridge. Needs root."""
import json
import os
import re
import signal
import subprocess

from checks import Kubectl, shell, until
from writers import Writer

CONTROL = ("cp1", "cp2", "cp3")


def execute(commands):
    for command in commands:
        done = shell(command)
        assert done.returncode == 0, f"{command}: {done.stderr}"


class Link:
    """A bridge, with the beginning of its machines' addresses in each family, their prefix lengths, and the gateway's number."""

    def __init__(self, bridge, ranges=(("10.213.9.", 24),), gateway="254"):
        self.bridge, self.ranges, self.gateway = bridge, ranges, gateway

    def connect(self, device, namespace, name, number):
        """Gives a namespace a device on the bridge, and returns its addresses."""
        addresses = [f"{begin}{number}" for begin, _ in self.ranges]
        execute((f"ip link add {device} type veth peer name {name} netns {namespace}", f"ip link set {device} master {self.bridge} up",
                 *(f"ip -n {namespace} address add {address}/{length} dev {name} nodad"
                   for address, (_, length) in zip(addresses, self.ranges)),
                 f"ip -n {namespace} link set {name} up"))
        return addresses


class Machine:
    """A network namespace on a bridge, with a data directory of its own."""

    def __init__(self, c, name, number, link=None):
        self.c, self.name, self.folder, self.link = c, name, os.path.join(c.work, name), f"{c.tag}{number}"
        self.namespace, self.prefix = f"{c.tag}-{name}", []
        link = link or Link(c.tag)
        execute((f"ip netns add {self.namespace}", f"ip -n {self.namespace} link set lo up"))
        self.addresses = link.connect(self.link, self.namespace, "eth0", number)
        self.address = self.addresses[0]
        execute(f"ip -n {self.namespace} route add default via {begin}{link.gateway}" for begin, _ in link.ranges)

    def command(self, *words, folder=None):
        """Returns a command of the operator's tool on this machine, which has a host name of its own."""
        return [*self.inside(), *self.prefix, self.c.ironclad, *words, "--data-dir", folder or self.folder]

    def inside(self):
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', self.name]

    def run(self, *words, folder=None, **options):
        options.setdefault("timeout", 150)
        return shell(self.command(*words, folder=folder), **options)

    def etcdctl_command(self, *words, seconds=3):
        pki = os.path.join(self.folder, "pki")
        return ["ip", "netns", "exec", self.namespace, "env", "ETCDCTL_API=3", "etcdctl", "--endpoints=https://127.0.0.1:2379",
                f"--cacert={pki}/etcd/ca.crt", f"--cert={pki}/apiserver-etcd-client.crt", f"--key={pki}/apiserver-etcd-client.key",
                f"--command-timeout={seconds}s", *words]

    def etcdctl(self, *words, seconds=3):
        done = shell(self.etcdctl_command(*words, seconds=seconds))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def okay(self, *words, **options):
        done = self.run(*words, **options)
        assert done.returncode == 0, f"{words[0]} on {self.name}: {done.stderr[-900:]}"
        return done.stdout

    def components(self):
        # Its exit status says whether all are ready.
        return json.loads(self.run("status", "--output", "json").stdout)["components"]

    def pids(self):
        return {part["name"]: part["pid"] for part in self.components() if part["pid"]}

    def supervisor(self):
        return json.loads(self.run("status", "--output", "json").stdout)["supervisor"]

    def connect(self, yes):
        shell(f"ip link set {self.link} {'up' if yes else 'down'}")

    def remove(self):
        shell(["ip", "link", "delete", self.link])
        shell(["ip", "netns", "delete", self.namespace])


# Runs in the namespaces of a machine with real containers. /sys shows the devices of its own network, and the cgroups of the kernel.
PREPARE = """set -e
hostname {name}
mount --make-rprivate /
mkdir -p {w}/sys {w}/run {w}/cni /run/containerd /var/lib/cni
mount --rbind /sys {w}/sys
umount --lazy /sys
mount -t sysfs sysfs /sys
mount --rbind {w}/sys/fs/cgroup /sys/fs/cgroup
umount --lazy {w}/sys
mount --bind {w}/run /run/containerd
mount --bind {w}/cni /var/lib/cni
mount --make-rshared /
echo ready
exec sleep infinity"""


class RealMachine(Machine):
    """A machine whose containers are real: it has a mount namespace that lasts."""

    def __init__(self, c, name, number, link=None):
        super().__init__(c, name, number, link)
        place = os.path.join(c.work, f"{name}-machine")
        os.makedirs(place)
        self.holder = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--mount", "--uts", "sh", "-c", PREPARE.format(name=name, w=place)],
            stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline().strip() == "ready", f"the namespaces of {name}"

    def inside(self):
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--mount", "--uts"]

    def remove(self):
        self.holder.kill()
        self.holder.wait()
        super().remove()


class Context:
    def __init__(self, options):
        self.ironclad, self.work = os.path.abspath(options.ironclad), options.work
        self.tag, self.machines, self.words, self.traffic = f"ich{os.getpid() % 10_000}", {}, None, None
        os.makedirs(self.work, exist_ok=True)
        execute((f"ip link add {self.tag} type bridge", f"ip address add 10.213.9.254/24 dev {self.tag}", f"ip link set {self.tag} up"))
        for number, name in enumerate((*CONTROL, "w1"), 1):
            self.machines[name] = Machine(self, name, number)

    def add_real(self, name):
        """Adds a machine with real containers."""
        self.machines[name] = RealMachine(self, name, len(self.machines) + 1)
        return self.machines[name]

    def __getitem__(self, name):
        return self.machines[name]

    def kubectl(self, name, namespace="default"):
        """Returns a kubectl for the API server of one machine."""
        machine = self[name]
        path = os.path.join(self.work, f"{name}.kubeconfig")
        with open(os.path.join(machine.folder, "admin.kubeconfig")) as f:
            text = re.sub(r"https://[^\s\"]+", f"https://{machine.address}:6443", f.read())
        with open(path, "w") as f:
            f.write(text)
        return Kubectl(path, namespace)

    def invite(self):
        if self.words is None:
            self.words = self["cp1"].okay("token", "create", "--control-plane", "--print-join-command").split()[1:]
        return self.words

    def members(self, name="cp1"):
        """Lists the members of the store: name, address, and whether each votes."""
        members = json.loads(self[name].etcdctl("member", "list", "--write-out=json"))["members"]
        return {found["name"]: (found["peerURLs"], not found.get("isLearner")) for found in members}

    def close(self):
        for machine in self.machines.values():
            if os.path.exists(machine.folder):
                for pid in self.stopped(machine):
                    os.kill(pid, signal.SIGCONT)
                machine.connect(True)
                machine.run("down", timeout=120)
            machine.remove()
        shell(["ip", "link", "delete", self.tag])

    @staticmethod
    def stopped(machine):
        try:
            return list(machine.pids().values())
        except ValueError:
            return []


def conditions(k, name):
    node = json.loads(k("get", "node", name, "-o", "json"))
    return {found["type"]: found["status"] for found in node["status"]["conditions"]}, node


class Client(Writer):
    """Writes through the API servers of the machines, as the administrator."""

    def __init__(self, c, first):
        pki = os.path.join(c["cp1"].folder, "pki")
        servers = [f"https://{c[name].address}:6443" for name in CONTROL]
        super().__init__(servers, f"{pki}/ca.crt", f"{pki}/admin.crt", f"{pki}/admin.key", CONTROL.index(first))

    def finish(self, c):
        """Returns the longest time of a write; everything that was acknowledged is there, at each server."""
        self.end()
        for name in CONTROL:
            found = json.loads(c.kubectl(name)("get", "configmaps", "-o", "json"))
            missing = set(self.acknowledged) - {item["metadata"]["name"] for item in found["items"]}
            assert not missing, f"{name} lost {sorted(missing)[:5]} of {len(self.acknowledged)}"
        c.kubectl("cp1").run("delete", "configmaps", "--all", "--wait=false")
        return self.longest


LEASES = (("kube-scheduler", "kube-system"), ("kube-controller-manager", "kube-system"), ("w1", "kube-node-lease"))


def leaders(c, through):
    """Returns the holders of the leases of scheduler, controller manager and the worker, with the time of the last renewal."""
    found = {}
    for name, namespace in LEASES:
        lease = json.loads(c.kubectl(through, namespace).run("get", "lease", name, "-o", "json", timeout=15).stdout)
        found[name] = (lease["spec"]["holderIdentity"], lease["spec"]["renewTime"])
    return found


def store_leader(c, through):
    """Returns the name of the machine with the store's leader, according to one member."""
    status = json.loads(c[through].etcdctl("endpoint", "status", "--write-out=json"))[0]["Status"]
    members = json.loads(c[through].etcdctl("member", "list", "--write-out=json"))["members"]
    return next(found["name"] for found in members if found["ID"] == status["leader"])


def lead(c, name):
    """Moves the store's leader to a machine."""
    leader = until(lambda: store_leader(c, name))
    if leader != name:
        members = json.loads(c[name].etcdctl("member", "list", "--write-out=json"))["members"]
        target = next(found["ID"] for found in members if found["name"] == name)
        c[leader].etcdctl("move-leader", f"{target:x}")
    until(lambda: store_leader(c, name) == name, 30)


def dns_ready(c, through, victim):
    """Returns whether kube-proxy sends lookups to the cluster DNS of a machine."""
    slices = json.loads(c.kubectl(through, "kube-system")("get", "endpointslices", "-l", "kubernetes.io/service-name=kube-dns", "-o", "json"))
    found = [endpoint for part in slices["items"] for endpoint in part.get("endpoints") or () if endpoint.get("nodeName") == victim]
    return found[0]["conditions"]["ready"]


def signal_all(number):
    def send(pids):
        for pid in pids.values():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
    return send
