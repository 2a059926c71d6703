#!/usr/bin/env python3
"""The sample extension server of Kubernetes (k8s.io/sample-apiserver) behind an APIService with verified TLS.

    extension.py KUBECONFIG DATA_DIR PROGRAM

Runs in a network namespace of its own: the server listens on the cluster IP of its Service, since no kube-proxy runs here.
"""
import base64
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, until  # noqa: E402

NAMESPACE = "extension"
GROUP = "wardle.example.com"
FLUNDER = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Flunder", "metadata": {"name": "one", "labels": {"a": "b"}}, "spec": {"reference": "x"}}


class Context:
    def __init__(self, kubeconfig, data, program):
        self.kubeconfig, self.data, self.program = kubeconfig, data, program
        self.kubectl = Kubectl(kubeconfig, NAMESPACE)
        self.directory = tempfile.mkdtemp(dir=os.environ.get("WORK"))
        self.server = None

    def path(self, name):
        return os.path.join(self.directory, name)

    def apply(self, *objects, namespace=NAMESPACE):
        self.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def stop(self):
        if self.server:
            # A graceful stop waits up to a minute for the watches.
            self.server.kill()
            self.server.wait(20)


def certify(c, name):
    """Makes a CA and a certificate for `name`; returns the CA's certificate."""
    for words in (["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=ca",
                   "-keyout", c.path("ca.key"), "-out", c.path("ca.crt")],
                  ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                   "-keyout", c.path("tls.key"), "-out", c.path("tls.csr")]):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    with open(c.path("names"), "w") as file:
        file.write(f"subjectAltName=DNS:{name}\n")
    subprocess.run(["openssl", "x509", "-req", "-days", "1", "-in", c.path("tls.csr"), "-CA", c.path("ca.crt"), "-CAkey", c.path("ca.key"),
                    "-CAcreateserial", "-extfile", c.path("names"), "-out", c.path("tls.crt")], check=True, capture_output=True)
    with open(c.path("ca.crt"), "rb") as file:
        return base64.b64encode(file.read()).decode()


def account_kubeconfig(c):
    """Writes a kubeconfig with the token of the server's ServiceAccount."""
    token = c.kubectl("create", "token", "server").strip()
    config = json.loads(c.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"token": token}}]
    with open(c.path("kubeconfig"), "w") as file:
        json.dump(config, file)
    return c.path("kubeconfig")


def binding(kind, name, role_kind, role, namespace=None):
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "server", "namespace": NAMESPACE}]}


