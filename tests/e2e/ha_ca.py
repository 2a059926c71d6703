"""Replacement of all CAs and of the key of ServiceAccounts of a control plane of three machines, with the commands of
docs/operations/certificates.md: a check of the area ha, which ha.py runs."""
import base64
import glob
import json
import os
import re
import shutil
import ssl
import textwrap
import urllib.error
import urllib.request

from checks import check, shell, until
from control_plane import CONTROL, conditions
from ha_certificates import RECONNECTED, listeners, log_of, read
from writers import Writer

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "operations", "certificates.md")
SECTION = "## Replace a CA or the key of ServiceAccounts\n"
NODES = (*CONTROL, "w1")
FIRST, CONTROL_PLANE, WORKERS = "on cp1", "on each machine of the control plane", "on each worker that joined"
ONE_BY_ONE = f"{CONTROL_PLANE}, one after the other"
PLACES = {FIRST: ("cp1",), CONTROL_PLANE: CONTROL, WORKERS: ("w1",), ONE_BY_ONE: CONTROL}
# Copies between machines, which are folders here.
SCP = """#!/bin/sh
for word; do
  there=${{word%%:*}}
  case $word in
    *:*) word=$(printf %s "${{word#*:}}" | sed "s|^{work}/{here}/|{work}/$there/|; s|^{work}/root-{here}/|{work}/root-$there/|");;
  esac
  set -- "$@" "$word"
  shift
done
exec cp "$@"
"""
IRONCLAD = '#!/bin/sh\nexec {ironclad} "$@" --data-dir {folder}\n'


class Page:
    """The commands of the page, block by block, with the folders of the machines here."""

    def __init__(self, c):
        self.c = c
        section = read(PAGE).split(SECTION)[1].split("\n## ")[0]
        self.blocks = [textwrap.dedent(block) for block in re.findall(r"```sh\n(.*?)```", section, re.S)]
        for name in NODES:
            tools = os.path.join(c.work, f"tools-{name}")
            for folder in (tools, self.home(name)):
                shutil.rmtree(folder, ignore_errors=True)
                os.mkdir(folder)
            values = {"work": c.work, "here": name, "ironclad": c.ironclad, "folder": c[name].folder}
            for tool, text in (("scp", SCP), ("ironclad", IRONCLAD)):
                with open(os.open(os.path.join(tools, tool), os.O_CREAT | os.O_WRONLY, 0o755), "w") as file:
                    file.write(text.format(**values))

    def home(self, name):
        return os.path.join(self.c.work, f"root-{name}")

    def follow(self, *places):
        """Makes the next blocks, which must be for these places."""
        for place in places:
            block = self.blocks.pop(0)
            assert block.startswith(f"# {place}\n"), (place, block)
            for name in PLACES[place]:
                script = block.replace("/var/lib/ironclad", self.c[name].folder).replace("/root/", f"{self.home(name)}/")
                done = shell([*self.c[name].inside(), "env", f"PATH={self.c.work}/tools-{name}:{os.environ['PATH']}", "bash", "-ec", script])
                assert done.returncode == 0, f"{name}: {block}: {done.stdout[-300:]}{done.stderr[-900:]}"


class Administrator(Writer):
    """Writes through one API server until a request fails, with the kubeconfig of its machine, which it reads again when it changes."""
    # A busy machine is no failure.
    pause, patience = 0.1, 20

    def __init__(self, c, name):
        self.prefix, self.kubeconfig, self.files = name, os.path.join(c[name].folder, "admin.kubeconfig"), os.path.join(c.work, f"writer-{name}")
        self.seen = None
        os.makedirs(self.files, exist_ok=True)
        first = CONTROL.index(name)
        super().__init__([f"https://{c[name].address}:6443" for name in (*CONTROL[first:], *CONTROL[:first])], *self.read_kubeconfig())

    def read_kubeconfig(self):
        self.seen, paths = os.stat(self.kubeconfig).st_ino, []
        text = read(self.kubeconfig)
        for field in ("certificate-authority-data", "client-certificate-data", "client-key-data"):
            paths.append(os.path.join(self.files, field))
            with open(paths[-1], "wb") as file:
                file.write(base64.b64decode(re.search(rf'{field}"?: "?([A-Za-z0-9+/=]+)', text).group(1)))
        return paths

    def request(self, *words, **options):
        if os.stat(self.kubeconfig).st_ino != self.seen:
            ca, certificate, key = self.read_kubeconfig()
            self.context = ssl.create_default_context(cafile=ca)
            self.context.load_cert_chain(certificate, key)
        return super().request(*words, **options)


def identify(c, name, ca, certificate=None, token=None):
    """Returns as which user an API server knows a client, or the code with which it rejects the client."""
    context = ssl.create_default_context(cafile=ca)
    if certificate:
        context.load_cert_chain(*certificate)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    url = f"https://{c[name].address}:6443/apis/authentication.k8s.io/v1/selfsubjectreviews"
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as response:
            return json.load(response)["status"]["userInfo"]["username"]
    except urllib.error.HTTPError as error:
        return error.code


