#!/usr/bin/env python3
"""A control plane of three machines and a worker: network namespaces on one bridge, with simulated containers. Needs root.

    ha.py --ironclad BINARY --work DIR
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, Skip, check, main, shell, until  # noqa: E402
from control_plane import CONTROL, LEASES, Client, Context, conditions, dns_ready, lead, leaders, signal_all, store_leader  # noqa: E402
from service_traffic import ServiceTraffic  # noqa: E402

FORMED = ("ha/third-machine-joins",)
NO_LOSS = "survives the loss of neither"


@check("ha/up-listens-on-loopback-only", deadline=120)
def plain(c):
    c["cp1"].okay("up", "--simulated", "--node-name", "cp1", "--node-ip", c["cp1"].address)
    sockets = shell(["ip", "netns", "exec", c["cp1"].namespace, "ss", "-ltnH"]).stdout
    for port in (2379, 2380):
        found = [line.split()[3] for line in sockets.splitlines() if line.split()[3].endswith(f":{port}")]
        assert found == [f"127.0.0.1:{port}"], found
    done = c["cp1"].run("token", "create", "--control-plane")
    assert done.returncode == 1 and "run `ironclad init` first" in done.stderr, done.stderr


def interrupt(command, step):
    """Ends a command after one of its messages. Returns whether it was interrupted there."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    found = False
    for line in process.stderr:
        if step in line:
            found = True
            process.kill()
    process.wait()
    return found


@check("ha/interrupted-init-is-not-reset", deadline=120, needs=("ha/up-listens-on-loopback-only",))
def not_reset(c):
    """The settings name the new address, and the store does not."""
    assert interrupt(c["cp1"].command("init"), "certificates and configuration")
    done = c["cp1"].run("reset")
    assert done.returncode == 1 and "this is the last machine of the control plane" in done.stderr, done.stderr
    key = os.path.join(c["cp1"].folder, "pki", "ca.key")
    os.rename(key, key + ".offline")
    done = c["cp1"].run("reset")
    os.rename(key + ".offline", key)
    assert done.returncode == 1, done.stderr
    assert os.path.exists(os.path.join(c["cp1"].folder, "store", "member"))


@check("ha/init-changes-the-cluster-once", deadline=120, needs=("ha/up-listens-on-loopback-only",))
def init(c):
    k = Kubectl(os.path.join(c["cp1"].folder, "admin.kubeconfig"))
    c["cp1"].okay("init", "--apiserver-cert-extra-sans", "api.example.com,198.51.100.77")
    assert c.members() == {"cp1": ([f"https://{c['cp1'].address}:2380"], True)}, c.members()
    names = shell(f"openssl x509 -noout -ext subjectAltName -in {c['cp1'].folder}/pki/apiserver.crt").stdout
    assert "api.example.com" in names and "198.51.100.77" in names, names
    before = c["cp1"].pids()
    assert "api-proxy" in before, before
    c["cp1"].okay("init")
    c["cp1"].okay("up")
    assert c["cp1"].pids() == before, "a repeated init restarted something"
    found, node = conditions(c.kubectl("cp1"), "cp1")
    assert found["Ready"] == "True" and "node-role.kubernetes.io/control-plane" in node["metadata"]["labels"], node["metadata"]
    del k


@check("ha/second-machine-joins", deadline=180, needs=("ha/init-changes-the-cluster-once",))
def second(c):
    joined = c["cp2"].run(*c.invite(), "--simulated", "--node-name", "cp2")
    assert joined.returncode == 0 and NO_LOSS in joined.stderr, joined.stderr[-900:]
    assert [votes for _, votes in c.members().values()] == [True, True], c.members()
    found, node = conditions(c.kubectl("cp2"), "cp2")
    assert found["Ready"] == "True" and node["spec"]["podCIDR"], node["spec"]


@check("ha/two-machines-are-warned-of", deadline=60, needs=("ha/second-machine-joins",))
def two_machines(c):
    """On each of them, with the remedy; a warning is no failure."""
    for name in ("cp1", "cp2"):
        status = c[name].run("status", "--output", "json")
        assert status.returncode == 0 and NO_LOSS in status.stderr, status.stderr
        [warning] = json.loads(status.stdout)["warnings"]
        assert NO_LOSS in warning["problem"] and "token create --control-plane" in warning["remedy"], warning
        found = json.loads(c[name].okay("doctor", "--output", "json"))["findings"]
        assert [one["severity"] for one in found if NO_LOSS in one["problem"]] == ["warning"], found


