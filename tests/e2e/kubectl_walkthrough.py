#!/usr/bin/env python3
"""A walkthrough of a real cluster with the real kubectl: an application is rolled out, used, changed and removed.

    kubectl_walkthrough.py --kubeconfig FILE --example deploy/examples/hello.yaml [--only WORD ...]
"""
import argparse
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, until  # noqa: E402

IMAGE = "ironclad.local/busybox:1"
EXAMPLE = ("kubectl/example-rolls-out",)


class Context:
    def __init__(self, options):
        self.k = Kubectl(options.kubeconfig, "hello")
        self.example = options.example

    def json(self, *words):
        return json.loads(self.k("get", *words, "-o", "json"))

    def http(self, url):
        """Sends a GET from this machine, which is a node."""
        done = subprocess.run(["curl", "-s", "-m", "3", url], capture_output=True, text=True)
        assert done.returncode == 0, f"curl {url}: exit {done.returncode}"
        return done.stdout

    def pods(self, label):
        return self.json("pods", "-l", label)["items"]


@check("kubectl/node-ready")
def node_ready(c):
    nodes = c.json("nodes")["items"]
    assert nodes, "no node"
    for node in nodes:
        ready = [x["status"] for x in node["status"]["conditions"] if x["type"] == "Ready"]
        assert ready == ["True"], f"{node['metadata']['name']}: {ready}"


@check("kubectl/example-rolls-out", deadline=180)
def example(c):
    c.k("apply", "-f", c.example)
    c.k("rollout", "status", "deployment/backend", "--timeout=120s", timeout=130)
    c.k("rollout", "status", "deployment/front", "--timeout=120s", timeout=130)
    assert len(c.pods("app=backend")) == 3
    assert "unchanged" in c.k("apply", "-f", c.example)


def answers_of_all_three(c, ask):
    names = {p["metadata"]["name"] for p in c.pods("app=backend")}
    seen = set()

    def all_seen():
        seen.update(n for n in names if n in ask())
        return seen == names
    until(all_seen, 60, 0.05, f"answers of {names}, got {seen}")


@check("kubectl/cluster-ip", deadline=90, needs=EXAMPLE)
def cluster_ip(c):
    service = c.json("service", "backend")["spec"]
    answers_of_all_three(c, lambda: c.http(f"http://{service['clusterIP']}:{service['ports'][0]['port']}/"))


