"""Renewal of certificates of a control plane of three machines: checks of the area ha, which ha.py runs."""
import hashlib
import json
import os
import ssl
import subprocess

from checks import check, shell, until
from control_plane import CONTROL, Client


def served_serial(machine, port):
    """Returns the serial number of the certificate that a listener shows."""
    # Simulated kubelets listen on the loopback address only, stores for their peers on the other one only.
    host = machine.address if port == 2380 else "127.0.0.1"
    script = f"openssl s_client -connect {host}:{port} </dev/null 2>/dev/null | openssl x509 -noout -serial"
    return shell(["ip", "netns", "exec", machine.namespace, "sh", "-c", script]).stdout.strip()


def file_serial(machine, name):
    return shell(["openssl", "x509", "-noout", "-serial", "-in", os.path.join(machine.folder, "pki", f"{name}.crt")]).stdout.strip()


def credential(machine, name):
    """Returns how the audit log names a certificate."""
    path = os.path.join(machine.folder, "pki", f"{name}.crt")
    with open(path) as f:
        return "X509SHA256=" + hashlib.sha256(ssl.PEM_cert_to_DER_cert(f.read())).hexdigest()


def used_credentials(c, user):
    """Returns the credentials with which a user wrote, according to the audit logs of all API servers."""
    found = set()
    for name in CONTROL:
        with open(os.path.join(c[name].folder, "logs", "audit", "audit.log")) as lines:
            for line in lines:
                if f'"{user}"' in line:
                    extra = json.loads(line)["user"].get("extra", {})
                    found.update(extra.get("authentication.kubernetes.io/credential-id", ()))
    return found


def read(path):
    with open(path, errors="replace") as f:
        return f.read()


def log_of(machine, component):
    return read(os.path.join(machine.folder, "logs", f"{component}.log"))


def listeners(machine):
    return {6443: "apiserver", 2379: "etcd/server", 2380: "etcd/peer", 10250: f"kubelet-serving-{machine.name}"}


# Logged after the API server has responded to a request on the new connection, other than with 401.
RECONNECTED = "connected to the API server with the changed certificates"
# Logged after the member has responded on the new connection.
AT_THE_STORE = "connected to the store with the changed certificates"
AT_A_MEMBER = "connected to a member with the changed certificates"


def renew_worker(machine):
    """Its kubelet requests the certificates, and serves with the new one."""
    files = [os.path.join(machine.folder, "pki", f"kubelet-{name}-current.pem") for name in ("client", "server")]
    before = [read(path) for path in files]
    done = machine.run("certs", "renew")
    assert done.returncode == 0 and "kubelet-server-current.pem" in done.stderr, done.stderr
    assert all(read(path) != former for path, former in zip(files, before)), done.stderr
    new = shell(["openssl", "x509", "-noout", "-serial", "-in", files[1]]).stdout.strip()
    until(lambda: served_serial(machine, 10250) == new, 20, 0.5, f"{machine.name}:10250 shows the new certificate")
    done = machine.run("certs", "renew", "scheduler")
    assert done.returncode == 1 and "not a certificate that is renewed on this machine" in done.stderr, done.stderr


@check("ha/certificates-are-renewed-without-a-restart-or-a-failed-request", deadline=300,
       needs=("ha/worker-joins-and-reaches-all-servers",))
