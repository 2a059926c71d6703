"""kvstore with invalid flags, a damaged data directory or disk errors: no acknowledged write is lost or invented."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess

from checks import Skip, check, shell, until
from members import free_port
from refused import ended, no_panic, refused, start


class Store:
    """A single member on free ports."""

    def __init__(self, c, folder, name="a", peer=None, *more):
        self.c, self.folder, self.name = c, folder, name
        self.peer = peer or f"http://127.0.0.1:{free_port()}"
        self.port_file, self.more, self.process = c.path("port"), more, None

    def argv(self):
        flags = [f"--name={self.name}", f"--data-dir={self.folder}", "--listen-client-urls=http://127.0.0.1:0",
                 f"--listen-peer-urls={self.peer}", f"--initial-advertise-peer-urls={self.peer}",
                 f"--initial-cluster={self.name}={self.peer}", f"--port-file={self.port_file}",
                 "--allow-insecure-peers", *self.more]
        last = {flag.split("=")[0]: flag for flag in flags}  # a later one takes the place of an earlier one
        return [self.c.program("kvstore"), *last.values()]

    def __enter__(self):
        self.log = open(self.c.path("kvstore.log"), "w+")
        self.process = subprocess.Popen(self.argv(), stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        until(lambda: os.path.exists(self.port_file) or self.process.poll() is not None, 20, 0.05)
        assert self.process.poll() is None, self.said()
        with open(self.port_file) as file:
            self.endpoint = f"127.0.0.1:{int(file.read())}"
        return self

    def __exit__(self, *_):
        os.path.exists(self.port_file) and os.remove(self.port_file)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        no_panic(self.said())
        self.log.close()

    def said(self):
        self.log.flush()
        with open(self.log.name) as file:
            return file.read()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def etcdctl(self, *words, stdin=None, seconds=30):
        return subprocess.run(["etcdctl", f"--endpoints={self.endpoint}", "--command-timeout=15s", *words], input=stdin,
                              capture_output=True, text=True, timeout=seconds, env={**os.environ, "ETCDCTL_API": "3"})

    def put(self, key, value):
        done = self.etcdctl("put", key, stdin=value)
        return done.returncode == 0 and done.stdout.strip() == "OK"

    def keys(self):
        done = self.etcdctl("get", "", "--prefix", "--keys-only")
        assert done.returncode == 0, done.stderr
        return set(done.stdout.split())


def filled(c, count=20):
    """Returns a data directory with some keys; the member was killed."""
    store = Store(c, c.path("data"))
    with store:
        for number in range(count):
            assert store.put(f"key{number:03}", f"value number {number} " + "x" * 50)
        store.kill()
    return store


def log_of(store):
    folder = os.path.join(store.folder, "member", "wal")
    return os.path.join(folder, sorted(name for name in os.listdir(folder) if name.endswith(".wal"))[-1])


def flip(path, text, last=False):
    with open(path, "r+b") as file:
        content = file.read()
        at = content.rfind(text) if last else content.find(text)
        assert at >= 0, f"{text} is not in {path}"
        file.seek(at)
        file.write(bytes([content[at] ^ 0xff]))


def snapshot(folder):
    """Returns every file with its content."""
    return {os.path.join(at, name): open(os.path.join(at, name), "rb").read() for at, _, names in os.walk(folder)
            for name in names}


def usable(store, count=20):
    """Restarts the member; checks that all acknowledged writes are there."""
    with store:
        assert store.keys() >= {f"key{number:03}" for number in range(count)}, store.keys()
        assert store.put("afterwards", "x")


def flags(c):
    folder = c.path("data")
    refused(Store(c, folder, "a", None, "--listen-client-urls=here").argv(), "listen-client-urls", "here")
    refused(Store(c, folder, "a", None, "--initial-cluster=b=http://127.0.0.1:1").argv(), '"a"', "--initial-cluster")
    refused(Store(c, folder, "a", None, "--cert-file=/nowhere/a.crt", "--key-file=/nowhere/a.key").argv(), "/nowhere/a.crt")
    refused(Store(c, folder, "a", None, "--election-timeout=100", "--heartbeat-interval=100").argv(), "--election-timeout")
    refused(Store(c, folder, "a", None, "--auto-compaction-retention=soon").argv(), "soon")
    made = c.path("restored")
    restore = [c.program("kvstore"), "snapshot", "restore", c.file("x.db", ""), f"--data-dir={made}"]
    refused([*restore, "--wal-dir=/elsewhere"], "--wal-dir", os.path.join(made, "member", "wal"))
    assert not os.path.exists(os.path.join(folder, "member")), os.listdir(folder)
    harmless = ["--memory-mlock=false", "--enable-grpc-gateway=true", "--compaction-sleep-interval=10ms", "--wal-dir=/elsewhere"]
    with Store(c, folder, "a", None, *harmless) as store:
        ignored = [flag for flag in harmless if f"{flag.split('=')[0]} has no effect: " in store.said()]
        assert ignored == harmless, ignored
    with Store(c, folder, "a", None, "--log-level=error", *harmless) as store:
        assert store.put("a", "1") and not store.said(), store.said()


def busy_port(c):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        at = "127.0.0.1:%d" % listener.getsockname()[1]
        refused(Store(c, c.path("data"), "a", None, f"--listen-client-urls=http://{at}").argv(), at, "in use")
        refused(Store(c, c.path("data"), "a", f"http://{at}").argv(), at, "in use")


def newer(c):
    store = filled(c)
    path = os.path.join(store.folder, "identity")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(re.sub(r"format = \d+", "format = 99", text))
    before = snapshot(store.folder)
    refused(store.argv(), store.folder, "99", "newer version")
    assert snapshot(store.folder) == before, "a refused folder was written to"
    with open(path, "w") as file:
        file.write("nonsense")
    refused(store.argv(), path, "damaged", "restore")
    with open(path, "w") as file:
        file.write(text)
    usable(store)


def another_member(c):
    store = filled(c)
    other = Store(c, store.folder, "b")
    refused(other.argv(), store.folder, '"a"', '"b"', "--data-dir")
    usable(store)
    # The same member under another name, and with other URLs, is still that member.
    usable(Store(c, store.folder, "renamed", store.peer))
    usable(Store(c, store.folder, "renamed"))


def another_cluster(c):
    store = filled(c)
    with Store(c, c.path("data"), "b") as stranger:
        flag = f"--initial-cluster=a={store.peer},b={stranger.peer}"
        refused(Store(c, store.folder, "a", store.peer, flag).argv(), store.folder, "cluster", "--data-dir", seconds=60)
    usable(store)


def folder_of_etcd(c):
    folder = c.path("data")
    os.makedirs(os.path.join(folder, "member", "snap"))
    open(os.path.join(folder, "member", "snap", "db"), "w").close()
    refused(Store(c, folder).argv(), folder, "not made by kvstore", "snapshot")


def in_use(c):
    with Store(c, c.path("data")) as store:
        assert store.put("a", "1")
        refused(Store(c, store.folder).argv(), store.folder, "in use by another process")
        assert store.put("b", "2") and store.keys() == {"a", "b"}


def corrupt_log(c):
    store = filled(c)
    path = log_of(store)
    flip(path, b"value number 7 ")
    before = snapshot(os.path.join(store.folder, "member", "wal"))
    refused(store.argv(), path, "corrupt", "byte", "restore", seconds=60)
    assert snapshot(os.path.join(store.folder, "member", "wal")) == before, "a damaged log was written to"
    flip(path, b"value number 7 "[1:])
    with open(path, "r+b") as file:
        content = file.read()
        at = content.find(bytes([ord("v") ^ 0xff, ord("a") ^ 0xff]) + b"lue number 7 ")
        file.seek(at)
        file.write(b"va")
    usable(store)


def with_a_last_write(c):
    store = filled(c)
    with store:
        assert store.put("last", "the very last write")
        store.kill()
    return store


def torn_tail(c):
    store = with_a_last_write(c)
    with open(log_of(store), "r+b") as file:
        file.truncate(file.read().rfind(b"the very last write") + 8)
    usable(store)


def damaged_tail(c):
    """A complete record may have been acknowledged, so it is not truncated."""
    store = with_a_last_write(c)
    path = log_of(store)
    flip(path, b"the very last write", last=True)
    refused(store.argv(), path, "corrupt", "byte", "restore", seconds=60)


def missing_segment(c):
    """A missing segment in the middle is detected."""
    store = Store(c, c.path("data"))
    with store:
        for number in range(20):
            assert store.put(f"key{number:03}", f"{number} " + "x" * 1_000_000 if number < 19 else "end"), store.said()
        for number in range(20):
            assert store.put(f"more{number:03}", "x" * 1_000_000), store.said()
        store.kill()
    folder = os.path.dirname(log_of(store))
    segments = sorted(name for name in os.listdir(folder) if name.endswith(".wal"))
    if len(segments) < 3:
        raise Skip(f"the log has {len(segments)} segments only")
    kept = c.path(segments[1])
    shutil.move(os.path.join(folder, segments[1]), kept)
    refused(store.argv(), "corrupt", "missing", os.path.join(folder, segments[2]), "restore", seconds=60)
    shutil.move(kept, os.path.join(folder, segments[1]))
    usable(store)


@contextlib.contextmanager
def small_disk(c, size):
    point = c.path("disk")
    os.makedirs(point)
    if os.geteuid() != 0:
        raise Skip("needs root to mount a small disk")
    done = shell(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", point])
    if done.returncode != 0:
        raise Skip(f"a tmpfs can't be mounted: {done.stderr.strip()}")
    try:
        yield point
    finally:
        shell(["umount", point])


def full_disk(c):
    with small_disk(c, "40m") as point:
        store, acknowledged = Store(c, os.path.join(point, "data")), set()
        with store:
            for number in range(200):
                key = f"key{number:03}"
                if not store.put(key, f"{number} " + "x" * 400_000):
                    break
                acknowledged.add(key)
            assert acknowledged and len(acknowledged) < 200, len(acknowledged)
            until(lambda: store.process.poll() is not None or store.keys() >= acknowledged, 40, what="it ends or serves its data")
            if store.process.poll() is not None:
                assert store.process.returncode == 1, store.process.returncode
                full = [line for line in store.said().splitlines() if "No space left" in line]
                assert full and "ree some space" in full[-1] and point in full[-1], store.said()[-900:]
        # Still no space: it reports that, or serves its data.
        again = start(store.argv())
        until(lambda: again.poll() is not None or os.path.exists(store.port_file), 30, 0.05, "it ends or serves its data")
        if again.poll() is None:
            again.terminate()
        out, err = ended(again, 60)
        no_panic(out + err)
        if again.returncode != 0:
            assert "No space left" in err and point in err, err[-600:]
        os.path.exists(store.port_file) and os.remove(store.port_file)
        assert shell(["mount", "-o", "remount,size=400m", point]).returncode == 0
        with store:
            assert store.keys() >= acknowledged, acknowledged - store.keys()
            assert store.put("afterwards", "x")


def no_room_at_all(c):
    with small_disk(c, "4m") as point:
        refused(Store(c, os.path.join(point, "data")).argv(), point, "No space left", "free", seconds=60)


def unreadable(c):
    file = c.file("file", "not a folder")
    refused(Store(c, file).argv(), file, "data folder", "can't be used")
    refused(Store(c, "/proc/nothing/data").argv(), "/proc/nothing/data", "can't be used")
    if os.geteuid() == 0:
        raise Skip("root reads everything: the refusal by permission can't be seen (a file in its place was refused)")
    folder = c.path("data")
    os.makedirs(folder, mode=0)
    refused(Store(c, folder).argv(), folder, "ermission denied")


def checks():
    for function, deadline in ((flags, 60), (busy_port, 30), (newer, 60), (another_member, 90), (another_cluster, 90),
                               (folder_of_etcd, 30), (in_use, 30), (corrupt_log, 60), (torn_tail, 60), (damaged_tail, 60),
                               (missing_segment, 120), (full_disk, 180), (no_room_at_all, 60), (unreadable, 30)):
        check(f"badinput/kvstore/{function.__name__.replace('_', '-')}", deadline)(function)
