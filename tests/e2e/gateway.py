#!/usr/bin/env python3
"""The gateway as pods of a cluster: requests of a client outside of it, through the load balancer's address to pods of both nodes.

    gateway.py --kubeconfig FILE --data-dir DIR --images DIR --work DIR

The client is a network namespace on the bridge node0, which has an address beside the nodes' own.
"""
import argparse
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, shell, until  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
MANIFESTS = os.path.join(ROOT, "deploy", "gateway")
CLIENT, CLIENT_ADDRESS = "gateway-client", "198.51.100.90"
# Answers with the name of the pod and the address of the client, as the gateway names it.
SERVER = """mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\\necho\\necho "$(hostname) saw $HTTP_X_FORWARDED_FOR by $HTTP_X_FORWARDED_PROTO"\\n' >/tmp/www/cgi-bin/who
chmod +x /tmp/www/cgi-bin/who
printf %s "$PAGE" >/tmp/www/page.html
echo 'var two = location.host' >/tmp/www/two.js
exec httpd -f -p 8080 -h /tmp/www"""
# Loads a script of another host, sends requests at the same time, and shows what came back and by which protocols.
PAGE = """<!doctype html><title>shop</title><pre></pre><script src="https://two.example.com/two.js"></script><script>
(async () => {
  const send = () => fetch("/cgi-bin/who").then(response => response.text())
  const answers = (await Promise.all(Array.from({length: 40}, send))).map(text => text.trim())
  const entries = performance.getEntries().filter(entry => entry.nextHopProtocol && entry.name.startsWith(location.origin))
  const shown = {two: window.two, answers, protocols: [...new Set(entries.map(entry => entry.nextHopProtocol))]}
  document.querySelector("pre").textContent = JSON.stringify(shown)
})()
</script>
"""
LABELS = {"app": "shop"}
SHOP = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gateway-shop"}},
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "shop", "namespace": "gateway-shop"}, "spec": {
        "selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [{
                "name": "c", "image": "ironclad.local/busybox:1", "command": ["sh", "-c", SERVER],
                "env": [{"name": "PAGE", "value": PAGE}], "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "gateway-shop"}, "spec": {
        "selector": LABELS, "ports": [{"port": 80, "targetPort": 8080}]}},
]
INGRESS = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "shop"}, "spec": {
    "ingressClassName": "ironclad", "rules": [{"host": "shop.example.com", "http": {"paths": [
        {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "shop", "port": {"number": 80}}}}]}}]}}
BROWSED = [
    {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "browsed"}, "spec": {
        "gatewayClassName": "ironclad", "listeners": [{
            "name": name, "port": 443, "protocol": "HTTPS", "hostname": f"{name}.example.com",
            "tls": {"certificateRefs": [{"name": "browsed-tls"}]}} for name in ("one", "two")]}},
    {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "browsed"}, "spec": {
        "parentRefs": [{"name": "browsed"}], "rules": [{"backendRefs": [{"name": "shop", "port": 80}]}]}},
]
GATEWAY = [
    {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "public"}, "spec": {
        "gatewayClassName": "ironclad", "listeners": [{
            "name": "https", "port": 443, "protocol": "HTTPS", "hostname": "api.example.com",
            "tls": {"certificateRefs": [{"name": "api-tls"}]}}]}},
    {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "api"}, "spec": {
        "parentRefs": [{"name": "public"}], "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
            "filters": [{"type": "URLRewrite", "urlRewrite": {"path": {
                "type": "ReplacePrefixMatch", "replacePrefixMatch": "/cgi-bin"}}}],
            "backendRefs": [{"name": "shop", "port": 80}]}]}},
]
def same(name):
    """Returns a Gateway whose listener is that of others, and its route, whose responses have its name."""
    return (
        {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": name}, "spec": {
            "gatewayClassName": "ironclad", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP", "hostname": "same.example.com"}]}},
        {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name}, "spec": {
            "parentRefs": [{"name": name}], "rules": [{
                "filters": [{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "x-gateway", "value": name}]}}],
                "backendRefs": [{"name": "shop", "port": 80}]}]}})


STARTED = ("gateway/pods-are-ready-and-have-an-address",)