@check("kubectl/node-port", deadline=90, needs=EXAMPLE)
def node_port(c):
    port = c.json("service", "backend")["spec"]["ports"][0]["nodePort"]
    for node in c.json("nodes")["items"]:
        address = [a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"][0]
        answers_of_all_three(c, lambda address=address: c.http(f"http://{address}:{port}/"))


@check("kubectl/name", deadline=90, needs=EXAMPLE)
def by_name(c):
    pod = c.pods("app=front")[0]["metadata"]["name"]
    port = c.json("service", "backend")["spec"]["ports"][0]["port"]
    ask = lambda: c.k("exec", pod, "--", "wget", "-q", "-O-", "-T", "3", f"http://backend:{port}/")  # noqa: E731
    answers_of_all_three(c, ask)


@check("kubectl/get-forms", needs=EXAMPLE)
def get_forms(c):
    table = c.k("get", "pods", "-l", "app=backend")
    assert table.startswith("NAME"), table
    assert len(re.findall(r"1/1 +Running +0", table)) == 3, table
    wide = c.k("get", "pods", "-o", "wide")
    assert all(word in wide for word in ("IP", "NODE", "NOMINATED NODE", "READINESS GATES")), wide
    assert "kind: Deployment" in c.k("get", "deployment", "backend", "-o", "yaml")
    assert c.k("get", "deployment", "backend", "-o", "jsonpath={.spec.replicas}") == "3"
    assert "kube-system" in c.k("get", "all", "-A") + c.k("get", "services", "-A")
    watch = c.k.start("get", "configmaps", "-w", "--output-watch-events")
    try:
        c.k("create", "configmap", "watched", "--from-literal=a=b")
        line = next(line for line in watch.stdout if "watched" in line)
        assert "ADDED" in line, line
    finally:
        watch.kill()
        watch.wait()
        c.k("delete", "configmap", "watched", "--ignore-not-found")


@check("kubectl/describe", needs=EXAMPLE)
def describe(c):
    pod = c.pods("app=backend")[0]["metadata"]["name"]
    text = c.k("describe", "pod", pod)
    for word in ("Liveness:", "Readiness:", "Container ID:", "QoS Class:", "Scheduled", "Started"):
        assert word in text, f"{word} not in {text}"
    assert "NewReplicaSet" in c.k("describe", "deployment", "backend")
    assert "Endpoints:" in c.k("describe", "service", "backend")
    assert "Allocated resources" in c.k("describe", "nodes")


@check("kubectl/logs", deadline=120, needs=EXAMPLE)
def logs(c):
    c.k("delete", "pod", "talker", "--ignore-not-found", "--now")
    c.k("run", "talker", f"--image={IMAGE}", "--restart=Always", "--", "sh", "-c",
        "echo run; for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done; sleep 2; exit 3")
    # It is the last line for 2 s, and again after each restart.
    for options in ([], ["--tail=1"]):
        until(lambda options=options: c.k("logs", "talker", *options).endswith("line 5\n"), 60)
    assert c.k("logs", "talker", "--tail=1").count("\n") < 2

    def follows():
        """A container that is removed at this moment has no logs."""
        follow = c.k.start("logs", "-f", "talker")
        try:
            return "run" in next(iter(follow.stdout))
        finally:
            follow.kill()
            follow.wait()
    until(follows)
    until(lambda: "line 5" in c.k("logs", "talker", "--previous"), 60)
    c.k("delete", "pod", "talker", "--now")


@check("kubectl/exec", needs=EXAMPLE)
def exec_(c):
    streams(c)


@check("kubectl/exec-spdy", needs=EXAMPLE)
def exec_spdy(c):
    os.environ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS"] = "false"
    try:
        streams(c)
    finally:
        del os.environ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS"]


@check("kubectl/websockets", needs=EXAMPLE)
def websockets(c):
    """kubectl falls back to SPDY silently; this checks the protocol that it really used."""
    pod = c.pods("app=front")[0]["metadata"]["name"]
    minor = int(json.loads(c.k("version", "--client", "-o", "json"))["clientVersion"]["minor"].rstrip("+"))
    if minor < 31:
        raise Skip(f"kubectl 1.{minor} does not speak WebSockets by default")
    said = c.k.run("exec", "-i", pod, "-v=8", "--", "md5sum", stdin="x" * 200000).stderr
    assert "v5.channel.k8s.io" in said and "fallback" not in said.lower(), said[-600:]


def streams(c):
    pod = c.pods("app=front")[0]["metadata"]["name"]
    assert c.k("exec", pod, "--", "echo", "hello").strip() == "hello"
    assert c.k("exec", "-i", pod, "--", "cat", stdin="through stdin\n") == "through stdin\n"
    assert c.k.run("exec", pod, "--", "sh", "-c", "exit 7", okay=None).returncode == 7
    main_fd, sub_fd = pty.openpty()
    process = subprocess.Popen(c.k.command("exec", "-it", pod, "--", "sh", "-c", "tty; stty size"),
                               stdin=sub_fd, stdout=sub_fd, stderr=sub_fd, close_fds=True)
    os.close(sub_fd)
    text = b""
    try:
        while True:
            data = os.read(main_fd, 4096)
            if not data:
                break
            text += data
    except OSError:
        pass
    assert process.wait(60) == 0, text
    assert b"/dev/pts/" in text, text


@check("kubectl/scale-and-change", deadline=240, needs=EXAMPLE)
def scale_and_change(c):
    c.k("scale", "deployment", "backend", "--replicas=4")
    until(lambda: c.json("deployment", "backend")["status"].get("readyReplicas") == 4, 60)
    c.k("scale", "deployment", "backend", "--replicas=3")
    c.k("rollout", "status", "deployment/backend", "--timeout=90s", timeout=100)
    c.k("set", "env", "deployment/backend", "CHANGED=yes")
    c.k("rollout", "status", "deployment/backend", "--timeout=90s", timeout=100)
    assert len(c.k("rollout", "history", "deployment/backend").strip().splitlines()) >= 4
    c.k("rollout", "undo", "deployment/backend")
    c.k("rollout", "status", "deployment/backend", "--timeout=90s", timeout=100)
    environment = c.json("deployment", "backend")["spec"]["template"]["spec"]["containers"][0].get("env", [])
    assert "CHANGED" not in [e["name"] for e in environment], environment
    c.k("rollout", "restart", "deployment/backend")
    c.k("rollout", "status", "deployment/backend", "--timeout=90s", timeout=100)


@check("kubectl/set-image", deadline=120, needs=EXAMPLE)
def set_image(c):
    container = c.json("deployment", "front")["spec"]["template"]["spec"]["containers"][0]["name"]
    c.k("set", "image", "deployment/front", f"{container}=ironclad.local/absent:9")
    until(lambda: "ErrImage" in c.k("get", "pods", "-l", "app=front") or "ImagePullBackOff" in c.k("get", "pods", "-l", "app=front"), 60)
    c.k("rollout", "undo", "deployment/front")
    c.k("rollout", "status", "deployment/front", "--timeout=60s", timeout=70)


@check("kubectl/edit-label-annotate", needs=EXAMPLE)
def edit(c):
    env = dict(os.environ, KUBE_EDITOR="sed -i s/replicas:.3/replicas:\\ 2/")
    done = subprocess.run(c.k.command("edit", "deployment", "backend"), env=env, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert c.json("deployment", "backend")["spec"]["replicas"] == 2
    c.k("scale", "deployment", "backend", "--replicas=3")
    c.k("label", "deployment", "backend", "tier=back")
    c.k("label", "deployment", "backend", "tier-")
    c.k("annotate", "deployment", "backend", "note=kept")
    assert c.json("deployment", "backend")["metadata"]["annotations"]["note"] == "kept"


@check("kubectl/delete-honours-grace", deadline=90, needs=EXAMPLE)
def grace(c):
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "slow"}, "spec": {
        "terminationGracePeriodSeconds": 4, "containers": [{"name": "c", "image": IMAGE, "command": [
            "sh", "-c", "trap '' TERM; while true; do sleep 1; done"]}]}}
    c.k("apply", "-f", "-", stdin=json.dumps(manifest))
    c.k("wait", "pod/slow", "--for=condition=Ready", "--timeout=60s", timeout=70)
    start = time.monotonic()
    c.k("delete", "pod", "slow", timeout=60)
    took = time.monotonic() - start
    # The default grace is 30 s.
    assert 3.5 < took < 25, f"a grace of 4 s took {took:.1f} s"