@check("ha/third-machine-joins", deadline=180, needs=("ha/second-machine-joins",))
def third(c):
    joined = c["cp3"].run(*c.invite(), "--simulated", "--node-name", "cp3")
    assert joined.returncode == 0 and NO_LOSS not in joined.stderr, joined.stderr[-900:]
    assert set(c.members()) == set(CONTROL) and all(votes for _, votes in c.members().values()), c.members()
    for name in CONTROL:
        assert all(part["ready"] for part in c[name].components()), c[name].components()
        assert NO_LOSS not in c[name].run("status").stderr


@check("ha/worker-joins-and-reaches-all-servers", deadline=120, needs=FORMED)
def worker(c):
    words = c["cp2"].okay("token", "create", "--print-join-command").split()[1:]
    c["w1"].okay(*words, "--simulated", "--node-name", "w1")
    assert set(c["w1"].pids()) == {"api-proxy", "kubelet"}, c["w1"].pids()
    until(lambda: len(json.load(open(os.path.join(c["w1"].folder, "config", "api-servers.json")))) == 3, 20)
    sockets = shell(["ip", "netns", "exec", c["w1"].namespace, "ss", "-ltnH"]).stdout
    found = [line.split()[3] for line in sockets.splitlines() if line.split()[3].endswith(":6444")]
    assert found == ["127.0.0.1:6444"], found


@check("ha/admin-kubeconfig-names-all-servers", deadline=120, needs=("ha/worker-joins-and-reaches-all-servers",))
def named_servers(c):
    """For kubectl as contexts, and for commands of this project as a list: they need neither the proxy nor the server of the machine."""
    contexts = {"kubernetes-admin@ironclad", *(f"ironclad-{name}" for name in CONTROL)}
    for name in CONTROL:
        k = Kubectl(os.path.join(c[name].folder, "admin.kubeconfig"))
        # The first machine's file was written before the others joined.
        until(lambda: set(k("config", "get-contexts", "-o", "name").split()) == contexts, 20)
        assert k("config", "current-context").strip() == "kubernetes-admin@ironclad"
    for name in CONTROL:
        # From the host, where the proxy of no machine listens: the certificate is verified for the machine's address.
        assert name in k("--context", f"ironclad-{name}", "get", "nodes", "-o", "name")
        server = k("config", "view", "-o", f"jsonpath={{.clusters[?(@.name=='ironclad-{name}')].cluster.server}}")
        assert server == f"https://{c[name].address}:6443", server
    # kubectl keeps the list when it changes the file.
    copy = os.path.join(c.work, "copy.kubeconfig")
    shutil.copy2(k.kubeconfig, copy)
    Kubectl(copy)("config", "set-context", "kubernetes-admin@ironclad", "--namespace=x")
    with open(copy) as f:
        assert "ironclad.local/servers" in f.read()
    c["cp3"].okay("down")
    assert c["cp3"].run("status").returncode != 0
    listed = c["cp3"].okay("token", "list", timeout=90)
    pids = {name: c[name].pids() for name in ("cp1", "cp2")}
    os.kill(pids["cp1"]["kube-apiserver"], signal.SIGSTOP)
    try:
        again = c["cp3"].okay("token", "list", timeout=90)
    finally:
        os.kill(pids["cp1"]["kube-apiserver"], signal.SIGCONT)
    assert len(again.splitlines()) == len(listed.splitlines()) > 1, (listed, again)
    c["cp3"].okay("up")


@check("ha/wrong-certificate-key-is-rejected", deadline=60, needs=FORMED)
def wrong_key(c):
    words = list(c.invite())
    words[words.index("--certificate-key") + 1] = "0" * 64
    folder = c["w1"].folder + "-refused"
    for words, text in ((words, "--certificate-key is not its key"), ([*words[:-1], "secret"], "a certificate key is 64 hexadecimal digits")):
        done = c["w1"].run(*words, "--simulated", "--node-name", "x", folder=folder)
        assert done.returncode == 1 and text in done.stderr, done.stderr
        assert "secret" not in done.stderr.replace("Secret", ""), done.stderr
        assert not os.path.exists(folder), os.listdir(folder)