@check("interop/extension/available", deadline=90)
def available(c):
    c.kubectl("create", "namespace", NAMESPACE)
    c.kubectl("create", "serviceaccount", "server")
    # What the server's informers and admission plugins read, besides delegated authentication and authorization.
    reader = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "extension-reader"}, "rules": [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["flowcontrol.apiserver.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]}
    c.apply(reader, binding("ClusterRoleBinding", "extension-reader", "ClusterRole", "extension-reader"),
            binding("ClusterRoleBinding", "extension-delegator", "ClusterRole", "system:auth-delegator"))
    c.apply(binding("RoleBinding", "extension-authentication", "Role", "extension-apiserver-authentication-reader", "kube-system"),
            namespace="kube-system")
    ca = certify(c, f"server.{NAMESPACE}.svc")
    c.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"}, "spec": {"ports": [{"port": 443, "name": "https"}]}})
    address = c.kubectl("get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "node0"], check=True)
    c.apply({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
             "metadata": {"name": "server", "labels": {"kubernetes.io/service-name": "server"}},
             "ports": [{"name": "https", "port": 443, "protocol": "TCP"}],
             "endpoints": [{"addresses": ["198.51.100.10"], "conditions": {"ready": True}}]})
    kubeconfig, pki = account_kubeconfig(c), os.path.join(c.data, "pki")
    store = re.search(r"https://127\.0\.0\.1:\d+", running_flags(c)).group(0)
    words = [c.program, f"--kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
             f"--bind-address={address}", "--secure-port=443", f"--tls-cert-file={c.path('tls.crt')}",
             f"--tls-private-key-file={c.path('tls.key')}", f"--etcd-servers={store}", "--etcd-prefix=/extension",
             f"--etcd-cafile={pki}/etcd/ca.crt", f"--etcd-certfile={pki}/apiserver-etcd-client.crt",
             f"--etcd-keyfile={pki}/apiserver-etcd-client.key"]
    with open(c.path("server.log"), "w") as file:
        c.server = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    # Of equal priorities, v1beta1 would be preferred.
    for version, priority in (("v1alpha1", 20), ("v1beta1", 15)):
        c.apply({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{version}.{GROUP}"},
                 "spec": {"group": GROUP, "version": version, "groupPriorityMinimum": 1000, "versionPriority": priority,
                          "service": {"name": "server", "namespace": NAMESPACE}, "caBundle": ca}})
        until(lambda: "True" in c.kubectl("get", "apiservice", f"{version}.{GROUP}", "-o",
                                          "jsonpath={.status.conditions[?(@.type=='Available')].status}"), 40, what=f"{version} is available")


def running_flags(c):
    """Returns the command line of this cluster's API server."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                line = file.read()
        except OSError:
            continue
        if c.data in line and "--etcd-servers=" in line and "kube-apiserver" in line.split("\0")[0]:
            return line[line.index("--etcd-servers="):]
    return ""


@check("interop/extension/discovery", needs=("interop/extension/available",))
def discovery(c):
    until(lambda: {"flunders." + GROUP, "fischers." + GROUP} <= set(
        c.kubectl("api-resources", "--api-group", GROUP, "-o", "name").split()), 20)
    assert f"{GROUP}/v1beta1" in c.kubectl("api-versions")


@check("interop/extension/objects", needs=("interop/extension/available",))
def objects(c):
    c.kubectl("create", "-f", "-", stdin=json.dumps(FLUNDER))
    again = c.kubectl.run("create", "-f", "-", stdin=json.dumps(FLUNDER), okay=False)
    assert "AlreadyExists" in again.stderr, again.stderr
    assert json.loads(c.kubectl("get", "flunder", "one", "-o", "json"))["spec"]["reference"] == "x"
    assert c.kubectl("get", "flunders", "-l", "a=b", "-o", "name").split() == [f"flunder.{GROUP}/one"]
    c.kubectl("patch", "flunder", "one", "--type=merge", "-p", '{"spec":{"reference":"y"}}')
    applied = FLUNDER | {"metadata": {"name": "two"}}
    c.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(applied))
    # v1beta1 has another field for the same reference: the server converts.
    other = json.loads(c.kubectl("get", f"flunders.v1beta1.{GROUP}", "one", "-o", "json"))
    assert other["apiVersion"] == f"{GROUP}/v1beta1" and other["spec"].get("flunderReference") == "y", other
    missing = c.kubectl.run("get", "flunder", "none", okay=False)
    assert f'flunders.{GROUP} "none" not found' in missing.stderr, missing.stderr


@check("interop/extension/table", needs=("interop/extension/objects",))
def table(c):
    lines = c.kubectl("get", "flunders").splitlines()
    assert lines[0].split()[0] == "NAME" and len(lines) == 3, lines


@check("interop/extension/watch", needs=("interop/extension/objects",))
def watch(c):
    process = c.kubectl.start("get", "flunders", "--watch", "-o", "name")
    try:
        # The server also warns that its kind is deprecated.
        names = (line.strip() for line in process.stdout if not line.startswith("Warning:"))
        first = {next(names), next(names)}
        assert first == {f"flunder.{GROUP}/one", f"flunder.{GROUP}/two"}, first
        c.kubectl("create", "-f", "-", stdin=json.dumps(FLUNDER | {"metadata": {"name": "three"}}))
        assert next(names) == f"flunder.{GROUP}/three"
    finally:
        process.terminate()
        process.wait(10)
    c.kubectl("delete", "flunder", "three", "--wait=true")


@check("interop/extension/rbac", needs=("interop/extension/objects",))
def rbac(c):
    user = ("--as=anna", "--as-group=system:authenticated")
    denied = c.kubectl.run("get", "flunders", *user, okay=False)
    assert "Forbidden" in denied.stderr and '"anna" cannot list resource "flunders"' in denied.stderr, denied.stderr
    c.kubectl("create", "role", "reader", "--verb=get,list", f"--resource=flunders.{GROUP}")
    c.kubectl("create", "rolebinding", "reader", "--role=reader", "--user=anna")
    until(lambda: "one" in c.kubectl("get", "flunders", *user), 20)
    assert "Forbidden" in c.kubectl.run("delete", "flunder", "one", *user, okay=False).stderr


@check("interop/extension/explain", needs=("interop/extension/available",))
def explain(c):
    done = c.kubectl.run("explain", "flunders.spec", okay=None)
    if done.returncode:
        raise Skip(f"OpenAPI of extension servers is not merged: {done.stderr.strip()[-200:]}")
    assert "reference" in done.stdout, done.stdout


@check("interop/extension/namespace", deadline=90, needs=("interop/extension/objects",))
def namespace(c):
    """The namespace's deletion also deletes the extension server's objects."""
    c.kubectl("create", "namespace", "extension-other")
    c.kubectl("create", "-n", "extension-other", "-f", "-", stdin=json.dumps(FLUNDER | {"metadata": {"name": "four"}}))
    c.kubectl("delete", "namespace", "extension-other", "--timeout=60s", timeout=70)
    c.kubectl("create", "namespace", "extension-other")
    assert c.kubectl("get", "flunders", "-n", "extension-other", "-o", "name") == ""


@check("interop/extension/unavailable", deadline=90, needs=("interop/extension/available",))
def unavailable(c):
    c.stop()
    until(lambda: c.kubectl("get", "apiservice", f"v1alpha1.{GROUP}", "-o",
                            "jsonpath={.status.conditions[?(@.type=='Available')].status}") == "False", 60)
    failed = c.kubectl.run("get", "--raw", f"/apis/{GROUP}/v1alpha1/flunders", okay=False)
    assert "ServiceUnavailable" in failed.stderr or "unable to handle" in failed.stderr, failed.stderr
    c.kubectl("delete", "apiservice", f"v1alpha1.{GROUP}", f"v1beta1.{GROUP}")
    c.kubectl("delete", "namespace", "extension-other", NAMESPACE, "--ignore-not-found", "--timeout=60s", timeout=70)


if __name__ == "__main__":
    context = Context(*sys.argv[1:4])
    try:
        status = main(context)
    finally:
        context.stop()
    sys.exit(status)
