"""Requests that are malformed, oversized or hostile, and objects in the store that are not objects."""
import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import time

from checks import Skip, check, shell, until

MIB = 1 << 20


class Client:
    """HTTPS requests as the administrator, without a client library."""

    def __init__(self, c, port=None):
        self.port = port or c.ports["api"]
        self.tls = ssl.create_default_context(cafile=f"{c.pki}/ca.crt")
        self.tls.load_cert_chain(f"{c.pki}/admin.crt", f"{c.pki}/admin.key")

    def connect(self, seconds=20):
        plain = socket.create_connection(("127.0.0.1", self.port), seconds)
        return self.tls.wrap_socket(plain, server_hostname="127.0.0.1")

    def ask(self, method, path, body=None, headers=None, seconds=20):
        """Returns status and text of the response."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=seconds, context=self.tls)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def raw(self, text, seconds=20):
        """Sends bytes; returns the response until it is complete or the server closes the connection."""
        with self.connect(seconds) as stream:
            got = b""
            try:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
                    stream.sendall(text)
                while b"\r\n\r\n" not in got:
                    more = stream.recv(65536)
                    if not more:
                        break
                    got += more
            except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
                pass
            return got.decode(errors="replace")


JSON = {"Content-Type": "application/json"}
MAPS = "/api/v1/namespaces/default/configmaps"


def failure(answer, code, reason, *words):
    """Checks that the response is a Status with this code and reason, and that its message contains the words."""
    status, text = answer
    assert status == code, f"{status}: {text[:300]}"
    body = json.loads(text)
    assert body["kind"] == "Status" and body["status"] == "Failure" and body["code"] == code, text[:300]
    assert body.get("reason") == reason, f"reason {body.get('reason')}, not {reason}: {text[:300]}"
    missing = [word for word in words if word not in body["message"]]
    assert not missing, f"{missing} not in {body['message'][:300]}"


def alive(c):
    assert Client(c).ask("GET", "/livez") == (200, "ok")


def memory(c):
    """Returns the resident bytes of the API server."""
    done = shell([c.program("ironclad"), "status", "--data-dir", c.data, "--output=json"])
    pid = next(part["pid"] for part in json.loads(done.stdout)["components"] if part["name"] == "kube-apiserver")
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def malformed(c):
    client = Client(c)
    for body in (b"", b"{", b"[]", b"7", b"\xff\xfe\x00", b'{"kind":"ConfigMap","apiVersion":"v1","metadata":7}',
                 b'{"kind":"ConfigMap","apiVersion":"v1","data":{"a":[1]}}'):
        failure(client.ask("POST", MAPS, body, JSON), 400, "BadRequest")
    failure(client.ask("POST", MAPS, b'{"kind":"Secret","apiVersion":"v1"}', JSON), 400, "BadRequest", "Secret")
    failure(client.ask("POST", MAPS, b"k8s\0\xff\xff\xff", {"Content-Type": "application/vnd.kubernetes.protobuf"}), 400, "BadRequest")
    failure(client.ask("POST", MAPS, b"{}", {"Content-Type": "text/nonsense"}), 415, "UnsupportedMediaType", "application/json")
    failure(client.ask("GET", MAPS, None, {"Accept": "text/nonsense"}), 406, "NotAcceptable")
    failure(client.ask("GET", MAPS + "?limit=many"), 400, "BadRequest")
    failure(client.ask("GET", MAPS + "?labelSelector=a%20in%20("), 400, "BadRequest")
    failure(client.ask("GET", MAPS + "?fieldSelector=spec.nothing=1"), 400, "BadRequest", "spec.nothing")
    failure(client.ask("GET", MAPS + "?resourceVersion=x"), 400, "BadRequest")
    failure(client.ask("GET", MAPS + "?continue=nonsense"), 400, "BadRequest")
    failure(client.ask("GET", "/api/v1/namespaces/default/nothings"), 404, "NotFound")
    failure(client.ask("PUT", MAPS, b"{}", JSON), 405, "MethodNotAllowed")
    alive(c)


def oversized(c):
    client, big = Client(c), "x" * (4 * MIB)
    body = json.dumps({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "big"}, "data": {"a": big}})
    failure(client.ask("POST", MAPS, body, JSON), 413, "RequestEntityTooLarge", "limit")
    failure(client.ask("PATCH", MAPS + "/x", body, {"Content-Type": "application/merge-patch+json"}), 413, "RequestEntityTooLarge")
    # Within the limit of a request, but too large for an object of this kind.
    body = json.dumps({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "big"}, "data": {"a": big[:2 * MIB]}})
    failure(client.ask("POST", MAPS, body, JSON), 422, "Invalid", "1048576")
    alive(c)


def endless(c):
    """A body without an end is aborted, and costs no memory."""
    before = memory(c)
    with Client(c).connect(30) as stream:
        stream.sendall(f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk, sent = b"100000\r\n" + b"x" * MIB + b"\r\n", 0
        try:
            while sent < 256:
                stream.sendall(chunk)
                sent += 1
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError, TimeoutError):
            pass
    assert sent < 256, "256 MiB were taken in"
    assert memory(c) - before < 64 * MIB, f"{(memory(c) - before) / MIB:.0f} MiB more"
    alive(c)


def deep(c):
    """Deep nesting in JSON, patches and YAML is rejected quickly, and does not crash the server."""
    client, before = Client(c), memory(c)
    client.ask("POST", MAPS, '{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"deep"}}', JSON)
    for depth in (2_000, 200_000):
        lists, maps = "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth
        head, revision = '{"kind":"%s","apiVersion":"%s","metadata":{"generateName":"d"', "/apis/apps/v1/namespaces/default/controllerrevisions"
        refused = [
            ("POST", MAPS, head % ("ConfigMap", "v1") + ',"managedFields":[{"fieldsV1":%s}]}}' % maps, "json"),
            ("POST", revision, head % ("ControllerRevision", "apps/v1") + '},"revision":1,"data":%s}' % maps, "json"),
            ("POST", MAPS, lists, "yaml"), ("POST", MAPS, maps, "yaml"), ("POST", MAPS, "a: " + "{b: " * depth, "yaml"),
            ("PATCH", MAPS + "/deep", maps, "merge-patch+json"), ("PATCH", MAPS + "/deep", maps, "strategic-merge-patch+json"),
            ("PATCH", MAPS + "/deep", lists, "json-patch+json"),
            ("PATCH", MAPS + "/deep?fieldManager=x", maps, "apply-patch+yaml"),
        ]
        for method, path, body, kind in refused:
            begun = time.monotonic()
            failure(client.ask(method, path, body, {"Content-Type": f"application/{kind}"}), 400, "BadRequest")
            assert time.monotonic() - begun < 20, f"{method} {kind} at {depth}: {time.monotonic() - begun:.1f} s"
        # In an unknown field it is ignored with the field.
        status, text = client.ask("POST", MAPS + "?dryRun=All", head % ("ConfigMap", "v1") + '},"x":%s}' % lists, JSON)
        assert status in (201, 400), f"{status}: {text[:200]}"
    # A document of references that would grow by a factor of a thousand at each step.
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9))
    failure(client.ask("POST", MAPS, bomb, {"Content-Type": "application/yaml"}), 400, "BadRequest")
    assert memory(c) - before < 64 * MIB, f"{(memory(c) - before) / MIB:.0f} MiB more"
    client.ask("DELETE", MAPS + "/deep")
    alive(c)


def headers(c):
    """Too many bytes or fields of headers: 431, and a request line that makes no sense: 400."""
    client = Client(c)
    big = "GET %s HTTP/1.1\r\nHost: x\r\nX-Big: %s\r\n\r\n"
    assert " 431 " in client.raw((big % (MAPS, "x" * 80_000)).encode()).split("\r\n")[0], "80 kB of headers"
    # A client that is still sending may see the connection close before the response.
    answer = client.raw((big % (MAPS, "x" * (2 * MIB))).encode()).split("\r\n")[0]
    assert not answer or " 431 " in answer, f"2 MiB of headers: {answer}"
    many = f"GET {MAPS} HTTP/1.1\r\nHost: x\r\n" + "".join(f"X-{n}: y\r\n" for n in range(5_000)) + "\r\n"
    assert " 431 " in client.raw(many.encode()).split("\r\n")[0], "5000 headers"
    for text in ("NONSENSE\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET  /a b HTTP/1.1\r\n\r\n",
                 "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                 "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"):
        answer = client.raw(text.encode()).split("\r\n")[0]
        assert not answer or answer.split(" ")[1][0] == "4" or "505" in answer, (text[:40], answer)
    alive(c)


def slow(c):
    """Connections that send headers at one byte per second are closed, however many there are."""
    client = Client(c)
    streams = [client.connect(40) for _ in range(20)]
    begun = time.monotonic()
    for stream in streams:
        stream.sendall(b"GET /api HTTP/1.1\r\nHost: x\r\n")
        stream.settimeout(1)
    ended, idle = set(), client.connect(40)
    idle.settimeout(40)
    while len(ended) < len(streams) and time.monotonic() - begun < 120:
        for number, stream in enumerate(streams):
            if number in ended:
                continue
            try:
                stream.sendall(b"X")
                stream.settimeout(0.05)
                if not stream.recv(4096):
                    ended.add(number)
            except TimeoutError:
                pass
            except OSError:
                ended.add(number)
    took = time.monotonic() - begun
    assert len(ended) == len(streams), f"{len(streams) - len(ended)} are still open after {took:.0f} s"
    alive(c)
    idle.close()
    for stream in streams:
        stream.close()


def etcdctl(c, *words, stdin=None):
    tls = [f"--cacert={c.pki}/etcd/ca.crt", f"--cert={c.pki}/apiserver-etcd-client.crt", f"--key={c.pki}/apiserver-etcd-client.key"]
    done = shell(["etcdctl", f"--endpoints=https://127.0.0.1:{c.ports['store']}", *tls, *words], input=stdin,
                 env={**os.environ, "ETCDCTL_API": "3"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def undecodable(c):
    """An object that can't be decoded is reported; other objects are not affected; it can be deleted."""
    if not shutil.which("etcdctl"):
        raise Skip("there is no etcdctl")
    client, key = Client(c), "/registry/configmaps/default/garbage"
    c.k("create", "configmap", "neighbour", "--from-literal=a=b")
    watch = c.k.start("get", "configmaps", "--watch-only", "-o", "name")
    try:
        for number, text in enumerate(("garbage", "k8s\x00\x0a\x7f\x01", '{"kind":"ConfigMap","apiVersion":"v1","metadata":[]}', "{" * 5000)):
            etcdctl(c, "put", key, stdin=text)
            log = os.path.join(c.data, "logs", "kube-apiserver.log")
            until(lambda: "default/garbage" in open(log, errors="replace").read() or None, 30, what="the log names it")
            failure(client.ask("GET", MAPS + "/garbage"), 500, "InternalError", "garbage", "can't be decoded")
            failure(client.ask("GET", MAPS), 500, "InternalError", "garbage", "can't be decoded")
            failure(client.ask("GET", "/api/v1/configmaps?limit=500"), 500, "InternalError", "garbage")
            assert json.loads(client.ask("GET", MAPS + "/neighbour")[1])["data"] == {"a": "b"}, number
            assert client.ask("GET", "/api/v1/namespaces/kube-system/configmaps")[0] == 200
        failure(client.ask("PATCH", MAPS + "/garbage", '{"data":{"a":"b"}}', {"Content-Type": "application/merge-patch+json"}),
                500, "InternalError", "garbage")
        alive(c)
    finally:
        etcdctl(c, "del", key)
        watch.terminate()
        watch.wait(10)
    status, text = until(lambda: (lambda a: a if a[0] == 200 else None)(client.ask("GET", MAPS)), 30)
    names = [item["metadata"]["name"] for item in json.loads(text)["items"]]
    assert "neighbour" in names and "garbage" not in names, names
    c.k("delete", "configmap", "neighbour")


def strange_keys(c):
    """Keys that belong to no object are logged and have no effect."""
    if not shutil.which("etcdctl"):
        raise Skip("there is no etcdctl")
    keys = ("/registry/nothings/default/x", "/registry/configmaps/", "/registry/", "/registry/configmaps/default/a/b/c")
    for key in keys:
        etcdctl(c, "put", key, stdin="x")
    try:
        time.sleep(0.5)
        alive(c)
        status, text = Client(c).ask("GET", "/api/v1/namespaces/kube-system/configmaps")
        assert status == 200, text[:300]
    finally:
        for key in keys:
            etcdctl(c, "del", key)


def checks():
    for function, deadline in ((malformed, 60), (oversized, 60), (endless, 90), (deep, 120), (headers, 60), (slow, 90),
                               (undecodable, 90), (strange_keys, 60)):
        check(f"badinput/requests/{function.__name__.replace('_', '-')}", deadline)(function)
