"""Real kvstore processes: members on fixed ports, alone or as a cluster."""
import contextlib
import itertools
import os
import signal
import socket
import subprocess

from checks import until
from refused import no_panic


def reserve_ports():
    """Returns 900 ports that no other process reserves while this one runs, and the socket that reserves them."""
    for first in range(20_000, 29_000, 900):
        # The name of an abstract socket is free again when its process ends.
        mark = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            mark.bind(f"\0ironclad-test-ports-{first}")
            return itertools.cycle(range(first, first + 900)), mark
        mark.close()
    raise OSError("all ports of the tests are reserved")


PORTS, RESERVATION = reserve_ports()


def free_port():
    """Returns a port that is free at the moment, and that neither the kernel nor another process of the tests gives to another socket: the
    kernel takes the ports of connections from 32768 on. A client that tries to reach a restarted member at such a port could connect to
    itself, and occupy the port."""
    for port in PORTS:
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


class Context:
    def __init__(self, given):
        self.bin_dir, self.work, self.numbers = given.bin_dir, given.work, 0

    def folder(self):
        self.numbers += 1
        path = os.path.join(self.work, str(self.numbers))
        os.makedirs(path)
        return path


class Member:
    """A member on fixed ports; `inside` is a network namespace's prefix for commands, `under` one for kvstore alone."""

    def __init__(self, c, name, folder, host, cluster, ports, inside=(), more=(), under=()):
        self.name, self.folder, self.inside, self.process = name, folder, list(inside), None
        self.endpoint = f"{host}:{ports[0]}"
        self.log = os.path.join(c.work, f"{os.path.basename(folder)}-{name}.log")
        self.argv = [*self.inside, *under, os.path.join(c.bin_dir, "kvstore"), f"--name={name}", f"--data-dir={folder}/{name}",
                     f"--listen-client-urls=http://{self.endpoint}", f"--advertise-client-urls=http://{self.endpoint}",
                     f"--listen-peer-urls=http://{host}:{ports[1]}", f"--initial-advertise-peer-urls=http://{host}:{ports[1]}",
                     f"--initial-cluster={cluster}", "--heartbeat-interval=50", "--election-timeout=500",
                     "--allow-insecure-peers", *more]

    def start(self, wait=True):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if wait:
            until(lambda: self.get("nothing") is not None, 30, 0.1, f"{self.name} serves")

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def etcdctl(self, *words, seconds=3, text=None):
        words = [*self.inside, "etcdctl", f"--endpoints={self.endpoint}", f"--dial-timeout={max(1, seconds // 3)}s", f"--command-timeout={seconds}s", *words]
        return subprocess.run(words, capture_output=True, text=True, timeout=seconds + 10, input=text,
                              env={**os.environ, "ETCDCTL_API": "3"})

    def put(self, key, value):
        return self.etcdctl("put", key, value).returncode == 0

    def get(self, key, seconds=3):
        """Returns the value, "" if there is none, None if the read failed."""
        done = self.etcdctl("get", key, "--print-value-only", seconds=seconds)
        return done.stdout.strip() if done.returncode == 0 else None

    def leads(self):
        done = self.etcdctl("endpoint", "status", "-w", "fields")
        fields = dict(line.replace('"', "").split(" : ", 1) for line in done.stdout.splitlines() if " : " in line)
        return done.returncode == 0 and fields.get("MemberID") == fields.get("Leader")

    def check_log(self):
        with open(self.log) as file:
            no_panic(file.read())


def find_leader(members):
    """Returns the member that leads, after an election if there is none at the moment."""
    return until(lambda: next((m for m in members if m.leads()), None), 30, what="a leader")


def cluster(c, names, hosts=None, insides=None, more=(), unders=None, folder=None):
    folder, hosts = folder or c.folder(), hosts or ["127.0.0.1"] * len(names)
    ports = [(free_port(), free_port()) for _ in names]
    listed = ",".join(f"{name}=http://{host}:{port[1]}" for name, host, port in zip(names, hosts, ports))
    nothing = [()] * len(names)
    members = [Member(c, name, folder, host, listed, port, inside, more, under)
               for name, host, port, inside, under in zip(names, hosts, ports, insides or nothing, unders or nothing)]
    for member in members:
        member.start(wait=False)
    for member in members:
        until(lambda: member.get("nothing") is not None, 30, 0.1, f"{member.name} serves")
    return members


def end(members):
    for member in members:
        member.kill()
    for member in members:
        member.check_log()


def single(c, *more):
    """Starts a single-member cluster with additional flags."""
    return cluster(c, ["a"], more=more)[0]