@check("ha/worker-reads-no-keys", deadline=60, needs=("ha/worker-joins-and-reaches-all-servers",))
def no_keys(c):
    token = c["cp1"].okay("token", "create").strip()
    words = c.invite()
    base = [os.environ.get("KUBECTL", "kubectl"), "--kubeconfig", "/dev/null", "--server", words[1].join(("https://", "")),
            "--insecure-skip-tls-verify", "--namespace", "kube-system"]
    worker_token, shared = [*base, "--token", token], [*base, "--token", words[words.index("--token") + 1]]
    denied = shell([*worker_token, "get", "secret", "kubeadm-certs"])
    assert denied.returncode != 0 and "forbidden" in denied.stderr.lower(), denied.stderr
    cipher = shell([*shared, "get", "secret", "kubeadm-certs", "-o", "json"])
    assert cipher.returncode == 0 and "PRIVATE KEY" not in cipher.stdout, cipher.stderr
    for name in ("kubeadm-certs", "bootstrap-token-" + token.split(".")[0]):
        node = ["ip", "netns", "exec", c["w1"].namespace, *base[:1], "--kubeconfig", os.path.join(c["w1"].folder, "config", "kubelet.kubeconfig"),
                "--namespace", "kube-system", "get", "secret", name]
        denied = shell(node)
        assert denied.returncode != 0 and "forbidden" in denied.stderr.lower(), denied.stderr
    denied = shell([*shared, "get", "secrets"])
    assert denied.returncode != 0 and "forbidden" in denied.stderr.lower(), denied.stderr
    # A worker's token joins no control plane, also with the right key.
    words = list(words)
    words[words.index("--token") + 1] = token
    folder = c["w1"].folder + "-refused"
    done = c["w1"].run(*words, "--simulated", "--node-name", "x", folder=folder)
    assert done.returncode == 1 and "the token is one for workers" in done.stderr, done.stderr
    assert not os.path.exists(folder)


def handshake(c, machine, address, certificate, payload):
    """Connects with a certificate of a machine; returns what the server sends, or None if it ends the connection."""
    script = f"""
import socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols(["h2"])
if {certificate!r}: context.load_cert_chain(*{certificate!r})
with socket.create_connection({address!r}, 5) as plain:
    with context.wrap_socket(plain) as stream:
        stream.settimeout(15)
        stream.sendall({payload!r})
        print(stream.recv(100))
"""
    done = shell(["ip", "netns", "exec", machine.namespace, sys.executable, "-c", script])
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() != "b''" else None


@check("ha/store-accepts-members-and-api-servers-only", deadline=60, needs=("ha/worker-joins-and-reaches-all-servers",))
def peers(c):
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    kubelet = [os.path.join(c["w1"].folder, "pki", "kubelet-client-current.pem")]
    pki = os.path.join(c["cp2"].folder, "pki")
    admin = [os.path.join(pki, "admin.crt"), os.path.join(pki, "admin.key")]
    member = [os.path.join(pki, "etcd", "peer.crt"), os.path.join(pki, "etcd", "peer.key")]
    for port in (2379, 2380):
        address = (c["cp1"].address, port)
        for certificate in ([], kubelet, admin):
            assert handshake(c, c["w1"], address, certificate, preface) is None, f"{port} accepts {certificate}"
        assert handshake(c, c["cp2"], address, member, preface) is not None, f"{port} refuses a member"


import ha_certificates  # noqa: E402,F401  # its checks, in this place of the order
import ha_ca  # noqa: E402,F401  # its checks, in this place of the order


@check("ha/pods-of-two-workers-serve-a-service", deadline=240, needs=("ha/worker-joins-and-reaches-all-servers",))
def served(c):
    """The workers have real containers. The checks below fail if a request between their pods does."""
    if not os.environ.get("REAL_CONTAINERS"):
        raise Skip("the packages for real containers are not there")
    workers = ("w2", "w3")
    words = c["cp2"].okay("token", "create", "--print-join-command").split()[1:]
    for name in workers:
        c.add_real(name).okay(*words, "--node-name", name, timeout=180)
    c.traffic = ServiceTraffic(c.kubectl("cp1"), workers)


