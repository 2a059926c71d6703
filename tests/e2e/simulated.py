#!/usr/bin/env python3
"""All binaries on loopback with kubelets on the simulated runtime: workloads converge, also after any process is killed.

    simulated.py --kubeconfig FILE --data-dir DIR --ironclad BINARY
"""
import argparse
import base64
import datetime
import hashlib
import hmac
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, shell, until  # noqa: E402
from issuer import Issuer  # noqa: E402

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
    "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}}}

WEB = ("simulated/deployment",)


class Context:
    def __init__(self, options):
        self.k, self.data, self.ironclad = Kubectl(options.kubeconfig), options.data_dir, options.ironclad

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json"))

    def components(self):
        done = shell([self.ironclad, "status", "--data-dir", self.data, "--output", "json"])
        return {c["name"]: c for c in json.loads(done.stdout)["components"]}

    def scaled(self, replicas):
        self.k("scale", "deployment", "web", f"--replicas={replicas}")
        until(lambda: self.json("deployment", "web")["status"].get("readyReplicas", 0) == replicas, 60,
              what=f"{replicas} ready replicas")


@check("simulated/node-ready")
def node_ready(c):
    c.k("wait", "node", "--all", "--for=condition=Ready", "--timeout=90s", timeout=100)


@check("simulated/nodes-have-addresses-of-their-own")
def node_addresses(c):
    nodes = c.json("nodes")["items"]
    addresses = [a["address"] for n in nodes for a in n["status"]["addresses"] if a["type"] == "InternalIP"]
    ranges = [n["spec"]["podCIDR"] for n in nodes]
    assert len(set(addresses)) == len(set(ranges)) == len(nodes) == 2, f"{addresses} {ranges}"


@check("simulated/deployment", deadline=90)
def deployment(c):
    c.k("apply", "-f", "-", stdin=json.dumps(DEPLOYMENT))
    c.k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    addresses = [p["status"]["podIP"] for p in c.json("pods", "-l", "app=web")["items"]]
    assert len(set(addresses)) == 3, addresses


@check("simulated/audit-log-names-who-wrote-what", needs=WEB)
def audit_log(c):
    path = os.path.join(c.data, "logs", "audit", "audit.log")
    assert os.stat(path).st_mode & 0o777 == 0o600 and os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700

    def read():
        """A line of the moment may not be whole yet."""
        with open(path) as lines:
            events = [json.loads(line) for line in lines]
        return events, [e for e in events if e["verb"] == "create" and e["objectRef"].get("resource") == "deployments"]
    events, written = until(lambda: (found := read())[1] and found, what="the event of the creation")
    assert written[0]["user"]["username"] == "kubernetes-admin", written[:1]
    assert written[0]["responseStatus"]["code"] == 201 and "requestObject" not in written[0], written[0]
    assert not [e for e in events if e.get("objectRef", {}).get("resource") == "leases"]