class Context:
    def __init__(self, options):
        self.k = Kubectl(options.kubeconfig, "gateway-shop")
        self.own = Kubectl(options.kubeconfig, "ironclad-gateway")
        self.data, self.images, self.work = options.data_dir, options.images, options.work
        self.address = None

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json"))

    def apply(self, *objects):
        self.k("apply", "-f", "-", stdin="\n---\n".join(json.dumps(item) for item in objects))

    def pods(self):
        return {pod["metadata"]["name"] for pod in self.json("pods", "-l", "app=shop")["items"]}

    def curl(self, url, *words, address=None):
        """Sends a request from outside of the cluster; the host of the URL is at the address, by default that of the gateway's Service."""
        host = url.split("/")[2]
        resolve = [word for port in (80, 443) for word in ("--resolve", f"{host}:{port}:{address or self.address}")]
        return shell(["ip", "netns", "exec", CLIENT, "curl", "-sS", "-m", "10", *resolve, *words, url])

    def ask_all(self, url, pattern, *words):
        """Waits until each pod has answered."""
        seen = set()

        def all_seen():
            done = self.curl(url, *words)
            found = re.fullmatch(pattern, done.stdout.strip())
            assert found, f"{done.stdout} {done.stderr}"
            seen.add(found[1])
            return seen == self.pods()
        until(all_seen, 30, 0.05, f"answers of {self.pods()} at {url}")


def ip(*words, **options):
    return subprocess.run(["ip", *words], check=True, capture_output=True, **options)


def add_client():
    """Makes a namespace with a device on the bridge of the nodes' network, as another host of the link."""
    ip("netns", "add", CLIENT)
    ip("link", "add", "client0", "type", "veth", "peer", "name", "eth0", "netns", CLIENT)
    ip("link", "set", "client0", "master", "node0", "up")
    ip("-n", CLIENT, "address", "add", f"{CLIENT_ADDRESS}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", CLIENT, "link", "set", device, "up")


def remove_client():
    subprocess.run(["ip", "netns", "delete", CLIENT], check=False, capture_output=True)