def survive(c, victim, what, break_it, repair, leads=False):
    others = [name for name in CONTROL if name != victim]
    through = others[0]
    client = Client(c, victim)
    client.start()
    until(lambda: len(client.acknowledged) > 20, 20)
    before = until(lambda: leaders(c, through))
    old = until(lambda: store_leader(c, through))
    victim_pids = c[victim].pids()
    led = {name: holder for name, (holder, _) in before.items()}
    began = time.monotonic()
    # Renewals that were under way at the time of the fault do not count.
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 1))
    break_it(victim_pids)
    times = {}
    moved_leader = threading.Thread(target=time_leader, args=(c, through, old, began, times))
    if old == victim:
        moved_leader.start()
    written = len(client.acknowledged)

    def writes():
        assert not client.wrong, client.wrong
        return len(client.acknowledged) > written + 1
    until(writes, 40, 0.02)
    times["writes again"] = time.monotonic() - began

    def renewed():
        now = leaders(c, through)
        for name, (holder, renewal) in now.items():
            # Renewed after the fault, by any holder.
            if name not in times and renewal > stamp:
                times[name] = time.monotonic() - began
        return all(name in times for name, _ in LEASES)
    until(renewed, 60, 0.3)
    until(lambda: store_leader(c, through), 30)
    if old == victim:
        moved_leader.join(30)
    if what != "kill -9":
        until(lambda: not dns_ready(c, through, victim), 30)
        times["DNS endpoint"] = time.monotonic() - began
    # The worker renewed its lease: its kubelet moved to another server, if it was connected to this one.
    found, _ = conditions(c.kubectl(through), "w1")
    assert found["Ready"] == "True", found
    c.kubectl(through).run("create", "configmap", "after-fault")
    c.kubectl(through).run("delete", "configmap", "after-fault")
    repair(victim_pids)
    until(lambda: all(part["ready"] for part in c[victim].components()), 90, 1)
    until(lambda: c.kubectl(victim).run("get", "--raw", "/readyz", timeout=5), 60, 0.5)
    until(lambda: all(conditions(c.kubectl(through), name)[0]["Ready"] == "True" for name in (*CONTROL, "w1")), 60, 1)
    until(lambda: dns_ready(c, through, victim), 30)
    longest = client.finish(c)
    new = {name: holder for name, (holder, _) in until(lambda: leaders(c, through)).items()}
    moved = [name for name in new if new[name] != led[name]] + (["store"] if until(lambda: store_leader(c, through)) != old else [])
    if leads:
        assert {"kube-scheduler"} <= set(moved), moved
    if c.traffic:
        figures = f"{c.traffic.finish(c.kubectl(through), 50)} requests through the Service, none failed; "
    else:
        figures = ""
    figures += ", ".join(f"{name} {value:.1f} s" for name, value in times.items())
    print(f"      {what} {victim}: {figures}; longest write {longest:.1f} s of {len(client.acknowledged)}; moved: {', '.join(moved) or 'nothing'}")


FAULTS = (
    # The supervisor starts the killed components again.
    ("kill", "kill -9", lambda machine, pids: signal_all(signal.SIGKILL)(pids), lambda machine, pids: None),
    ("stop", "SIGSTOP", lambda machine, pids: signal_all(signal.SIGSTOP)(pids), lambda machine, pids: signal_all(signal.SIGCONT)(pids)),
    ("cut", "cut", lambda machine, pids: machine.connect(False), lambda machine, pids: machine.connect(True)),
)


def register(victim, faults):
    for word, what, break_it, repair in faults:
        @check(f"ha/survives-{word}-of-{victim}", deadline=240, needs=("ha/worker-joins-and-reaches-all-servers", "ha/pods-of-two-workers-serve-a-service"))
        def fault(c, what=what, break_it=break_it, repair=repair):
            name = victim
            if victim == "leaders":
                # The machine whose scheduler leads gets the store's leader, too.
                name = until(lambda: leaders(c, "cp1"))["kube-scheduler"][0].split("_")[0]
                lead(c, name)
            survive(c, name, what, lambda pids: break_it(c[name], pids), lambda pids: repair(c[name], pids), victim == "leaders")


def time_leader(c, through, old, began, times):
    """Notes when another member of the store leads."""
    try:
        until(lambda: store_leader(c, through) != old, 25, 0.02)
        times["store's leader"] = time.monotonic() - began
    except (AssertionError, StopIteration):
        # The former leader was elected again.
        pass


register("leaders", FAULTS)
# Each fault at one machine; EVERY_FAULT=1 for each at each machine.
for _number, _victim in enumerate(CONTROL):
    register(_victim, FAULTS if os.environ.get("EVERY_FAULT") else FAULTS[_number:_number + 1])


import ha_disk_and_clock  # noqa: E402,F401  # its checks, in this place of the order