@check("kubectl/create-forms", needs=EXAMPLE)
def create(c):
    c.k("create", "ns", "made")
    try:
        c.k("create", "configmap", "cm", "-n", "made", "--from-literal=a=b")
        c.k("create", "secret", "generic", "s", "-n", "made", "--from-literal=p=q")
        c.k("create", "sa", "robot", "-n", "made")
        c.k("create", "role", "reader", "-n", "made", "--verb=get,list", "--resource=pods")
        c.k("create", "rolebinding", "rb", "-n", "made", "--role=reader", "--serviceaccount=made:robot")
        robot = "--as=system:serviceaccount:made:robot"
        until(lambda: c.k("auth", "can-i", "list", "pods", "-n", "made", robot, okay=None).strip() == "yes", 30)
        assert c.k.run("auth", "can-i", "delete", "pods", "-n", "made", robot, okay=None).stdout.strip() == "no"
        assert "pods" in c.k("auth", "can-i", "--list", "-n", "made", robot)
    finally:
        c.k("delete", "ns", "made", timeout=100)


@check("kubectl/events-explain-resources", needs=EXAMPLE)
def facts(c):
    assert "Scheduled" in c.k("get", "events")
    assert "RollingUpdate" in c.k("explain", "deployment.spec.strategy") + c.k("explain", "deployment.spec.strategy.type")
    assert "containers" in c.k("explain", "pod.spec", "--recursive")
    table = c.k("api-resources")
    assert re.search(r"deployments +deploy +apps/v1 +true +Deployment", table), table[:400]