def identify_everywhere(c, *words, **options):
    return {identify(c, name, *words, **options) for name in CONTROL}


class Pod:
    """A pod on the worker, with the files that its kubelet keeps for it."""
    USER = "system:serviceaccount:default:default"

    def __init__(self, c, name):
        self.c, self.k = c, c.kubectl("cp1")
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "nodeName": "w1", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "web:1"}]}}
        self.k("apply", "-f", "-", stdin=json.dumps(pod))
        self.k("wait", "pod", name, "--for=condition=Ready", "--timeout=60s", timeout=70)
        uid = self.k("get", "pod", name, "-o", "jsonpath={.metadata.uid}")
        pattern = os.path.join(c["w1"].folder, "kubelet", "pods", uid, "volumes", "kubernetes.io~projected", "kube-api-access-*")
        self.folder = glob.glob(pattern)[0]

    def read(self, name):
        return read(os.path.join(self.folder, name))

    def identify(self):
        return identify_everywhere(self.c, os.path.join(self.folder, "ca.crt"), token=self.read("token"))


def issuer(path):
    return shell(["openssl", "x509", "-noout", "-issuer", "-in", path]).stdout.strip()


def served_issuer(machine, port):
    """Returns the issuer of the certificate that a listener shows."""
    # Simulated kubelets listen on the loopback address only, stores for their peers on the other one only.
    host = machine.address if port == 2380 else "127.0.0.1"
    script = f"openssl s_client -connect {host}:{port} </dev/null 2>/dev/null | openssl x509 -noout -issuer"
    return shell([*machine.inside(), "sh", "-c", script]).stdout.strip()


def is_new(text):
    """Returns whether an issuer is one that the page made: its name ends with a date."""
    return re.search(r"ironclad-[a-z-]*ca-\d{4}-\d\d-\d\d$", text) is not None


def reconnections(c):
    """Counts the moves of the components that send requests all the time to a new connection."""
    parts = ("kube-controller-manager", "kube-scheduler", "kubelet")
    return {(name, part): log_of(c[name], part).count(RECONNECTED) for name in CONTROL for part in parts}


def readiness(c):
    """Returns the state of all nodes and since when each has it."""
    found = {}
    for name in NODES:
        _, node = conditions(c.kubectl("cp1"), name)
        ready = next(condition for condition in node["status"]["conditions"] if condition["type"] == "Ready")
        found[name] = (ready["status"], ready["lastTransitionTime"])
    return found


def wait_for_trust(c, pod, expected):
    """Waits until the cluster has published a CA, and the pod's kubelet has written it."""
    for name in CONTROL:
        k = c.kubectl(name)
        until(lambda k=k: k("get", "configmap", "kube-root-ca.crt", "-o", r"jsonpath={.data.ca\.crt}") == expected, 60, 0.5, "the published CA")
    until(lambda: pod.read("ca.crt") == expected, 120, 0.5, "the CA in the pod")


def sign_with_new(c, page):
    """The third step, and its waits."""
    before = reconnections(c)
    page.follow(CONTROL_PLANE)
    block = page.blocks[0]

    def workers_have_new_ones():
        # The controller manager reads the new key within 10 s.
        page.blocks.insert(0, block)
        page.follow(WORKERS)
        return all(is_new(issuer(os.path.join(c["w1"].folder, "pki", f"kubelet-{name}-current.pem"))) for name in ("client", "server"))
    page.blocks.pop(0)
    until(workers_have_new_ones, 60, 1, "the worker has certificates of the new CA")
    until(lambda: all(count > before[part] for part, count in reconnections(c).items()), 60, 0.5, "the components have moved")
    for name in CONTROL:
        for port in listeners(c[name]):
            until(lambda name=name, port=port: is_new(served_issuer(c[name], port)), 30, 0.5, f"{name}:{port} shows a new certificate")
    until(lambda: is_new(served_issuer(c["w1"], 10250)), 30, 0.5, "the worker's kubelet shows a new certificate")
    for name in NODES:
        listed = json.loads(c[name].okay("certs", "list", "-o", "json"))
        former = [found["name"] for found in listed if not found["isCa"] and not is_new(found["issuer"])]
        assert not former, f"{name}: {former}"


def keep_former(c):
    """Copies what an attacker could have: the administrator's and a kubelet's certificate, and one of the store's clients."""
    folder = os.path.join(c.work, "former")
    os.makedirs(folder)
    pki = [os.path.join(c[name].folder, "pki") for name in ("cp1", "w1")]
    for source, name in ((os.path.join(pki[0], "admin.crt"), "admin.crt"), (os.path.join(pki[0], "admin.key"), "admin.key"),
                         (os.path.join(pki[0], "apiserver-etcd-client.crt"), "store.crt"),
                         (os.path.join(pki[0], "apiserver-etcd-client.key"), "store.key"),
                         (os.path.join(pki[1], "kubelet-client-current.pem"), "kubelet.pem")):
        shutil.copy(source, os.path.join(folder, name))
    return folder