@check("ha/workers-with-real-containers-leave", deadline=180, needs=("ha/pods-of-two-workers-serve-a-service",))
def workers_leave(c):
    if not c.traffic:
        raise Skip("there are none")
    k = c.kubectl("cp1")
    c.traffic.delete(k)
    c.traffic = None
    for name in ("w2", "w3"):
        c[name].okay("reset", timeout=100)
        # The machine itself has no right to.
        k("delete", "node", name)
        assert f"node/{name}" not in k("get", "nodes", "-o", "name").split()
        c.machines.pop(name).remove()


@check("ha/removal-that-would-lose-the-quorum-is-refused", deadline=120, needs=FORMED)
def quorum(c):
    pids = c["cp3"].pids()
    c["cp3"].connect(False)
    try:
        done = c["cp2"].run("reset")
        assert done.returncode == 1 and "do not respond: cp3" in done.stderr, done.stderr
        done = c["cp2"].run("down", "--purge")
        assert done.returncode == 1 and "`ironclad reset`" in done.stderr, done.stderr
    finally:
        c["cp3"].connect(True)
    assert c["cp3"].pids() == pids
    until(lambda: set(c.members()) == set(CONTROL), 30)


@check("ha/machine-starts-again-after-down", deadline=120, needs=FORMED)
def again(c):
    c["cp3"].okay("down")
    c["cp3"].okay("join")
    assert all(part["ready"] for part in c["cp3"].components()), c["cp3"].components()
    c["cp3"].okay("down")
    c["cp3"].okay("up")


@check("ha/machines-upgrade-one-after-the-other-under-writes", deadline=300, needs=("ha/worker-joins-and-reaches-all-servers",))
def upgraded(c):
    first = os.path.dirname(c.ironclad)
    # Root upgrades only to directories that other users can't write, unlike /tmp.
    new = tempfile.mkdtemp(prefix="ironclad-tests.", dir="/var/lib")
    for name in ("kvstore", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "cluster-dns", "ironclad", "kube-proxy"):
        shutil.copy2(os.path.join(first, name), new)

    def directories(machine):
        return {os.path.dirname(os.readlink(f"/proc/{pid}/exe")) for pid in machine.pids().values()}
    client = Client(c, "cp2")
    client.start()
    for name in (*CONTROL, "w1"):
        before = c[name].pids()
        done = c[name].run("upgrade", "--bin-dir", new)
        assert done.returncode == 0 and "replacing api-proxy" in done.stderr, done.stderr[-900:]
        after = c[name].pids()
        assert all(after[part] != before[part] for part in before) and directories(c[name]) == {new}, (before, after)
        until(lambda: c.kubectl("cp2").run("get", "--raw", "/readyz", timeout=5), 60, 0.5)
    longest = client.finish(c)
    assert longest < 30, f"a write took {longest:.1f} s"
    print(f"      longest write {longest:.1f} s of {len(client.acknowledged)}")
    # The other checks use the first directory.
    for name in (*CONTROL, "w1"):
        c[name].okay("join" if name == "w1" else "up")
        # The command returns when all processes run as they are planned, and not only the API server.
        assert directories(c[name]) == {first}, f"{name}: {directories(c[name])}, not {first}: {c[name].components()}"
    shutil.rmtree(new)


@check("ha/store-without-its-data-does-not-start", deadline=120, needs=FORMED)
def no_data(c):
    """The machine of init would begin an empty cluster."""
    c["cp1"].okay("down")
    store = os.path.join(c["cp1"].folder, "store")
    os.rename(store, store + ".unmounted")
    os.mkdir(store)
    done = c["cp1"].run("up")
    started = os.listdir(store)
    os.rmdir(store)
    os.rename(store + ".unmounted", store)
    assert done.returncode == 1 and "mount their disk" in done.stderr and not started, (done.stderr, started)
    c["cp1"].okay("up")
    assert set(c.members()) == set(CONTROL), c.members()


@check("ha/names-of-init-reach-other-machines", deadline=120, needs=FORMED)
def names(c):
    c["cp2"].okay("init", "--apiserver-cert-extra-sans", "api.example.com,198.51.100.78")
    c["cp3"].okay("up")
    found = shell(f"openssl x509 -noout -ext subjectAltName -in {c['cp3'].folder}/pki/apiserver.crt").stdout
    assert "198.51.100.78" in found and "api.example.com" in found, found
    before = c["cp3"].pids()
    c["cp3"].okay("up")
    assert c["cp3"].pids() == before, "a repeated up restarted something"
    # It publishes its own address for machines that join.
    c["cp1"].okay("init")


