#!/usr/bin/env python3
"""`ironclad join` and `reset` with simulated containers: what they refuse, what they write, and what they leave.

    join_simulated.py --kubeconfig FILE --data-dir DIR --ironclad BINARY --work DIR
"""
import argparse
import json
import os
import shutil
import signal
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, shell, until  # noqa: E402

NODE = "guest-1"
JOINED = ("join-simulated/node-registers",)


class Context:
    def __init__(self, options):
        self.k, self.data, self.ironclad = Kubectl(options.kubeconfig), options.data_dir, options.ironclad
        self.work = options.work
        self.folder = os.path.join(options.work, "data")
        self.token = self.endpoint = self.pin = None

    def run(self, *words, **options):
        return shell([self.ironclad, *words], **options)

    def command(self, *words):
        done = self.run(*words, "--data-dir", self.data)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def invite(self):
        """Makes a token, unless there is one."""
        if self.token is None:
            words = self.command("token", "create", "--print-join-command").split()
            self.endpoint, self.token = words[2], words[words.index("--token") + 1]
            self.pin = words[words.index("--discovery-token-ca-cert-hash") + 1]

    def join(self, *words, folder=None, **options):
        return self.run("join", *words, "--data-dir", folder or self.folder, "--simulated", "--pick-ports", **options)

    def refused(self, text, *words, **options):
        folder = os.path.join(self.work, "refused")
        done = self.join(*words, folder=folder, **options)
        assert done.returncode == 1 and text in done.stderr, done.stderr
        assert not os.path.exists(folder), f"{words} left {os.listdir(folder)}"
        assert self.token.split(".")[1] not in done.stderr, done.stderr


@check("join-simulated/cluster-is-verified", deadline=60)
def verified(c):
    c.invite()
    name = ["--node-name", "refused"]
    hash_ = ["--discovery-token-ca-cert-hash", c.pin]
    c.refused("which is none of the expected ones", c.endpoint, "--token", c.token, "--discovery-token-ca-cert-hash",
              "sha256:" + "0" * 64, *name)
    c.refused("does not match token", c.endpoint, "--token", c.token[:-4] + "0000", *hash_, *name)
    c.refused("--discovery-token-ca-cert-hash", c.endpoint, "--token", c.token, *name)


@check("join-simulated/options-are-examined", deadline=60)
def options(c):
    c.invite()
    good = [c.endpoint, "--token", c.token, "--discovery-token-ca-cert-hash", c.pin]
    c.refused("can't be a node's name", *good, "--node-name", "Not_A_Name")
    c.refused("nodes may not set", *good, "--node-labels", "node-role.kubernetes.io/control-plane=")
    c.refused("is no taint", *good, "--register-with-taints", "dedicated=db:Never")
    ready = json.loads(c.k("get", "nodes", "-o", "json"))["items"][0]["metadata"]["name"]
    c.refused("has a node " + ready, *good, "--node-name", ready)


@check("join-simulated/token-has-few-rights", deadline=60)
def rights(c):
    c.invite()
    kubectl = [c.k.program, "--kubeconfig", "/dev/null", "--server", f"https://{c.endpoint}", "--token", c.token,
               "--insecure-skip-tls-verify", "--namespace", "kube-system"]
    may = ("get configmaps/kubeadm-config", "get configmaps/kubelet-config", "get nodes", "create certificatesigningrequests")
    may_not = ("list nodes", "update nodes", "create nodes", "list configmaps", "get configmaps/other", "get secrets",
               "update configmaps/kubelet-config", "create pods", "update certificatesigningrequests --subresource=approval",
               "create certificatesigningrequests --subresource=selfnodeserver", "approve signers/kubernetes.io/kubelet-serving",
               "create serviceaccounts --subresource=token", "list endpointslices")
    for words, answer in [(words, "yes") for words in may] + [(words, "no") for words in may_not]:
        found = shell([*kubectl, "auth", "can-i", *words.split()]).stdout.strip()
        assert found == answer, f"{words}: {found}"


@check("join-simulated/node-registers", deadline=60)
def registers(c):
    c.invite()
    words = [c.endpoint, "--token-file", "-", "--discovery-token-ca-cert-hash", c.pin, "--node-name", NODE]
    done = c.join(*words, "--node-labels", "disk=ssd", "--register-with-taints", "dedicated=db:NoSchedule", input=c.token)
    assert done.returncode == 0, done.stderr
    node = json.loads(c.k("get", "node", NODE, "-o", "json"))
    assert node["metadata"]["labels"]["disk"] == "ssd", node["metadata"]
    taints = [taint for taint in node["spec"]["taints"] if taint["key"] == "dedicated"]
    assert [(t["value"], t["effect"]) for t in taints] == [("db", "NoSchedule")], node["spec"]