def former_is_rejected(c, former):
    ca = os.path.join(c["cp1"].folder, "pki", "ca.crt")
    for certificate in (("admin.crt", "admin.key"), ("kubelet.pem",)):
        pair = [os.path.join(former, name) for name in certificate]
        until(lambda pair=pair: identify_everywhere(c, ca, certificate=pair) == {401}, 20, 0.5, f"{certificate} is rejected")
    for name in CONTROL:
        words = c[name].etcdctl_command("get", "/registry/namespaces/default", "--keys-only", seconds=10)
        former_words = [re.sub(r"(--(?:cert|key))=.*\.(crt|key)$", rf"\1={former}/store.\2", word) for word in words]
        assert sum(former in word for word in former_words) == 2, former_words
        for command, key in ((words, "/registry/namespaces/default"), (former_words, "")):
            done = shell(command)
            assert done.stdout.strip() == key, f"{command}: {done.stdout}{done.stderr}"


def key_is_replaced(c, page, pod):
    """The steps for the key of ServiceAccounts. Returns the pod that has a token of the new one."""
    token = pod.read("token")
    ca = os.path.join(c["cp1"].folder, "pki", "ca.crt")
    page.follow(FIRST, CONTROL_PLANE)
    assert pod.identify() == {pod.USER}
    page.follow(CONTROL_PLANE)
    k = c.kubectl("cp2")
    # Each API server signs with the new key, and each one accepts that.
    for name in CONTROL:
        def signs(name=name):
            fresh = c.kubectl(name)("create", "token", "default").strip()
            assert identify_everywhere(c, ca, token=fresh) == {pod.USER}
            return key_id(fresh) != key_id(token)
        until(signs, 20, 0.5, f"{name} signs with the new key")
    assert pod.identify() == {pod.USER}, "the pod's token is of the former key"
    # In place of the hour in which kubelets replace tokens.
    fresh = Pod(c, "second")
    assert key_id(fresh.read("token")) != key_id(token)
    page.follow(CONTROL_PLANE)
    until(lambda: identify_everywhere(c, ca, token=token) == {401}, 20, 0.5, "tokens of the former key are rejected")
    assert fresh.identify() == {pod.USER}
    k("delete", "pod", "first", "second", "--wait=false")


def key_id(token):
    return json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))["kid"]


def finish(c, writers):
    """All that was acknowledged is there, at each server."""
    for writer in writers:
        writer.end()
    names = {name for writer in writers for name in writer.acknowledged}
    for name in CONTROL:
        found = c.kubectl(name)("get", "configmaps", "-o", "name").split()
        missing = {f"configmap/{written}" for written in names} - set(found)
        assert not missing, f"{name} lost {sorted(missing)[:5]} of {len(names)}"
    # One request, while kubectl sends one for each object. The controller manager makes kube-root-ca.crt again.
    c.kubectl("cp1")("delete", "--raw", "/api/v1/namespaces/default/configmaps")
    return names


@check("ha/cas-are-replaced-under-writes", deadline=300, needs=("ha/worker-joins-and-reaches-all-servers",))
def replaced(c):
    page, former, pod = Page(c), keep_former(c), Pod(c, "first")
    before, pids = readiness(c), {name: (c[name].pids(), c[name].supervisor()) for name in NODES}
    assert {status for status, _ in before.values()} == {"True"}, before
    writers = [Administrator(c, name) for name in CONTROL]
    for writer in writers:
        writer.start()
    old = read(os.path.join(c["cp1"].folder, "pki", "ca.crt"))
    # Earlier commands to join name the key of the former CA.
    c.words = None
    page.follow(FIRST)
    new = read(os.path.join(page.home("cp1"), "new-ca", "ca.crt"))
    page.follow(CONTROL_PLANE, WORKERS)
    wait_for_trust(c, pod, old + new)
    assert pod.identify() == {pod.USER}
    sign_with_new(c, page)
    wait_for_trust(c, pod, new + old)
    assert pod.identify() == {pod.USER}
    page.follow(CONTROL_PLANE, WORKERS, FIRST)
    wait_for_trust(c, pod, new)
    former_is_rejected(c, former)
    assert {name: (c[name].pids(), c[name].supervisor()) for name in NODES} == pids, "a process was restarted"
    failures = [writer.reason for writer in writers if writer.failures]
    assert not failures, failures
    page.follow(ONE_BY_ONE, CONTROL_PLANE)
    key_is_replaced(c, page, pod)
    assert not page.blocks, page.blocks
    names = finish(c, writers)
    assert readiness(c) == before, (readiness(c), before)
    print(f"      longest write {max(writer.longest for writer in writers):.2f} s of {len(names)}")