@check("ha/token-issuers-of-init-reach-other-machines", deadline=180, needs=FORMED)
def token_issuers(c):
    """A token has to be good at each API server. No server fetches the keys of an issuer before it gets a token."""
    def stored(name):
        with open(os.path.join(c[name].folder, "config", "authentication.yaml"), encoding="utf-8") as file:
            return json.load(file).get("jwt")
    jwt = [{"issuer": {"url": "https://login.example.com", "audiences": ["a"]}, "claimMappings": {"username": {"claim": "sub", "prefix": ""}}}]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "issuers.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt}, file)
        done = c["cp2"].run("up", f"--authentication-config={path}")
        assert done.returncode == 1 and "ironclad init" in done.stderr and stored("cp2") is None, done.stderr
        c["cp1"].okay("init", f"--authentication-config={path}")
    for name in ("cp2", "cp3"):
        c[name].okay("up")
    assert [stored(name) for name in CONTROL] == [jwt] * 3
    c["cp1"].okay("init", "--authentication-config=")
    for name in ("cp2", "cp3"):
        c[name].okay("up")
    assert [stored(name) for name in CONTROL] == [None] * 3


@check("ha/purge-of-a-stopped-member-is-refused", deadline=120, needs=FORMED)
def purge(c):
    c["cp3"].okay("down")
    done = c["cp3"].run("down", "--purge")
    assert done.returncode == 1 and "`ironclad reset`" in done.stderr, done.stderr
    c["cp3"].okay("up")


@check("ha/address-of-a-member-of-several-stays", deadline=60, needs=FORMED)
def address(c):
    """The others dial it at the address that they know."""
    before = c["cp3"].pids()
    done = c["cp3"].run("up", "--node-ip", "10.213.9.77")
    assert done.returncode == 1 and "its address can't become 10.213.9.77" in done.stderr, done.stderr
    assert c["cp3"].pids() == before
    with open(os.path.join(c["cp3"].folder, "settings.json")) as f:
        assert json.load(f)["nodeAddress"] == c["cp3"].address


@check("ha/reset-removes-a-member", deadline=120, needs=FORMED)
def removed(c):
    done = c["cp2"].run("reset")
    assert done.returncode == 0, done.stderr
    assert not os.path.exists(c["cp2"].folder), os.listdir(c["cp2"].folder)
    until(lambda: set(c.members()) == {"cp1", "cp3"}, 20)
    k = c.kubectl("cp1")
    assert "cp2" not in k("get", "nodes", "-o", "name"), k("get", "nodes")
    system = Kubectl(k.kubeconfig, "kube-system")
    assert "cp2" not in system("get", "endpointslices", "-o", "name")
    # The machine may be a worker with these names later.
    published = system("get", "configmap", "kubeadm-config", "-o", "jsonpath={.data.ClusterConfiguration}")
    assert c["cp2"].address not in published and c["cp3"].address in published, published
    until(lambda: c["cp2"].address not in k("get", "endpointslices", "kubernetes", "-o", "json"), 30)


def clones(c):
    """Machines of one image have one host name."""
    k = c.kubectl("cp1")
    commands = {name: c[name].command(*c.invite(), "--simulated", "--node-name", "clone") for name in ("cp2", "cp3")}
    started = {name: subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
               for name, command in commands.items()}
    errors = {name: process.communicate(timeout=200)[1] for name, process in started.items()}
    joined = [name for name, process in started.items() if process.returncode == 0]
    assert len(joined) == 1, errors
    refused = "cp3" if joined == ["cp2"] else "cp2"
    assert "--node-name" in errors[refused], errors[refused]
    c[refused].okay("reset")
    assert "clone" in k("get", "nodes", "-o", "name") and c.members()["clone"][1], "the reset of one clone removed the other"
    c[joined[0]].okay("reset")
    assert "clone" not in k("get", "nodes", "-o", "name") and set(c.members()) == {"cp1"}


@check("ha/two-machines-join-at-once", deadline=240, needs=("ha/reset-removes-a-member",))
def rejoined(c):
    c["cp3"].okay("reset")
    assert set(c.members()) == {"cp1"}, c.members()
    clones(c)
    commands = [c[name].command(*c.invite(), "--simulated", "--node-name", name) for name in ("cp2", "cp3")]
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in started:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors[-900:]
    assert set(c.members()) == set(CONTROL) and all(votes for _, votes in c.members().values()), c.members()


