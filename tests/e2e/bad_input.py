#!/usr/bin/env python3
"""Bad input: each results in one sentence with the problem and the remedy, a non-zero exit code, and no damage.

    bad_input.py --bin-dir DIR --kubeconfig FILE --data-dir DIR --work DIR [NAME ...]

The cluster of --data-dir is a running, simulated one; everything that is broken on purpose lies in --work.
"""
import argparse
import json
import os
import shutil
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import bad_grpc  # noqa: E402
import bad_requests  # noqa: E402
import bad_store  # noqa: E402
from checks import Kubectl, check, main, shell, until  # noqa: E402
from refused import ended, no_panic, refused, start  # noqa: E402

BINARIES = ["kvstore", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet", "kube-proxy", "ironclad",
            "cluster-dns", "ironclad-gateway"]
# A misspelled flag, the intended flag, and an invalid value of a flag.
TYPOS = {
    "kvstore": (["--listen-client-url=x"], "--listen-client-urls", ["--election-timeout=soon"]),
    "kube-apiserver": (["--etcd-server=x"], "--etcd-servers", ["--secure-port=many"]),
    "kube-scheduler": (["--leader-elekt"], "--leader-elect", ["--secure-port=many"]),
    "kube-controller-manager": (["--root-ca-fil=x"], "--root-ca-file", ["--secure-port=many"]),
    "kubelet": (["--hostname-overide=x"], "--hostname-override", ["--port=many"]),
    "kube-proxy": (["--cluster-cdir=x"], "--cluster-cidr", ["--nftables-masquerade-bit=77"]),
    "ironclad": (["up", "--pick-port"], "--pick-ports", ["up", "--api-port=many"]),
    "cluster-dns": (["--listn=x"], "--listen", ["--listen=everywhere"]),
    "ironclad-gateway": (["--http-listn=x"], "--http-listen", ["--http-listen=everywhere"]),
}


