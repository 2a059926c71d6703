"""kvstore and hostile clients: their requests are bounded in bytes, time and work, and do not affect other clients."""
import os
import socket
import struct
import time

from bad_store import Store
from checks import Skip, check, shell, until
from http2 import PREFACE, Connection, message

PUT = "/etcdserverpb.KV/Put"
MIB = 1 << 20


def address(store):
    host, port = store.endpoint.split(":")
    return host, int(port)


def fine(store):
    """Another client's requests during the attack."""
    assert store.put("other", "x") and "other" in store.keys()


def memory(store):
    with open(f"/proc/{store.process.pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def silent(c):
    """The server closes connections that send nothing, or only the beginning of a protocol preface."""
    with Store(c, c.path("data")) as store:
        peer = store.peer.removeprefix("http://").split(":")
        connections = [socket.create_connection(at, timeout=90) for at in [address(store)] * 20 + [(peer[0], int(peer[1]))] * 2]
        for connection in connections[10:]:
            connection.sendall(PREFACE[:9])
        fine(store)
        for connection in connections:
            assert connection.recv(1) == b"", "something was answered"
            connection.close()
        fine(store)


def half_open(c):
    """A client that vanished without closing the connection is detected by pings."""
    with Store(c, c.path("data")) as store, Connection(*address(store)) as connection:
        connection.call("/etcdserverpb.Watch/Watch")
        end = time.monotonic() + 100
        while not connection.closed and time.monotonic() < end:
            connection.take = lambda *_: None  # nothing is acknowledged any more
            connection.receive(5)
        assert connection.closed, "the connection is still open"
        fine(store)


def slow_body(c):
    """A message that arrives byte by byte is aborted, for every kind of method."""
    with Store(c, c.path("data")) as store, Connection(*address(store)) as connection:
        streams = [connection.call(path) for path in (PUT, "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Auth/UserAdd")]
        for stream in streams:
            connection.send(stream, struct.pack(">BI", 0, 1000))
        end = time.monotonic() + 60
        while not connection.ended.issuperset(streams) and time.monotonic() < end:
            for stream in streams:
                connection.send(stream, b"x")
            connection.receive(0.5)
        assert connection.ended.issuperset(streams), f"{connection.ended} of {streams} were ended"
        fine(store)


def many_streams(c):
    """Unfinished requests of one connection are rejected before they use up the memory limit."""
    with Store(c, c.path("data")) as store, Connection(*address(store)) as connection:
        begun = struct.pack(">BI", 0, MIB) + b"x" * (MIB - 1)
        for _ in range(400):
            connection.send(connection.call(PUT), begun)
            if connection.closed:
                break
        assert connection.closed or len(connection.ended) > 300, f"{len(connection.ended)} of 400 were refused"
        assert memory(store) < 300 * MIB, f"{memory(store) // MIB} MiB"
        fine(store)


def curl(store, path, content, c):
    file = c.path("body")
    with open(file, "wb") as out:
        out.write(content)
    done = shell(["curl", "-sS", "-D", "-", "-o", "/dev/null", "--http2-prior-knowledge", "--max-time", "60", "-H", "te: trailers",
                  "-H", "content-type: application/grpc", "--data-binary", f"@{file}", f"http://{store.endpoint}{path}"])
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def oversized(c):
    """A message over the limit is rejected as soon as its length is known."""
    with Store(c, c.path("data")) as store, Connection(*address(store)) as connection:
        for path in (PUT, "/etcdserverpb.Auth/UserAdd"):
            for length in (3 * MIB, 0xffff_ffff):
                stream = connection.call(path)
                connection.send(stream, struct.pack(">BI", 0, length))
                until(lambda: connection.receive(1) and stream in connection.ended, 15, 0.01, f"{length} bytes are refused")
        fine(store)


def field(number, content):
    """Encodes a field of a message: bytes, or an encoded message."""
    length, size = len(content), b""
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


def txn(ops):
    return b"".join(field(2, op) for op in ops)


def tree(first, op):
    """Builds 128 nested transactions of 128 operations, each with its own key."""
    keys = iter(range(first, first + 128 * 128))
    return field(4, txn(field(4, txn(op(b"%x" % next(keys)) for _ in range(128))) for _ in range(128)))


def nested_txn(c):
    """A transaction within the limits whose validation could compare each put with each deletion, and an endless one."""
    def put(key):
        return field(2, field(1, key))

    def delete(key):
        return field(3, field(1, b"z" + key))

    if "HTTP2" not in shell(["curl", "--version"]).stdout:
        raise Skip("curl has no HTTP/2")
    with Store(c, c.path("data")) as store:
        # In the branch that is not executed: validation is the only work.
        wide = b"".join(field(3, branch) for branch in (tree(0, put), tree(1 << 16, put), tree(0, delete)))
        assert len(wide) < 1_500_000, len(wide)
        said = curl(store, "/etcdserverpb.KV/Txn", message(wide), c)
        assert said.get("grpc-status") == "0", said
        deep = put(b"deep")
        for _ in range(20_000):
            deep = field(4, field(2, deep))
            if len(deep) > 100_000:
                break
        said = curl(store, "/etcdserverpb.KV/Txn", message(field(2, deep)), c)
        assert said.get("grpc-status") in ("3", "13"), said
        fine(store)


def checks():
    for function, deadline in ((silent, 60), (half_open, 120), (slow_body, 90), (many_streams, 90), (oversized, 60), (nested_txn, 90)):
        check(f"badinput/kvstore/{function.__name__.replace('_', '-')}", deadline)(function)