@check("ha/keys-are-deleted-with-their-token", deadline=90, needs=FORMED)
def deleted(c):
    k = Kubectl(c.kubectl("cp1").kubeconfig, "kube-system")
    owner = json.loads(k("get", "secret", "kubeadm-certs", "-o", "json"))["metadata"]["ownerReferences"][0]["name"]
    k("delete", "secret", owner)
    until(lambda: k.run("get", "secret", "kubeadm-certs", okay=None).returncode != 0, 60)
    done = c["w1"].run(*c.invite(), "--simulated", "--node-name", "x", folder=c["w1"].folder + "-refused")
    assert done.returncode == 1 and "they expire after 2 hours" in done.stderr, done.stderr
    c.words = None


STEPS = ("issuing certificates", "waiting for the addresses", "adding a member", "starting the store", "waiting until the store")


@check("ha/interrupted-join-is-undone", deadline=240, needs=("ha/two-machines-join-at-once",))
def undone(c):
    """Ends the command after each of its messages, and removes what it did."""
    c["cp2"].okay("reset")
    k = c.kubectl("cp1")
    command = c["cp2"].command(*c.invite(), "--simulated", "--node-name", "cp2")
    for step in STEPS:
        assert interrupt(command, step), step
        c["cp2"].okay("reset")
        assert set(c.members()) == {"cp1", "cp3"}, (step, c.members())
        assert "cp2" not in k("get", "nodes", "-o", "name"), step
        assert not os.path.exists(c["cp2"].folder), step
    # A name that is taken.
    done = c["cp2"].run(*c.invite(), "--simulated", "--node-name", "cp1")
    assert done.returncode == 1, done.stderr
    c["cp2"].run("reset")
    assert "cp1" in k("get", "nodes", "-o", "name") and set(c.members()) == {"cp1", "cp3"}
    c["cp2"].okay(*c.invite(), "--simulated", "--node-name", "cp2")


@check("ha/interrupted-join-continues", deadline=180, needs=("ha/two-machines-join-at-once",))
def interrupted(c):
    """Ends the command after each of its messages, and repeats it without the token."""
    c["cp2"].okay("reset")
    command = c["cp2"].command(*c.invite(), "--simulated", "--node-name", "cp2")
    for step in STEPS:
        interrupt(command, step)
        command = c["cp2"].command("join")
    c["cp2"].okay("join")
    assert c.members()["cp2"][1], c.members()
    assert all(part["ready"] for part in c["cp2"].components()), c["cp2"].components()


@check("ha/machine-that-lost-its-disk-joins-again", deadline=180, needs=("ha/two-machines-join-at-once",))
def lost(c):
    """With its name and address, after the commands of the operators' page on another machine."""
    machine, k = c["cp2"], c.kubectl("cp1")
    pids = machine.pids()
    os.kill(machine.supervisor(), signal.SIGKILL)
    signal_all(signal.SIGKILL)(pids)
    shutil.rmtree(machine.folder)

    def refused(text):
        done = machine.run(*c.invite(), "--simulated", "--node-name", "cp2")
        assert done.returncode == 1 and text in done.stderr, done.stderr
    refused("`kubectl delete node cp2`")
    k("delete", "node", "cp2")
    refused("its data are not here")
    members = json.loads(c["cp1"].etcdctl("member", "list", "--write-out=json"))["members"]
    former = next(found["ID"] for found in members if found["name"] == "cp2")
    c["cp1"].etcdctl("member", "remove", f"{former:x}")
    machine.okay(*c.invite(), "--simulated", "--node-name", "cp2")
    assert set(c.members()) == set(CONTROL) and all(votes for _, votes in c.members().values()), c.members()
    assert all(part["ready"] for part in machine.components()), machine.components()
    until(lambda: dns_ready(c, "cp1", "cp2"), 30)


@check("ha/reset-of-the-first-machine", deadline=120,
       needs=("ha/worker-joins-and-reaches-all-servers", "ha/two-machines-join-at-once"))
