"""A store and an API server alone, without any other component."""
import contextlib
import json
import socket
import subprocess
import tempfile
import time
from typing import NamedTuple


class Alone(NamedTuple):
    """A running API server; its certificates and logs are in the folder."""
    folder: str
    port: int
    kubeconfig: str
    pid: int


@contextlib.contextmanager
def running(apiserver, store):
    """Starts both; they end with the block."""
    with tempfile.TemporaryDirectory(prefix="alone.") as folder:
        certificates(folder)
        ports = [free_port() for _ in range(3)]
        url = f"http://127.0.0.1:{ports[0]}"
        peer = f"http://127.0.0.1:{ports[1]}"
        store = start(folder, "store", store, f"--data-dir={folder}/store", f"--listen-client-urls={url}",
                      f"--advertise-client-urls={url}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                      f"--initial-cluster=default={peer}")
        server = start(folder, "apiserver", apiserver, f"--etcd-servers={url}", f"--secure-port={ports[2]}",
                       "--bind-address=127.0.0.1", "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC",
                       f"--tls-cert-file={folder}/server.crt", f"--tls-private-key-file={folder}/server.key",
                       f"--client-ca-file={folder}/ca.crt", "--service-account-issuer=https://kubernetes.default.svc",
                       f"--service-account-key-file={folder}/sa.key", f"--service-account-signing-key-file={folder}/sa.key")
        try:
            kubeconfig = write_kubeconfig(folder, ports[2])
            wait_ready(folder, ports[2])
            yield Alone(folder, ports[2], kubeconfig, server.pid)
        finally:
            for process in (server, store):
                process.kill()
                process.wait()


def start(folder, name, *command):
    with open(f"{folder}/{name}.log", "w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def certificates(folder):
    """Writes a CA, a serving certificate, an administrator's certificate and a key for tokens."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca", "-days", "2")
    for name, subject, extension in (("server", "/CN=kube-apiserver", "subjectAltName=IP:127.0.0.1"),
                                     ("admin", "/O=system:masters/CN=admin", "extendedKeyUsage=clientAuth")):
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        with open(f"{folder}/{name}.ext", "w") as f:
            f.write(extension)
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.crt", "-days", "2", "-extfile", f"{name}.ext")
    openssl("genpkey", "-algorithm", "RSA", "-out", "sa.key")


def write_kubeconfig(folder, port):
    path = f"{folder}/kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": f"{folder}/ca.crt"}
    user = {"client-certificate": f"{folder}/admin.crt", "client-key": f"{folder}/admin.key"}
    with open(path, "w") as f:
        json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                   "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
                   "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, f)
    return path


def wait_ready(folder, port):
    begun = time.monotonic()
    curl = ["curl", "-s", "-m", "1", "--cacert", f"{folder}/ca.crt", "--cert", f"{folder}/admin.crt",
            "--key", f"{folder}/admin.key", f"https://127.0.0.1:{port}/readyz"]
    while subprocess.run(curl, capture_output=True).stdout != b"ok":
        if time.monotonic() - begun > 60:
            raise SystemExit("the API server was not ready within 60 s:\n" + open(f"{folder}/apiserver.log").read()[-3000:])
        time.sleep(0.05)