def accepts(path):
    """Returns whether a process listens at a Unix socket: those of earlier clusters may remain."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


def import_image(c):
    """Imports the image into the runtimes of all nodes."""
    sockets = []
    for folder in [*glob.glob("/run/ironclad-*"), c.data]:
        for root, _, files in os.walk(folder):
            sockets += [os.path.join(root, "containerd.sock")] if "containerd.sock" in files else []
    archive, = glob.glob(os.path.join(c.images, "ironclad-gateway_*.oci.tar"))
    for path in filter(accepts, sockets):
        done = shell(["ctr", "--address", path, "--namespace", "k8s.io", "images", "import", archive])
        assert done.returncode == 0, done.stderr


@check("gateway/pods-are-ready-and-have-an-address", deadline=120)
def start(c):
    import_image(c)
    c.apply(*SHOP)
    c.own("apply", "-f", os.path.join(MANIFESTS, "gateway.yaml"))
    c.own("rollout", "status", "deployment/ironclad-gateway", "--timeout=90s", timeout=100)
    c.k("rollout", "status", "daemonset/shop", "--timeout=90s", timeout=100)

    def entries():
        return json.loads(c.own("get", "service", "ironclad-gateway", "-o", "json"))["status"]["loadBalancer"]["ingress"]
    c.address = until(entries, 20)[0]["ip"]


@check("gateway/ingress-leads-clients-to-pods-of-both-nodes", deadline=60, needs=STARTED)
def ingress(c):
    c.apply(INGRESS)
    until(lambda: c.json("ingress", "shop")["status"]["loadBalancer"]["ingress"] == [{"ip": c.address}], 20, what="the address of the Ingress")
    c.ask_all("http://shop.example.com/cgi-bin/who", rf"(\S+) saw {re.escape(CLIENT_ADDRESS)} by http")
    assert c.curl("http://other.example.com/", "-o", "/dev/null", "-w", "%{http_code}").stdout == "404"


def make_secret(c, name, *hosts):
    """Creates a Secret with a certificate of its own for hosts, and returns the file of the certificate."""
    key, certificate = (os.path.join(c.work, f"{name}.{end}") for end in ("key", "crt"))
    names = ",".join(f"DNS:{host}" for host in hosts)
    made = shell(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                  "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}", "-keyout", key, "-out", certificate])
    assert made.returncode == 0, made.stderr
    c.k("create", "secret", "tls", name, f"--cert={certificate}", f"--key={key}")
    return certificate


@check("gateway/route-with-tls-leads-clients-to-pods-of-both-nodes", deadline=60, needs=STARTED)
def route(c):
    for file in ("gateway-api.yaml", "gateway-class.yaml"):
        until(lambda file=file: c.own("apply", "-f", os.path.join(MANIFESTS, file)), 20)
    certificate = make_secret(c, "api-tls", "api.example.com")
    c.k("create", "rolebinding", "ironclad-gateway", "--clusterrole=ironclad-gateway-certificates",
        "--serviceaccount=ironclad-gateway:ironclad-gateway")
    c.apply(*GATEWAY)
    # A Secret without a right is tried again each 30 s; the RoleBinding is older than the Gateway.
    c.k("wait", "--for=condition=Programmed", "gateway/public", "--timeout=90s", timeout=100)
    c.ask_all("https://api.example.com/v1/who", rf"(\S+) saw {re.escape(CLIENT_ADDRESS)} by https", "--cacert", certificate)
    # Until then, the other pod of the gateway may have no certificate at all.
    until(lambda: c.curl("https://shop.example.com/", "--cacert", certificate).returncode == 60, what="a certificate for another host is refused")


@check("gateway/gateways-with-the-same-listener-have-different-addresses", deadline=130,
       needs=("gateway/route-with-tls-leads-clients-to-pods-of-both-nodes",))
def addresses(c):
    for name in ("first", "second"):
        c.apply(*same(name))
        # The next one is younger, in seconds.
        c.k("wait", "--for=condition=Programmed", f"gateway/{name}", "--timeout=60s", timeout=70)
    found = {name: c.json("gateway", name)["status"]["addresses"][0]["value"] for name in ("first", "second")}
    assert found["first"] == c.address != found["second"], found
    for name, address in found.items():
        def served(name=name, address=address):
            done = c.curl("http://same.example.com/cgi-bin/who", "-D", "-", address=address)
            return f"x-gateway: {name}" in done.stdout and f"saw {CLIENT_ADDRESS} by http" in done.stdout
        until(served, 20, what=f"the route of {name} at {address}")

    def services():
        return c.own("get", "services", "-l", "gateway.networking.k8s.io/gateway-name=second", "-o", "name").split()
    assert services() == ["service/ironclad-gateway-0"], services()
    c.k("delete", "gateway/first", "gateway/second", "httproute/first", "httproute/second")
    until(lambda: not services(), 60, what="the Service of the Gateway is deleted")


@check("gateway/endpoints-outside-of-the-pods-range-are-not-connected", deadline=60, needs=STARTED)
def outside(c):
    """A tenant writes a slice with the address of the API server's node."""
    node = next(a["address"] for n in c.json("nodes")["items"] for a in n["status"]["addresses"] if a["type"] == "InternalIP")
    port = json.loads(Kubectl(c.k.kubeconfig)("get", "endpointslices", "kubernetes", "-o", "json"))["ports"][0]["port"]
    c.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "outside"}, "spec": {"ports": [{"name": "web", "port": 80}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
         "metadata": {"name": "outside", "labels": {"kubernetes.io/service-name": "outside"}},
         "ports": [{"name": "web", "port": port}], "endpoints": [{"addresses": [node]}]},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "outside"}, "spec": {
            "ingressClassName": "ironclad", "rules": [{"host": "outside.example.com", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "outside", "port": {"name": "web"}}}}]}}]}})

    def status():
        return c.curl("http://outside.example.com/", "-o", "/dev/null", "-w", "%{http_code}").stdout
    # Each pod of the gateway learns of the Ingress at its own time, and each request is for one of them.
    until(lambda: {status() for _ in range(10)} == {"503"}, what="no pod of the gateway connects to the endpoint")

    def is_logged():
        logs = c.own("logs", "-l", "app=ironclad-gateway", "--tail=-1")
        return "gateway-shop/outside" in logs and "--endpoint-range" in logs
    until(is_logged, 20, what="the refused endpoint is logged")