def first(c):
    """The command is ended twice, and continues."""
    for step in ("removing the member", "stopping the components"):
        assert interrupt(c["cp1"].command("reset"), step), step
    done = c["cp1"].run("up")
    assert done.returncode == 1 and "`ironclad reset` was interrupted" in done.stderr, done.stderr
    c["cp1"].okay("reset")
    assert not os.path.exists(c["cp1"].folder), os.listdir(c["cp1"].folder)
    assert "cp1" not in c.kubectl("cp2")("get", "nodes", "-o", "name")
    until(lambda: set(c.members("cp3")) == {"cp2", "cp3"}, 20)
    c["cp2"].okay("init")
    info = Kubectl(c.kubectl("cp2").kubeconfig, "kube-public")("get", "configmap", "cluster-info", "-o", "json")
    assert c["cp2"].address in info and c["cp1"].address not in info, info
    # The administrator's kubeconfig of the others lacks it.
    for name in ("cp2", "cp3"):
        k = Kubectl(os.path.join(c[name].folder, "admin.kubeconfig"))
        until(lambda: "ironclad-cp1" not in k("config", "get-contexts", "-o", "name"), 20)
        assert "ironclad-cp3" in k("config", "get-contexts", "-o", "name")
    found, _ = conditions(c.kubectl("cp3"), "w1")
    assert found["Ready"] == "True", found


def cluster_id(c, name):
    return json.loads(c[name].etcdctl("member", "list", "--write-out=json"))["header"]["cluster_id"]


@check("ha/last-machine-is-not-reset", deadline=120, needs=("ha/reset-of-the-first-machine",))
def last(c):
    c["cp3"].okay("reset")
    done = c["cp2"].run("reset")
    assert done.returncode == 1 and "`ironclad down --purge` removes the cluster" in done.stderr, done.stderr
    c.restored_from = cluster_id(c, "cp2")
    c["cp2"].okay("backup", os.path.join(c.work, "backup.tar"))
    c["cp2"].okay("down", "--purge")
    assert not os.path.exists(c["cp2"].folder)


@check("ha/backup-of-a-joined-machine-is-restored", deadline=180, needs=("ha/last-machine-is-not-reset",))
def restored(c):
    c["cp2"].okay("restore", os.path.join(c.work, "backup.tar"))
    c["cp2"].okay("up")
    assert cluster_id(c, "cp2") != c.restored_from, "members of the former cluster could write into the restored one"
    assert set(c.members("cp2")) == {"cp2"}, c.members("cp2")
    found, node = conditions(c.kubectl("cp2"), "cp2")
    assert found["Ready"] == "True", found
    # The secrets stay out of the list of processes, and the options are those of the documentation.
    words = c["cp2"].okay("token", "create", "--ttl", "30m", "--control-plane", "--print-join-command").split()[1:]
    # The controller manager signs once the restored Lease of the earlier leader has ended.
    signed = "jws-kubeconfig-" + words[words.index("--token") + 1].split(".")[0]
    info = Kubectl(c.kubectl("cp2").kubeconfig, "kube-public")
    until(lambda: signed in info("get", "configmap", "cluster-info", "-o", "json"), 60)
    for flag in ("--token", "--certificate-key"):
        at = words.index(flag)
        path = os.path.join(c.work, flag.strip("-"))
        with open(path, "w") as f:
            f.write(words[at + 1] + "\n")
        words[at:at + 2] = [flag + "-file", path]
    taint = "node-role.kubernetes.io/control-plane:NoSchedule"
    c["cp3"].okay(*words, "--simulated", "--node-name", "cp3", "--register-with-taints", taint)
    assert set(c.members("cp2")) == {"cp2", "cp3"}, c.members("cp2")
    _, node = conditions(c.kubectl("cp3"), "cp3")
    assert node["spec"]["taints"][0]["effect"] == "NoSchedule", node["spec"]
    c["cp3"].okay("certs", "renew")
    until(lambda: all(part["ready"] for part in c["cp3"].components()), 60, 1)
    until(lambda: c.kubectl("cp3").run("get", "--raw", "/readyz", timeout=5), 60, 0.5)


@check("ha/commands-work-without-the-load-balancer", deadline=120, needs=("ha/backup-of-a-joined-machine-is-restored",))
def balancer(c):
    """Nothing has this address."""
    c["cp2"].okay("init", "--control-plane-endpoint", "10.213.9.99:6443")
    words = c["cp2"].okay("token", "create", "--print-join-command", timeout=90)
    assert "ironclad join 10.213.9.99:6443 " in words, words
    c["cp3"].okay("up")
    with open(os.path.join(c["cp3"].folder, "admin.kubeconfig")) as f:
        assert "https://10.213.9.99:6443" in f.read()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ironclad", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    context = Context(given)
    try:
        code = main(context)
    finally:
        if not given.keep:
            context.close()
    sys.exit(code)