@check("join-simulated/token-is-gone-and-keys-are-private", needs=JOINED)
def private(c):
    keys = 0
    for folder, _, files in os.walk(c.folder):
        for file in files:
            path = os.path.join(folder, file)
            if not os.path.isfile(path):
                continue
            with open(path, errors="replace") as f:
                text = f.read()
            assert c.token.split(".")[1] not in text, path
            if "PRIVATE KEY" in text or file.endswith("kubelet.kubeconfig"):
                keys += 1
                assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
    assert keys >= 2, f"{keys} private files"


@check("join-simulated/pods-run-there", deadline=60, needs=JOINED)
def pods(c):
    tolerate = {"tolerations": [{"key": "dedicated", "operator": "Exists"}], "nodeSelector": {"disk": "ssd"}}
    c.k("run", "guest", "--image=x", "--overrides", json.dumps({"spec": tolerate}))
    until(lambda: json.loads(c.k("get", "pod", "guest", "-o", "json"))["status"].get("phase") == "Running", 40)
    c.k("delete", "pod", "guest", "--grace-period=0", "--force")


@check("join-simulated/repeated-join-repairs", deadline=60, needs=JOINED)
def repeated(c):
    def kubelet():
        status = json.loads(c.run("status", "--data-dir", c.folder, "--output", "json").stdout)
        return [(part["name"], part["pid"]) for part in status["components"]]
    before = kubelet()
    assert len(before) == 1, before
    # The token is not needed any more.
    c.command("token", "delete", c.token.split(".")[0])
    done = c.run("join", "--data-dir", c.folder)
    assert done.returncode == 0 and kubelet() == before, done.stderr
    assert c.run("down", "--data-dir", c.folder).returncode == 0
    done = c.run("join", "--data-dir", c.folder)
    assert done.returncode == 0 and kubelet() != before, done.stderr
    for words in (["--node-name", "other"], ["--node-labels", "disk=hdd"], ["--runtime-endpoint", "unix:///c.sock"]):
        done = c.run("join", "--data-dir", c.folder, *words)
        assert done.returncode == 1 and "which can't change" in done.stderr, done.stderr
    other = c.run("join", "192.0.2.99:6443", "--token", c.token, "--discovery-token-ca-cert-hash", c.pin, "--data-dir", c.folder)
    assert other.returncode == 1 and "to join the one at 192.0.2.99:6443" in other.stderr, other.stderr
    ignored = c.run("join", "--token", c.token, "--data-dir", c.folder)
    assert ignored.returncode == 1 and "--token needs the cluster" in ignored.stderr, ignored.stderr


@check("join-simulated/up-adds-no-node-with-the-range-of-a-joined-one", deadline=90, needs=JOINED)
def added(c):
    settings = os.path.join(c.data, "settings.json")
    with open(settings) as f:
        before = f.read()
    count = json.loads(before)["nodeCount"]
    done = c.run("up", "--data-dir", c.data, "--nodes", str(count + 1))
    assert done.returncode == 1 and f"node {NODE} joined the cluster" in done.stderr, done.stderr
    with open(settings) as f:
        assert f.read() == before, "the settings changed"
    done = c.run("up", "--data-dir", c.data)
    assert done.returncode == 0, done.stderr


@check("join-simulated/commands-of-the-cluster-are-refused", needs=JOINED)
def refused(c):
    for words, folder, text in (
            (("up",), c.folder, "this machine joined the cluster"),
            (("token", "create"), c.folder, "holds no cluster"),
            (("reset",), c.data, "ironclad down --purge"),
            (("join",), c.data, "can't join another one"),
            (("join",), os.path.join(c.work, "absent"), "--print-join-command")):
        done = c.run(*words, "--data-dir", folder)
        assert done.returncode == 1 and text in done.stderr, f"{words}: {done.stderr}"


@check("join-simulated/deleted-token-joins-nothing", deadline=60, needs=("join-simulated/repeated-join-repairs",))
def deleted(c):
    c.refused("no signature of token", c.endpoint, "--token", c.token, "--discovery-token-ca-cert-hash", c.pin,
              "--node-name", "late")


def discovery_conf(c):
    """Writes the cluster's discovery file; returns its path."""
    info = json.loads(Kubectl(c.k.kubeconfig, "kube-public")("get", "configmap", "cluster-info", "-o", "json"))
    file = os.path.join(c.work, "discovery.conf")
    os.makedirs(c.work, exist_ok=True)
    with open(file, "w") as f:
        f.write(info["data"]["kubeconfig"])
    return file


@check("join-simulated/discovery-file-joins", deadline=60)
def discovery_file(c):
    token = c.command("token", "create")
    file, folder = discovery_conf(c), os.path.join(c.work, "from-file")
    try:
        done = c.join("--discovery-file", file, "--token-file", "-", "--node-name", "guest-2", folder=folder, input=token)
        assert done.returncode == 0, done.stderr
        assert c.k("get", "node", "guest-2", "-o", "name").strip() == "node/guest-2"
    finally:
        c.run("reset", "--data-dir", folder)
        c.k.run("delete", "node", "guest-2", "--ignore-not-found", okay=None)
    c.command("token", "delete", token.split(".")[0])