@check("kubectl/top-says-why", needs=EXAMPLE)
def top(c):
    done = c.k.run("top", "nodes", okay=False)
    assert "Metrics API not available" in done.stderr, done.stderr


@check("kubectl/port-forward", needs=EXAMPLE)
def port_forward(c):
    port = c.json("service", "backend")["spec"]["ports"][0]["port"]
    process = c.k.start("port-forward", "service/backend", f":{port}")
    try:
        line = process.stdout.readline()
        local = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert local, line
        names = [p["metadata"]["name"] for p in c.pods("app=backend")]
        text = until(lambda: c.http(f"http://127.0.0.1:{local.group(1)}/"), 30)
        assert any(n in text for n in names), text
    finally:
        process.kill()
        process.wait()


@check("kubectl/cp", needs=EXAMPLE)
def cp(c):
    pod = c.pods("app=front")[0]["metadata"]["name"]
    with tempfile.TemporaryDirectory() as folder:
        there, back = os.path.join(folder, "there"), os.path.join(folder, "back")
        with open(there, "w") as f:
            f.write("copied\n" * 1000)
        c.k("cp", there, f"{pod}:/tmp/there")
        c.k("cp", f"{pod}:/tmp/there", back)
        with open(back) as f:
            assert f.read() == "copied\n" * 1000


@check("kubectl/wait-and-diff", needs=EXAMPLE)
def wait_and_diff(c):
    c.k("wait", "deployment/backend", "--for=condition=Available", "--timeout=60s", timeout=70)
    done = c.k.run("diff", "-f", c.example, okay=None)
    assert done.returncode in (0, 1), done.stderr
    changed = open(c.example).read().replace("replicas: 3", "replicas: 5")
    done = c.k.run("diff", "-f", "-", stdin=changed, okay=None)
    assert done.returncode == 1 and "+  replicas: 5" in done.stdout, done.stdout + done.stderr


@check("kubectl/cron-job", deadline=150, needs=EXAMPLE)
def cron_job(c):
    name = c.json("cronjobs")["items"][0]["metadata"]["name"]
    c.k("create", "job", "by-hand", f"--from=cronjob/{name}")
    try:
        c.k("wait", "job/by-hand", "--for=condition=Complete", "--timeout=90s", timeout=100)
        assert c.k("logs", "job/by-hand").strip(), "the job called the backend and printed nothing"
    finally:
        c.k("delete", "job", "by-hand", "--ignore-not-found")


@check("kubectl/cordon-and-drain", deadline=180, needs=EXAMPLE)
def drain(c):
    nodes = [n["metadata"]["name"] for n in c.json("nodes")["items"]]
    node = c.pods("app=backend")[0]["spec"]["nodeName"]
    c.k("cordon", node)
    try:
        assert "SchedulingDisabled" in c.k("get", "nodes")
        c.k("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
            "--pod-selector=app in (backend,front)", "--timeout=90s", timeout=100)
        if len(nodes) > 1:
            c.k("rollout", "status", "deployment/backend", "--timeout=90s", timeout=100)
            until(lambda: all(p["spec"]["nodeName"] != node for p in c.pods("app=backend")), 60)
        else:
            until(lambda: all(p["status"]["phase"] == "Pending" for p in c.pods("app=backend")), 60)
            assert "0/1 nodes are available" in json.dumps(c.json("events"))
    finally:
        c.k("uncordon", node)
    c.k("rollout", "status", "deployment/backend", "--timeout=90s", timeout=100)
    c.k("rollout", "status", "deployment/front", "--timeout=90s", timeout=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--example", required=True)
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    sys.exit(main(Context(given), given.only))
