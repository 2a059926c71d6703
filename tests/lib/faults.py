"""Faults for real processes: networks that can be partitioned, disks that can be filled, clocks that can be set."""
import errno
import os
import shutil

from checks import Skip, shell


class Namespaces:
    """Three network namespaces on a bridge that is also connected to the caller's namespace."""

    def __init__(self):
        self.tag, self.hosts = f"kvf{os.getpid() % 10_000}", ["10.213.7.1", "10.213.7.2", "10.213.7.3"]
        self.names = [f"{self.tag}-{at}" for at in range(3)]

    def __enter__(self):
        shell(["ip", "link", "add", self.tag, "type", "bridge"], check=True)
        shell(["ip", "addr", "add", "10.213.7.254/24", "dev", self.tag], check=True)
        shell(["ip", "link", "set", self.tag, "up"], check=True)
        for name, host in zip(self.names, self.hosts):
            shell(["ip", "netns", "add", name], check=True)
            shell(["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name], check=True)
            shell(["ip", "link", "set", name, "master", self.tag, "up"], check=True)
            inside = self.inside(name)
            shell([*inside, "ip", "addr", "add", f"{host}/24", "dev", "eth0"], check=True)
            for device in ("eth0", "lo"):
                shell([*inside, "ip", "link", "set", device, "up"], check=True)
        return self

    def __exit__(self, *_):
        for name in self.names:
            # The kernel removes the links of a deleted namespace later, and the next network has the same names.
            shell(["ip", "link", "del", name])
            shell(["ip", "netns", "del", name])
        shell(["ip", "link", "del", self.tag])

    @staticmethod
    def inside(name):
        return ["ip", "netns", "exec", name]

    def join(self, at, yes):
        """Isolates one namespace, or reconnects it."""
        shell(["ip", "link", "set", self.names[at], "up" if yes else "down"], check=True)

    def peers(self, at, yes):
        """Isolates one namespace from the other two but not from clients, or reconnects it."""
        for other in set(range(3)) - {at}:
            for here, there in ((at, other), (other, at)):
                what = "del" if yes else "add"
                shell([*self.inside(self.names[here]), "ip", "route", what, "blackhole", f"{self.hosts[there]}/32"], check=True)


class SmallDisk:
    """A tmpfs that can be filled to the last byte."""

    def __init__(self, place, size):
        self.place, self.ballast = place, os.path.join(place, "ballast")
        os.makedirs(place, exist_ok=True)
        shell(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)

    def fill(self):
        with open(self.ballast, "ab", buffering=0) as file:
            for block in (b"b" * (1 << 20), b"b" * 4096):
                try:
                    while file.write(block):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def empty(self):
        os.unlink(self.ballast)

    def end(self):
        shell(["umount", "-l", self.place])


class Clock:
    """The wall clock of one process, which can be set while it runs; its monotonic clocks stay as they are."""

    # How long the process may use its last reading of the file.
    LATE = 3

    def __init__(self, path):
        if not shutil.which("cc"):
            raise Skip("clocks can't be set: there is no C compiler")
        self.path = path
        self.set(0)
        library = f"{path}.so"
        source = os.path.join(os.path.dirname(__file__), "clock.c")
        shell(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
        self.prefix = ["env", f"LD_PRELOAD={library}", f"WALL_CLOCK_OFFSET={path}"]

    def set(self, seconds):
        """Sets the offset from the real time."""
        with open(f"{self.path}.new", "w") as file:
            file.write(f"{seconds:+d}\n")
        os.rename(f"{self.path}.new", self.path)