def browse(c, program, url, certificate):
    """Returns the page that a browser shows once its requests have ended, and its log. It trusts the key of the certificate."""
    key = f"openssl x509 -in {certificate} -noout -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64"
    done = shell(["ip", "netns", "exec", CLIENT, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                  "--disable-background-networking", "--disable-component-update", "--no-first-run",
                  f"--user-data-dir={c.work}/browser", f"--ignore-certificate-errors-spki-list={shell(key).stdout.strip()}",
                  f"--host-resolver-rules=MAP *.example.com {c.address}", "--virtual-time-budget=20000", "--dump-dom", url], timeout=100)
    return done.stdout, done.stderr


@check("gateway/browser-shows-a-page-by-http2", deadline=100, needs=("gateway/route-with-tls-leads-clients-to-pods-of-both-nodes",))
def browser(c):
    """Two hosts with one certificate: the browser uses the connection of the first one for the other, and opens another one after a 421."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise Skip("there is no browser: apt-get install chromium")
    certificate = make_secret(c, "browsed-tls", "one.example.com", "two.example.com")
    c.apply(*BROWSED)
    c.k("wait", "--for=condition=Programmed", "gateway/browsed", "--timeout=90s", timeout=100)
    for host in ("one", "two"):
        url = f"https://{host}.example.com/cgi-bin/who"
        # Each pod of the gateway learns of the Gateway at its own time.
        until(lambda url=url: all("saw" in c.curl(url, "--cacert", certificate).stdout for _ in range(10)), what=f"all pods serve {url}")
    page, errors = browse(c, program, "https://one.example.com/page.html", certificate)
    found = re.search(r"<pre>(.*)</pre>", page)
    assert found and found[1], f"{page} {errors[-600:]}"
    shown = json.loads(found[1])
    assert shown["two"] == "one.example.com" and shown["protocols"] == ["h2"], shown
    assert len(shown["answers"]) == 40, shown
    for answer in shown["answers"]:
        assert re.fullmatch(rf"\S+ saw {re.escape(CLIENT_ADDRESS)} by https", answer), answer


@check("gateway/pods-are-replaced-without-a-failed-request", deadline=120, needs=("gateway/ingress-leads-clients-to-pods-of-both-nodes",))
def replace(c):
    """Requests on new connections, one after the other, while all pods of the gateway are replaced."""
    stop = os.path.join(c.work, "stop")
    script = (f"rm -f {stop}; echo begun; sent=0 failed=0; while [ ! -e {stop} ]; do sent=$((sent+1)); "
              f"curl -sS -m 5 -o /dev/null -f --resolve shop.example.com:80:{c.address} http://shop.example.com/cgi-bin/who || failed=$((failed+1)); "
              "sleep 0.02; done; echo $sent $failed")
    sender = subprocess.Popen(["ip", "netns", "exec", CLIENT, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert sender.stdout.readline() == "begun\n"
    try:
        before = c.own("get", "pods", "-l", "app=ironclad-gateway", "-o", "name").split()
        c.own("rollout", "restart", "deployment/ironclad-gateway")
        c.own("rollout", "status", "deployment/ironclad-gateway", "--timeout=90s", timeout=100)
        c.own("wait", "--for=delete", *before, "--timeout=60s", timeout=70)
    finally:
        with open(stop, "w", encoding="utf-8"):
            pass
    output, errors = sender.communicate(timeout=60)
    sent, failed = (int(word) for word in output.split())
    assert sent > 50 and failed == 0, f"{failed} of {sent} requests failed: {errors}"


@check("gateway/is-deleted", deadline=60, needs=STARTED)
def end(c):
    c.own("delete", "--wait=false", "-f", os.path.join(MANIFESTS, "gateway.yaml"))
    c.k("delete", "namespace", "gateway-shop", "--wait=false")
    shell([*c.own.command("delete", "--ignore-not-found", "--wait=false", "-f", os.path.join(MANIFESTS, "gateway-api.yaml"))])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--kubeconfig", "--data-dir", "--images", "--work"):
        parser.add_argument(flag, required=True)
    chosen = parser.parse_args()
    os.makedirs(chosen.work, exist_ok=True)
    add_client()
    try:
        code = main(Context(chosen))
    finally:
        remove_client()
    sys.exit(code)
