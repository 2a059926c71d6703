#!/usr/bin/env python3
"""Cost of requests of kube-apiserver on kvstore, and of stock ones on etcd if they are installed.

The stock components are $STOCK_APISERVER and $STOCK_ETCD, or kube-apiserver and etcd in PATH.
"""
import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from figures import table, write  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--apiserver", help="another build of kube-apiserver to measure instead")
    parser.add_argument("--options", default="", help="options of `cluster-bench apiserver`")
    options = parser.parse_args()
    own = options.apiserver or f"{options.bin}/kube-apiserver"
    figures = {"measured": measure(options, own, f"{options.bin}/kvstore")}
    stock, etcd = find("STOCK_APISERVER", "kube-apiserver"), find("STOCK_ETCD", "etcd")
    if stock and etcd:
        figures["stock"] = measure(options, stock, etcd)
    show(figures)
    write(options, figures)


def find(variable, name):
    return os.environ.get(variable) or shutil.which(name)


def measure(options, apiserver, store):
    """Starts a store and an API server alone, and measures them."""
    with tempfile.TemporaryDirectory(prefix="apiserver-bench.") as folder:
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
            words = ["--objects=1600", "--requests=500", "--watchers=100", "--rounds=2"] if options.quick else []
            command = [f"{options.bin}/cluster-bench", "apiserver", f"--kubeconfig={kubeconfig}", f"--pid={server.pid}"]
            done = subprocess.run(command + words + options.options.split(), stdout=subprocess.PIPE, text=True, timeout=3600)
            if done.returncode != 0:
                raise SystemExit(f"{apiserver}: cluster-bench failed; its log is on standard error")
            return json.loads(done.stdout)
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


def show(figures):
    columns = list(figures)
    rows = [[row["what"], row["size"]] for row in figures["measured"]]
    for name in columns:
        found = {(row["what"], row["size"]): row for row in figures[name]}
        for row in rows:
            row.append(describe(found.get((row[0], row[1]), {})))
    table(["work", "objects or watchers", *columns], rows)


def describe(row):
    if "rate" in row:
        return f"{row['rate']:.0f}/s, {row['p50_ms']} and {row['p99_ms']} ms, CPU {row['cpu_ms']} ms"
    return " ".join(f"{value} {unit}" for unit, value in row.items() if unit not in ("what", "size"))


main()