def renewed(c):
    """All listeners of the control plane, and as clients scheduler, controller manager, kubelets, cluster DNS, API servers at the store, and
    members of the store.

    The clients of kubelets and of extension servers, and kube-proxy (simulated machines have none) are not looked at here.
    """
    everyone = (*CONTROL, "w1")
    client = Client(c, "cp1")
    # A busy machine is no failure.
    client.patience = 20
    client.start()
    k = c.kubectl("cp2")
    commands = (k.command("get", "configmaps", "--watch-only", "-o", "name"),
                c["cp3"].etcdctl_command("watch", "--prefix", "/registry/configmaps/default/", seconds=300))
    watches = []
    for number, command in enumerate(commands):
        path = os.path.join(c.work, f"watch-{number}")
        with open(path, "w") as log:
            watches.append((path, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
    pids = {name: (c[name].pids(), c[name].supervisor()) for name in everyone}
    before = {(name, file): file_serial(c[name], file) for name in CONTROL for file in listeners(c[name]).values()}
    for name in CONTROL:
        c[name].okay("certs", "renew")
    for name in CONTROL:
        for port, file in listeners(c[name]).items():
            new = file_serial(c[name], file)
            assert new != before[name, file], f"{name} {file}"
            until(lambda name=name, port=port, new=new: served_serial(c[name], port) == new, 20, 0.5, f"{name}:{port} shows {file}")
    renew_worker(c["w1"])
    # The scheduler that leads and the kubelets write with the new certificates. A pod on each machine makes them do so.
    for name in CONTROL:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"renewed-{name}"}, "spec": {
            "nodeSelector": {"kubernetes.io/hostname": name}, "containers": [{"name": "c", "image": "web:1"}]}}
        k("apply", "-f", "-", stdin=json.dumps(pod))
    k("wait", "pod", *(f"renewed-{name}" for name in CONTROL), "--for=condition=Ready", "--timeout=60s", timeout=70)
    schedulers = {credential(c[name], "scheduler") for name in CONTROL}
    until(lambda: schedulers & used_credentials(c, "system:kube-scheduler"), 30, 1, "the scheduler's new certificate")
    for name in CONTROL:
        new = credential(c[name], f"kubelet-{name}")
        until(lambda name=name, new=new: new in used_credentials(c, f"system:node:{name}"), 30, 1, f"the new certificate of {name}")
    for name in CONTROL:
        # An API server has the member of its machine.
        until(lambda name=name: AT_THE_STORE in log_of(c[name], "kube-apiserver"), 60, 0.5, f"the API server of {name} at the store")
        # A follower has a connection to the leader.
        until(lambda name=name: AT_A_MEMBER in log_of(c[name], "kvstore"), 60, 0.5, f"the member of {name} at another one")
    # Cluster DNS only watches, and watches again after a bookmark.
    for name in CONTROL:
        for component in ("kube-controller-manager", "kube-scheduler", "kubelet", "cluster-dns"):
            until(lambda name=name, component=component: RECONNECTED in log_of(c[name], component), 150, 1, f"{component} of {name}")
    k("delete", "pod", *(f"renewed-{name}" for name in CONTROL), "--wait=false")
    assert {name: (c[name].pids(), c[name].supervisor()) for name in everyone} == pids, "a process was restarted"
    last = client.acknowledged[-1]
    client.end()
    assert client.failures == 0, f"{client.failures} requests failed: {client.reason}"
    for path, process in watches:
        assert process.poll() is None, f"a watch ended: {read(path)[-300:]}"
        until(lambda path=path: last in read(path), 20, what=f"the last event in {path}")
        process.terminate()
        process.wait(60)
    longest = client.finish(c)
    print(f"      longest write {longest:.2f} s of {len(client.acknowledged)}, none failed")


@check("ha/broken-certificate-leaves-the-former-one-in-use", deadline=120, needs=("ha/worker-joins-and-reaches-all-servers",))
def broken(c):
    machine, pki = c["cp3"], os.path.join(c["cp3"].folder, "pki")
    kubeconfig = os.path.join(machine.folder, "config", "scheduler.kubeconfig")
    pids, shown = machine.pids(), served_serial(machine, 6443)
    with open(kubeconfig) as f:
        whole = f.read()

    def replace(path, text):
        with open(os.open(path + ".test", os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(text)
        os.rename(path + ".test", path)
    with open(os.path.join(pki, "scheduler.key")) as f:
        replace(os.path.join(pki, "apiserver.key"), f.read())
    replace(kubeconfig, whole.replace("client-key-data: ", "client-key-data: AAAA"))

    def noticed():
        assert served_serial(machine, 6443) == shown, "the broken pair is in use"
        logs = [log_of(machine, name) for name in ("kube-apiserver", "kube-scheduler")]
        return all("changed files can't be used" in log for log in logs)
    until(noticed, 40, 0.5)
    until(lambda: c.kubectl("cp3").run("get", "--raw", "/readyz", timeout=5), 10)
    machine.okay("certs", "renew", "apiserver", "scheduler.crt")
    until(lambda: served_serial(machine, 6443) == file_serial(machine, "apiserver") != shown, 20, 0.5)
    assert machine.pids() == pids, "a process was restarted"