class Context:
    def __init__(self, options):
        self.bin, self.work, self.data = options.bin_dir, options.work, options.data_dir
        self.k, self.kubeconfig = Kubectl(options.kubeconfig), options.kubeconfig
        self.pki = os.path.join(self.data, "pki")
        with open(os.path.join(self.data, "settings.json")) as file:
            self.ports = json.load(file)["ports"]

    def program(self, name):
        return os.path.join(self.bin, name)

    def path(self, name):
        """Returns a path in a new directory."""
        folder = os.path.join(self.work, f"{len(os.listdir(self.work)):03}")
        os.makedirs(folder)
        return os.path.join(folder, name)

    def file(self, name, text):
        path = self.path(name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def api_server(self, **changed):
        """Returns the command line of an API server on the cluster's store, with some flags changed (None leaves one out)."""
        flags = {
            "etcd-servers": f"https://127.0.0.1:{self.ports['store']}", "secure-port": 0, "bind-address": "127.0.0.1",
            "etcd-cafile": f"{self.pki}/etcd/ca.crt", "etcd-certfile": f"{self.pki}/apiserver-etcd-client.crt",
            "etcd-keyfile": f"{self.pki}/apiserver-etcd-client.key", "tls-cert-file": f"{self.pki}/apiserver.crt",
            "tls-private-key-file": f"{self.pki}/apiserver.key", "client-ca-file": f"{self.pki}/ca.crt",
            "service-account-key-file": f"{self.pki}/sa.pub", "service-account-signing-key-file": f"{self.pki}/sa.key",
            "service-account-issuer": "https://kubernetes.default.svc", "service-cluster-ip-range": "10.96.0.0/16",
        }
        flags.update({name.replace("_", "-"): value for name, value in changed.items()})
        return [self.program("kube-apiserver"), *[f"--{k}={v}" for k, v in flags.items() if v is not None]]


def busy_port():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener, listener.getsockname()[1]


def for_each_binary(one):
    """Registers one check per binary."""
    for name in BINARIES:
        def run(c, name=name):
            one(c, name)
        check(f"badinput/{name}/{one.__name__.replace('_', '-')}", deadline=60)(run)


@for_each_binary
def help_and_version(c, name):
    for flag in ("--help", "--version"):
        done = shell([c.program(name), flag])
        assert done.returncode == 0 and done.stdout.strip() and not done.stderr, f"{flag}: {done}"
    assert name in shell([c.program(name), "--version"]).stdout


@for_each_binary
def unknown_flag(c, name):
    refused([c.program(name), "--no-such-thing-at-all"], "--no-such-thing-at-all", "--help", code=2)


@for_each_binary
def nearest_flag(c, name):
    typo, meant, _ = TYPOS[name]
    refused([c.program(name), *typo], typo[-1].split("=")[0], f"{meant}", code=2)


@for_each_binary
def malformed_value(c, name):
    *_, words = TYPOS[name]
    flag, value = words[-1].split("=")
    refused([c.program(name), *words], flag, value, code=2)


@check("badinput/kube-apiserver/missing-flag")
def missing_flag(c):
    refused([c.program("kube-apiserver")], "--etcd-servers", "--tls-cert-file", code=2)


@check("badinput/kube-apiserver/missing-certificate")
def missing_certificate(c):
    for flag in ("tls-cert-file", "tls-private-key-file", "client-ca-file", "etcd-cafile", "etcd-certfile",
                 "service-account-key-file", "service-account-signing-key-file"):
        refused(c.api_server(**{flag: "/nowhere/x.pem"}), "/nowhere/x.pem", "o such file")


@check("badinput/kube-apiserver/malformed-pem")
def malformed_pem(c):
    broken = c.file("broken.pem", "-----BEGIN CERTIFICATE-----\nnonsense!\n-----END CERTIFICATE-----\n")
    for flag in ("tls-cert-file", "tls-private-key-file", "client-ca-file", "etcd-cafile", "etcd-certfile",
                 "service-account-key-file", "service-account-signing-key-file"):
        refused(c.api_server(**{flag: broken}), broken)


@check("badinput/kube-apiserver/key-of-another-certificate")
def other_key(c):
    refused(c.api_server(tls_private_key_file=f"{c.pki}/ca.key"), f"{c.pki}/ca.key")


@check("badinput/kube-apiserver/busy-port")
def api_busy_port(c):
    listener, port = busy_port()
    with listener:
        refused(c.api_server(secure_port=port), f"127.0.0.1:{port}", "in use", "another port")


@check("badinput/kube-apiserver/bad-values")
def api_bad_values(c):
    refused(c.api_server(service_cluster_ip_range="10.96.0.0/77"), "10.96.0.0/77", "service-cluster-ip-range", code=2)
    refused(c.api_server(etcd_servers="ftp://somewhere"), "ftp://somewhere")
    refused(c.api_server(authorization_mode="RBAC,Trust"), "Trust", "RBAC")
    refused(c.api_server(enable_admission_plugins="NodeRestrictions"), "NodeRestrictions", "NodeRestriction")
    refused(c.api_server(event_ttl="soon"), "event-ttl", "soon")


@check("badinput/kube-apiserver/store-not-reachable", deadline=60)
def no_store(c):
    listener, port = busy_port()
    listener.close()
    port_file = c.path("port")
    process = start(c.api_server(etcd_servers=f"https://127.0.0.1:{port}", port_file=port_file))
    try:
        until(lambda: os.path.exists(port_file), 30)
        with open(port_file) as file:
            client = bad_requests.Client(c, int(file.read()))
        status, body = until(lambda: client.ask("GET", "/readyz"), 30)
        assert status == 500 and "failed" in body, (status, body)
        status, body = client.ask("GET", "/api/v1/namespaces/default/pods", seconds=90)
        assert status in (500, 503, 504) and json.loads(body)["kind"] == "Status", (status, body)
    finally:
        process.terminate()
        out, err = ended(process, 60)
    no_panic(out + err)
    assert process.returncode == 0, f"{process.returncode} {err[-300:]}"
    assert "store can't be read" in err, err[-500:]


def kubelet(c, config=None, *more, kubeconfig=None):
    config = ["--config", config] if config else []
    return [c.program("kubelet"), *config, f"--root-dir={c.path('root')}", "--port=0", "--healthz-port=0",
            *([f"--kubeconfig={kubeconfig}"] if kubeconfig else []), *more]


KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@check("badinput/kubelet/configuration")
def kubelet_configuration(c):
    broken = c.file("kubelet.yaml", KUBELET + "maxPods: [1\n")
    refused(kubelet(c, broken, "--simulated"), broken, "line")
    wrong = c.file("kubelet.yaml", KUBELET + "maxPods: many\n")
    refused(kubelet(c, wrong, "--simulated"), wrong, "maxPods")
    unknown = c.file("kubelet.yaml", KUBELET + "maxPod: 3\n")
    refused(kubelet(c, unknown, "--simulated"), unknown, "maxPod", "maxPods")
    refused(kubelet(c, "/nowhere/kubelet.yaml", "--simulated"), "/nowhere/kubelet.yaml", "o such file")
    other = c.file("kubelet.yaml", "apiVersion: v1\nkind: Pod\n")
    refused(kubelet(c, other, "--simulated"), other, "KubeletConfiguration")
    units = c.file("kubelet.yaml", KUBELET + "nodeStatusUpdateFrequency: soon\n")
    refused(kubelet(c, units, "--simulated"), "nodeStatusUpdateFrequency", "soon")


@check("badinput/kubelet/runtime", deadline=120)
def kubelet_runtime(c):
    missing = "unix:///nowhere/containerd.sock"
    refused(kubelet(c, None, f"--container-runtime-endpoint={missing}", kubeconfig=c.kubeconfig),
            "/nowhere/containerd.sock", seconds=60)
    refused(kubelet(c, None, "--container-runtime-endpoint=tcp://x:1", kubeconfig=c.kubeconfig), "tcp://x:1", "unix://")


@check("badinput/kubeconfig")
def kubeconfig(c):
    broken = c.file("broken.kubeconfig", "apiVersion: v1\nkind: Config\nclusters: {a\n")
    empty = c.file("empty.kubeconfig", "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n")
    dangling = c.file("x.kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: []\ncontexts: []\nusers: []\n")
    for name, more in (("kubelet", ["--simulated", "--port=0", f"--root-dir={c.path('root')}"]),
                       ("kube-scheduler", ["--secure-port=0"]), ("kube-controller-manager", ["--secure-port=0"]),
                       ("kube-proxy", []), ("cluster-dns", ["--listen=127.0.0.1:0"]),
                       ("ironclad-gateway", ["--http-listen=127.0.0.1:0", "--https-listen=127.0.0.1:0"])):
        refused([c.program(name), "--kubeconfig=/nowhere/kubeconfig", *more], "/nowhere/kubeconfig", "o such file")
        refused([c.program(name), f"--kubeconfig={broken}", *more], broken)
        refused([c.program(name), f"--kubeconfig={empty}", *more], empty)
        refused([c.program(name), f"--kubeconfig={dangling}", *more], dangling, '"a"')


PROXY = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


@check("badinput/kube-proxy/configuration")
def proxy_configuration(c):
    for text, words in ((PROXY + "mode: [\n", ["line"]), (PROXY + "clusterCidr: x\n", ["clusterCidr", "clusterCIDR"]),
                        (PROXY + "mode: ipvs\n", ["ipvs", "nftables"]), ("kind: Pod\n", ["KubeProxyConfiguration"]),
                        (PROXY + "clusterCIDR: everywhere\n", ["everywhere"]),
                        (PROXY + "healthzBindAddress: here\n", ["here"])):
        path = c.file("proxy.yaml", text)
        refused([c.program("kube-proxy"), f"--config={path}", f"--kubeconfig={c.kubeconfig}"], *words)


@check("badinput/kube-proxy/no-nft")
def no_nft(c):
    empty = os.path.dirname(c.path("x"))
    words = [c.program("kube-proxy"), f"--kubeconfig={c.kubeconfig}", "--healthz-bind-address=127.0.0.1:0",
             "--metrics-bind-address=127.0.0.1:0"]
    refused(words, "nft", "install", env={"PATH": empty})


SCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@check("badinput/kube-scheduler/configuration")
def scheduler_configuration(c):
    profile = "profiles:\n- plugins:\n    score:\n      enabled:\n      - name: %s\n"
    for text, words in ((SCHEDULER + "profiles: {a\n", ["line"]), (SCHEDULER + "profile: []\n", ["profile", "profiles"]),
                        (SCHEDULER + profile % "NodeResourceFit", ["NodeResourceFit", "NodeResourcesFit"]),
                        (SCHEDULER + "percentageOfNodesToScore: most\n", ["percentageOfNodesToScore"]),
                        ("apiVersion: v1\nkind: Pod\n", ["KubeSchedulerConfiguration"])):
        path = c.file("scheduler.yaml", text)
        refused([c.program("kube-scheduler"), f"--config={path}", f"--kubeconfig={c.kubeconfig}", "--secure-port=0"], *words)


@check("badinput/kube-controller-manager/configuration")
def controller_manager(c):
    words = [c.program("kube-controller-manager"), f"--kubeconfig={c.kubeconfig}", "--secure-port=0"]
    refused([*words, "--controllers=*,-deploymint"], "deploymint", "deployment")
    refused([*words, "--root-ca-file=/nowhere/ca.crt"], "/nowhere/ca.crt")
    refused([*words, "--allocate-node-cidrs=true", "--cluster-cidr=10.0.0.0/99"], "10.0.0.0/99", "cluster-cidr", code=2)


@check("badinput/busy-port")
def other_busy_ports(c):
    listener, port = busy_port()
    with listener:
        at = f"127.0.0.1:{port}"
        for name, words in (("kube-scheduler", ["--bind-address=127.0.0.1", f"--secure-port={port}"]),
                            ("kube-controller-manager", ["--bind-address=127.0.0.1", f"--secure-port={port}"]),
                            ("cluster-dns", [f"--listen={at}"]),
                            ("ironclad-gateway", [f"--http-listen={at}", "--https-listen=127.0.0.1:0"]),
                            ("kubelet", ["--simulated", "--address=127.0.0.1", f"--port={port}", "--healthz-port=0",
                                         "--hostname-override=busy", "--register-node=false", f"--root-dir={c.path('root')}"])):
            refused([c.program(name), f"--kubeconfig={c.kubeconfig}", *words], at, "in use")


def up(c, folder, *words):
    return [c.program("ironclad"), "up", "--simulated", f"--data-dir={folder}", *words]


@check("badinput/ironclad/busy-port")
def ironclad_busy_port(c):
    folder, (listener, port) = c.path("data"), busy_port()
    with listener:
        refused(up(c, folder, "--pick-ports", f"--api-port={port}"), str(port), "in use", "--api-port", "the API server")
    assert not os.path.exists(os.path.join(folder, "settings.json")), "half a cluster is left"


@check("badinput/ironclad/foreign-folder")
def foreign_folder(c):
    precious = c.file("precious.txt", "mine")
    folder = os.path.dirname(precious)
    refused(up(c, folder, "--pick-ports"), folder, "--data-dir")
    assert os.listdir(folder) == ["precious.txt"], os.listdir(folder)
    refused(up(c, precious, "--pick-ports"), precious)


@check("badinput/ironclad/settings")
def settings(c):
    for text, words in (("{", ["damaged"]), ('{"layout": 99}', ["newer"]), ('{"layout": 1}', ["damaged"])):
        path = c.file("settings.json", text)
        for command in (up(c, os.path.dirname(path)), [c.program("ironclad"), "down", f"--data-dir={os.path.dirname(path)}"],
                        [c.program("ironclad"), "status", f"--data-dir={os.path.dirname(path)}"]):
            refused(command, path, *words)
        assert os.listdir(os.path.dirname(path)) == ["settings.json"]


@check("badinput/ironclad/no-cluster")
def no_cluster(c):
    precious = c.file("precious.txt", "mine")
    folder = os.path.dirname(precious)
    for words in (["down"], ["down", "--purge"]):
        refused([c.program("ironclad"), *words, f"--data-dir={folder}"], folder, "no cluster", "--data-dir")
        assert os.path.exists(precious), "--purge removed somebody else's file"
    # A cluster that is already down is no error.
    empty = os.path.dirname(c.path("x"))
    done = shell([c.program("ironclad"), "down", f"--data-dir={empty}"])
    assert done.returncode == 0 and "no cluster" in done.stderr and empty in done.stderr, done
    refused([c.program("ironclad"), "status", f"--data-dir={folder}"], folder, "up")


@check("badinput/ironclad/values")
def ironclad_values(c):
    folder = c.path("data")
    refused(up(c, folder, "--pick-ports", "--node-name=A_b"), "A_b", "--node-name")
    refused(up(c, folder, "--pick-ports", "--pod-cidr=10.96.0.0/12"), "10.96.0.0/12", "overlap")
    refused(up(c, folder, "--pick-ports", "--service-cidr=10.96.0.0/31"), "10.96.0.0/31", "/28")
    refused(up(c, folder, "--pick-ports", f"--bin-dir={os.path.dirname(folder)}"), "kubelet", "--bin-dir")
    refused([c.program("ironclad"), "up", f"--data-dir={folder}", "--runtime-endpoint=here"], "here", "unix://", code=2)
    refused(up(c, c.data, "--pod-cidr=10.0.0.0/24"), "--pod-cidr", "can't change")
    refused(up(c, folder, "--pick-ports", "--authentication-config=/nowhere/issuers.yaml"), "/nowhere/issuers.yaml", "o such file")
    head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
    for text, words in ((f"{head}anonymous: {{enabled: true}}\n", ["anonymous", "remove the field"]),
                        (f"{head}jwt: [{{issuer: {{url: 'http://x', audiences: [a]}}}}]\n", ["jwt[0].issuer.url", "correct the file"])):
        wrong = c.file("issuers.yaml", text)
        refused(up(c, folder, "--pick-ports", f"--authentication-config={wrong}"), "--authentication-config", *words)
    assert not os.path.exists(folder), "a refused start has left something"
    refused([c.program("ironclad")], "--help", code=2)


@check("badinput/cluster-dns/values")
def dns_values(c):
    words = [c.program("cluster-dns"), f"--kubeconfig={c.kubeconfig}", "--listen=127.0.0.1:0"]
    refused([*words, "--resolv-conf=/nowhere/resolv.conf"], "/nowhere/resolv.conf")


bad_store.checks()
bad_grpc.checks()
bad_requests.checks()


@check("badinput/cluster-still-works", deadline=60)
def still_works(c):
    status = shell([c.program("ironclad"), "status", "--data-dir", c.data, "--output=json"])
    components = json.loads(status.stdout)["components"]
    assert all(part["ready"] and part["restarts"] == 0 for part in components), components
    c.k("create", "configmap", "afterwards")
    c.k("delete", "configmap", "afterwards")
    logs = os.path.join(c.data, "logs")
    for name in (name for name in os.listdir(logs) if ".log" in name):
        with open(os.path.join(logs, name), errors="replace") as file:
            no_panic(file.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for word in ("--bin-dir", "--kubeconfig", "--data-dir", "--work"):
        parser.add_argument(word, required=True)
    parser.add_argument("only", nargs="*")
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    os.makedirs(given.work)
    sys.exit(main(Context(given), given.only))