@check("join-simulated/expired-token-joins-nothing", deadline=90)
def expired(c):
    c.invite()
    token = c.command("token", "create", "--ttl", "1s")
    until(lambda: token.split(".")[0] not in c.command("token", "list"), 40)
    public = Kubectl(c.k.kubeconfig, "kube-public")
    until(lambda: token.split(".")[0] not in public("get", "configmap", "cluster-info", "-o", "json"), what="the signature is removed")
    c.refused("no signature of token", c.endpoint, "--token", token, "--discovery-token-ca-cert-hash", c.pin, "--node-name", "late")
    c.refused("the token is not valid", "--discovery-file", discovery_conf(c), "--token", token, "--node-name", "late")
    # A pin counts for a file, too.
    c.refused("which is none of the expected ones", "--discovery-file", discovery_conf(c), "--token", c.token,
              "--discovery-token-ca-cert-hash", "sha256:" + "0" * 64, "--node-name", "late")


@check("join-simulated/interrupt-ends-the-wait-for-a-token", deadline=30)
def interrupted(c):
    c.invite()
    words = ["join", c.endpoint, "--token-file", "-", "--discovery-token-ca-cert-hash", c.pin, "--data-dir", c.folder + "-waits"]
    process = subprocess.Popen([c.ironclad, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # The handler of the signal is installed before the file is read.
    until(lambda: "token-file" in shell(f"cat /proc/{process.pid}/task/*/comm").stdout, 10)
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.stderr.read() and process.wait() == 1


# Hides the machine's own files and its systemd from kubeadm, which would restart a kubelet.
STOCK = """set -e
mount --make-rprivate /
mkdir -p /etc/kubernetes /var/lib/kubelet /run/systemd
for folder in /etc/kubernetes /var/lib/kubelet /run/systemd; do mount -t tmpfs none $folder; done
mkdir -p /etc/kubernetes/manifests
for phase in "preflight --ignore-preflight-errors=all" kubelet-start; do
  {kubeadm} join phase $phase {endpoint} --token {token} --discovery-token-ca-cert-hash {pin} --node-name stock-1 \\
    --cri-socket unix:///run/none.sock
done
exec {kubelet} --simulated --config=/var/lib/kubelet/config.yaml --hostname-override=stock-1 --node-ip=127.0.0.1 --port=0 \
  --healthz-port=0 --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"""


@check("join-simulated/stock-kubeadm-joins", deadline=90)
def stock(c):
    kubeadm = os.environ.get("KUBEADM") or shutil.which("kubeadm")
    if not kubeadm or os.geteuid() != 0:
        raise Skip("there is no kubeadm on this machine, or no root")
    words = c.command("token", "create", "--print-join-command").split()
    value = {flag: words[words.index(flag) + 1] for flag in ("join", "--token", "--discovery-token-ca-cert-hash")}
    script = STOCK.format(kubeadm=kubeadm, kubelet=os.path.join(os.path.dirname(c.ironclad), "kubelet"), endpoint=value["join"],
                          token=value["--token"], pin=value["--discovery-token-ca-cert-hash"])
    log = os.path.join(c.work, "kubeadm.log")
    os.makedirs(c.work, exist_ok=True)
    with open(log, "w") as f:
        process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=f, stderr=subprocess.STDOUT)

    def is_ready():
        conditions = json.loads(c.k("get", "node", "stock-1", "-o", "json"))["status"]["conditions"]
        return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)
    try:
        until(is_ready, 60)
    except AssertionError as error:
        with open(log) as f:
            raise AssertionError(f"{error}: {f.read()[-600:]}") from error
    finally:
        process.kill()
        process.wait()
        c.k.run("delete", "node", "stock-1", "--ignore-not-found", okay=None)
    c.command("token", "delete", value["--token"].split(".")[0])


@check("join-simulated/reset-leaves-nothing", deadline=60, needs=JOINED)
def reset(c):
    done = c.run("reset", "--data-dir", c.folder)
    assert done.returncode == 0 and f"kubectl delete node {NODE}" in done.stdout, done.stderr
    assert not os.path.exists(c.folder), os.listdir(c.folder)
    assert not shell(["pgrep", "-af", "--", f"{c.folder}([/ ]|$)"]).stdout, "a process is left"
    again = c.run("reset", "--data-dir", c.folder)
    assert again.returncode == 0 and "nothing to stop" in again.stderr, again.stderr
    c.k("delete", "node", NODE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    parser.add_argument("--work", required=True)
    context = Context(parser.parse_args())
    try:
        code = main(context)
    finally:
        if os.path.exists(context.folder):
            context.run("reset", "--data-dir", context.folder)
    sys.exit(code)