@check("simulated/service-endpoints", needs=WEB)
def service(c):
    c.k("expose", "deployment", "web", "--port=80")
    until(lambda: sum(len(s["endpoints"]) for s in c.json("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]) == 3)


@check("simulated/pod-status-of-another-client-is-repaired", deadline=90, needs=WEB)
def repaired(c):
    """The node lifecycle controller marks the pods of a node that was not ready; only the kubelet reverts that."""
    name = c.json("pods", "-l", "app=web")["items"][0]["metadata"]["name"]

    def ready():
        conditions = c.json("pod", name)["status"]["conditions"]
        return next(condition["status"] for condition in conditions if condition["type"] == "Ready")
    # The second repair may come 10 s after the first.
    for _ in range(2):
        change = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        c.k("patch", "pod", name, "--subresource=status", "--type=strategic", "-p", json.dumps(change))
        until(lambda: ready() == "True", 30, what="the pod is ready again")


@check("simulated/pod-failed-by-another-client-is-torn-down", deadline=90)
def failed_by_client(c):
    c.k("run", "victim", "--image=web:1")
    c.k("wait", "pod/victim", "--for=condition=Ready", "--timeout=60s", timeout=70)
    c.k("patch", "pod", "victim", "--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Failed", "reason": "Lost"}}')
    until(lambda: "terminated" in c.json("pod", "victim")["status"]["containerStatuses"][0]["state"], 40,
          what="the container is terminated")
    status = c.json("pod", "victim")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Lost"), status
    c.k("delete", "pod", "victim", "--timeout=60s", timeout=70)


@check("simulated/rollout", deadline=90, needs=WEB)
def rollout(c):
    c.k("set", "image", "deployment/web", "c=web:2")
    c.k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    c.k("rollout", "undo", "deployment/web")
    c.k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    assert c.json("deployment", "web")["spec"]["template"]["spec"]["containers"][0]["image"] == "web:1"


@check("simulated/owner-chain-is-collected", deadline=90)
def collected(c):
    c.k("create", "deployment", "brief", "--image=web:1")
    until(lambda: c.json("pods", "-l", "app=brief")["items"])
    c.k("delete", "deployment", "brief")
    until(lambda: not c.json("pods", "-l", "app=brief")["items"] and not c.json("rs", "-l", "app=brief")["items"], 60)


@check("simulated/namespace-is-emptied", deadline=90)
def namespace(c):
    c.k("create", "ns", "gone")
    c.k("create", "configmap", "x", "-n", "gone")
    c.k("create", "deployment", "d", "-n", "gone", "--image=web:1")
    c.k("delete", "ns", "gone", timeout=80)


@check("simulated/certificates-are-renewed-on-request", deadline=90, needs=WEB)
def renewed(c):
    def certs(*words):
        done = shell([c.ironclad, "certs", *words, "--data-dir", c.data], timeout=60)
        assert done.returncode == 0, done.stderr
        return done

    def serials():
        folder = os.path.join(c.data, "pki")
        return {x["name"]: shell(["openssl", "x509", "-noout", "-serial", "-in", os.path.join(folder, x["name"])]).stdout
                for x in json.loads(certs("list", "-o", "json").stdout)}
    listed = json.loads(certs("list", "--output=json").stdout)
    authorities = {x["name"] for x in listed if x["isCa"]}
    assert all((x["renewedBy"] == "supervisor") != x["isCa"] for x in listed), listed
    assert authorities == {"ca.crt", "etcd/ca.crt", "front-proxy-ca.crt"} and len(listed) >= 16, listed
    assert listed == sorted(listed, key=lambda x: x["expires"])
    def exposed():
        name = "ironclad_certificate_expiration_timestamp_seconds"
        lines = [line for line in c.k("get", "--raw", "/metrics").splitlines() if line.startswith(name + "{")]
        return {re.search('flag="([^"]+)"', line)[1]: float(line.split()[-1]) for line in lines}
    ends = {x["name"]: datetime.datetime.fromisoformat(x["expires"]).timestamp() for x in listed}
    assert exposed() == {flag: ends[name] for flag, name in [
        ("tls-cert-file", "apiserver.crt"), ("client-ca-file", "ca.crt"), ("etcd-cafile", "etcd/ca.crt"),
        ("etcd-certfile", "apiserver-etcd-client.crt"), ("kubelet-certificate-authority", "ca.crt"),
        ("kubelet-client-certificate", "apiserver-kubelet-client.crt"), ("proxy-client-cert-file", "front-proxy-client.crt"),
        ("requestheader-client-ca-file", "front-proxy-ca.crt")]}, exposed()
    before, pids = serials(), {name: x["pid"] for name, x in c.components().items()}
    certs("renew", "scheduler", "etcd/peer.crt")
    after = serials()
    assert {name for name in before if before[name] != after[name]} == {"scheduler.crt", "etcd/peer.crt"}, after
    refused = shell([c.ironclad, "certs", "renew", "ca", "--data-dir", c.data])
    assert refused.returncode == 1 and "ca is not a certificate that is renewed" in refused.stderr, refused.stderr
    certs("renew", "--all")
    after = serials()
    assert {name for name in before if before[name] == after[name]} == authorities, after
    c.scaled(2)
    ends = {x["name"]: datetime.datetime.fromisoformat(x["expires"]).timestamp() for x in json.loads(certs("list", "-o", "json").stdout)}
    until(lambda: exposed()["tls-cert-file"] == ends["apiserver.crt"], 30)
    host = re.search(r"server: https://(\S+)", open(c.k.kubeconfig, encoding="utf-8").read())[1]

    def shown():
        script = f"openssl s_client -connect {host} </dev/null 2>/dev/null | openssl x509 -noout -serial"
        return shell(script).stdout == after["apiserver.crt"]
    until(shown, 20, what="the API server shows the new certificate")
    pki = os.path.join(c.data, "pki")
    with open(os.path.join(c.data, "config", "kubelet.yaml"), encoding="utf-8") as f:
        port = json.load(f)["port"]
    trust = ssl.create_default_context(cafile=os.path.join(pki, "ca.crt"))
    trust.load_cert_chain(*(os.path.join(pki, f"apiserver-kubelet-client.{ending}") for ending in ("crt", "key")))
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", timeout=60, context=trust) as page:
        lines = page.read().decode().splitlines()
    for side in ("client", "server"):
        life = next(line for line in lines if line.startswith(f"kubelet_certificate_manager_{side}_ttl_seconds "))
        assert 364 * 86400 < float(life.split()[-1]) <= 365 * 86400, life
    assert {name: x["pid"] for name, x in c.components().items()} == pids, "a process was restarted"


@check("simulated/doctor-names-problems-with-a-command", deadline=150)
def doctor(c):
    def examine():
        done = shell([c.ironclad, "doctor", "--data-dir", c.data, "--output", "json"], timeout=60)
        findings = {x["subject"]: x for x in json.loads(done.stdout)["findings"]}
        assert (done.returncode != 0) == any(x["severity"] == "error" for x in findings.values()), done.stderr
        # The disk may be full for reasons of the machine.
        return {subject: x for subject, x in findings.items() if not subject.startswith("disk of ")}
    until(lambda: not examine(), 60, what="nothing is found in a cluster that works")
    node = c.json("nodes")["items"][0]["metadata"]["name"]
    c.k("cordon", node)
    assert examine()[f"node {node}"]["remedy"] == f"kubectl uncordon {node}"
    c.k("uncordon", node)
    guard = {"name": "guard.example.com", "clientConfig": {"service": {"namespace": "default", "name": "absent"}}, "sideEffects": "None",
             "admissionReviewVersions": ["v1"], "rules": [{"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]}
    c.k("create", "-f", "-", stdin=json.dumps({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                                               "metadata": {"name": "guard"}, "webhooks": [guard]}))
    remedy = examine()["validatingwebhookconfiguration guard, webhook guard.example.com"]["remedy"]
    assert remedy.startswith("kubectl delete validatingwebhookconfiguration guard "), remedy
    c.k("delete", "validatingwebhookconfiguration", "guard")
    for component, subject, text in [("kvstore", "API server", "etcd"), ("kube-scheduler", "kube-scheduler", "no leader")]:
        pid = c.components()[component]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: text in examine()[subject]["problem"], 40, what=f"the stopped {component} is found")
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: not examine(), 60, what="nothing is found again")


class Tokens:
    """The commands for bootstrap tokens, and requests of clients that have no certificate."""

    INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

    def __init__(self, c):
        self.c = c
        cluster = json.loads(c.k("config", "view", "--raw", "-o", "json"))["clusters"][0]["cluster"]
        self.server, self.ca = cluster["server"], cluster["certificate-authority-data"]

    def command(self, *words, okay=True):
        cluster = [] if words == ("generate",) else ["--data-dir", self.c.data]
        done = shell([self.c.ironclad, "token", *words, *cluster])
        assert (done.returncode == 0) == okay, f"token {words} ended with {done.returncode}: {done.stderr}"
        return done.stdout.strip()

    def get(self, path, token=None, method="GET", body=None):
        """Returns the status and the object of a response; the server's certificate is not verified, as when joining."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = None if body is None else json.dumps(body).encode()
        headers.update({} if body is None else {"Content-Type": "application/json"})
        request = urllib.request.Request(self.server + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=60) as reply:
                text = reply.read()
                return reply.status, json.loads(text) if text.startswith(b"{") else {}
        except urllib.error.HTTPError as error:
            return error.code, {}

    def signature(self, token):
        return self.get(self.INFO)[1]["data"].get(f"jws-kubeconfig-{token.split('.')[0]}")

    def is_signed(self, token):
        """Verifies the signature of cluster-info as a joining machine does."""
        def encode(data):
            return base64.urlsafe_b64encode(data).rstrip(b"=")
        name, secret = token.split(".")
        head = encode(json.dumps({"alg": "HS256", "kid": name}, separators=(",", ":")).encode())
        content = self.get(self.INFO)[1]["data"]["kubeconfig"].encode()
        code = hmac.new(secret.encode(), head + b"." + encode(content), hashlib.sha256).digest()
        return self.signature(token) == f"{head.decode()}..{encode(code).decode()}"


@check("simulated/bootstrap-token")
def bootstrap_token(c):
    """A token signs cluster-info, authenticates for certificate requests and nothing else, and ends with its deletion."""
    t = Tokens(c)
    token = t.command("create", "--ttl", "1h", "--description", "a test")
    name, secret = token.split(".")
    until(lambda: t.is_signed(token), what="cluster-info is signed")
    assert t.server in t.get(t.INFO)[1]["data"]["kubeconfig"]
    listed = t.command("list")
    assert name in listed and "a test" in listed and secret not in listed, listed
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    for path, bearer, method, expected in [
            ("/api/v1/namespaces/kube-public/configmaps", None, "GET", 401),
            (t.INFO + "/", None, "GET", 401),
            ("/api/v1/namespaces/kube-public/configmaps/cluster%2Dinfo/status", None, "GET", 401),
            (t.INFO, None, "DELETE", 403),
            (requests, token, "GET", 200),
            ("/api/v1/nodes", token, "GET", 403),
            ("/api/v1/namespaces/kube-system/secrets", token, "GET", 403),
            ("/api/v1/namespaces/kube-system/secrets/bootstrap-token-" + name, token, "GET", 403),
            (requests, f"{name}.0000000000000000", "GET", 401),
            (requests, t.command("generate"), "GET", 401)]:
        status = t.get(path, bearer, method)[0]
        assert status == expected, f"{method} {path} as {bearer and bearer.split('.')[0]}: {status}"
    t.command("delete", name)
    until(lambda: t.get(requests, token)[0] == 401, what="the token no longer authenticates")
    until(lambda: t.signature(token) is None, what="the signature is removed")
    t.command("delete", name, okay=False)


@check("simulated/token-issuers-of-up", deadline=180)
def token_issuers(c):
    """`up` checks the issuers before it changes anything, restarts the API server only, and keeps its anonymous access."""
    t = Tokens(c)
    config = os.path.join(c.data, "config", "authentication.yaml")

    def up(path, okay=True):
        done = shell([c.ironclad, "up", "--data-dir", c.data, f"--authentication-config={path}"], timeout=100)
        assert (done.returncode == 0) == okay, done.stderr
        return done.stderr

    def state():
        with open(config, encoding="utf-8") as written, open(os.path.join(c.data, "settings.json"), encoding="utf-8") as settings:
            return written.read(), settings.read(), {name: x["pid"] for name, x in c.components().items()}

    def anonymous():
        return [t.get(path)[0] for path in ("/readyz", t.INFO, "/api", "/version")]

    def user(token):
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        status, body = t.get("/apis/authentication.k8s.io/v1/selfsubjectreviews", token, "POST", review)
        return body["status"]["userInfo"]["username"] if status == 201 else status
    with tempfile.TemporaryDirectory() as folder, Issuer(folder) as issuer:
        def write(tree):
            path = os.path.join(folder, "authentication.yaml")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(tree, file)
            return path
        before, good = state(), issuer.configuration("sso:")
        plain = {**good, "jwt": [{**good["jwt"][0], "issuer": {**good["jwt"][0]["issuer"], "url": "http://127.0.0.1"}}]}
        for wrong, words in [({**good, "anonymous": {"enabled": True}}, ["anonymous", "remove the field"]), ({**good, "jtw": []}, ["jtw"]),
                             (plain, ["jwt[0].issuer.url", "http://127.0.0.1", "correct the file"])]:
            said = up(write(wrong), okay=False)
            assert all(word in said for word in ["--authentication-config", *words]), said
        assert state() == before, "a refused file has changed something"
        open_paths = anonymous()
        assert open_paths[:2] == [200, 200] and open_paths[2:] == [401, 401], open_paths
        token = issuer.sign("jane")
        assert user(token) == 401
        up(write(good))
        assert user(token) == "sso:jane" and anonymous() == open_paths
        pids = state()[2]
        assert {name for name in pids if pids[name] != before[2][name]} == {"kube-apiserver"}, (before, pids)
        up(write(issuer.configuration("other:")))
        assert user(token) == "other:jane"
        changed = state()
        done = shell([c.ironclad, "up", "--data-dir", c.data], timeout=100)
        assert done.returncode == 0 and state() == changed, "a repeated up has changed something"
        up("")
        assert user(token) == 401 and state()[:2] == before[:2] and anonymous() == open_paths


@check("simulated/kubelet-joins-with-a-token", deadline=120)
def kubelet_joins(c):
    """A kubelet with nothing but a token gets a certificate and becomes a node; with a deleted token it ends."""
    t = Tokens(c)
    token = t.command("create", "--ttl", "10m")
    with tempfile.TemporaryDirectory() as folder:
        def start(node, bearer):
            bootstrap = os.path.join(folder, f"{node}.bootstrap")
            with open(bootstrap, "w", encoding="utf-8") as file:
                json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                           "clusters": [{"name": "c", "cluster": {"server": t.server, "certificate-authority-data": t.ca}}],
                           "users": [{"name": "u", "user": {"token": bearer}}],
                           "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, file)
            root = os.path.join(folder, node)
            with open(os.path.join(folder, f"{node}.log"), "wb") as log:
                return subprocess.Popen([
                    os.path.join(os.path.dirname(c.ironclad), "kubelet"), "--simulated", f"--root-dir={root}",
                    f"--kubeconfig={root}.kubeconfig", f"--bootstrap-kubeconfig={bootstrap}", f"--hostname-override={node}",
                    "--node-ip=127.0.0.1", "--address=127.0.0.1", "--port=0", "--healthz-port=0", "--rotate-certificates",
                    "--register-with-taints=example.com/test:NoSchedule"], stdout=log, stderr=log)
        kubelet = start("joined", token)
        try:
            until(lambda: c.k("wait", "node/joined", "--for=condition=Ready", "--timeout=5s"), 60, what="the node is ready")
        finally:
            kubelet.terminate()
            kubelet.wait(60)
        c.k("delete", "node", "joined")
        t.command("delete", token)
        until(lambda: t.get("/api", token)[0] == 401, what="the token no longer authenticates")
        refused = start("refused", token)
        try:
            assert refused.wait(90) == 1
        finally:
            refused.kill()
        with open(os.path.join(folder, "refused.log"), encoding="utf-8") as log:
            text = log.read()
        assert "the token in --bootstrap-kubeconfig is not valid" in text, text[-800:]
    c.k("get", "node", "refused", okay=False)


@check("simulated/kill-each-process", deadline=300, needs=WEB)
def kill_each(c):
    for turn, name in enumerate(sorted(c.components())):
        before = c.components()[name]
        os.kill(before["pid"], signal.SIGKILL)
        until(lambda: (lambda now: now["ready"] and now["pid"] != before["pid"])(c.components()[name]), 60,
              what=f"{name} is back")
        until(lambda: c.k("get", "--raw", "/readyz") == "ok", 30)
        c.scaled(2 + turn % 2)


import simulated_ca  # noqa: E402,F401  # its check, in this place of the order


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    sys.exit(main(Context(parser.parse_args())))
