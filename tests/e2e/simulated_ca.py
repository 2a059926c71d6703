"""Replacement of all CAs and of the key of ServiceAccounts of a running cluster, with the steps of docs/operations/certificates.md:
a check of the area simulated, which simulated.py runs."""
import base64
import json
import os
import shutil
import tempfile

from checks import Kubectl, check, shell, until

CAS = {"ca": "ironclad-ca", "front-proxy-ca": "ironclad-front-proxy-ca", "etcd/ca": "ironclad-store-ca"}
MAKE_CA = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650",
           "-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def run(*words):
    done = shell(list(words), timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Replacement:
    """The former and the new files."""

    def __init__(self, c, folder):
        self.c, self.pki, self.new = c, os.path.join(c.data, "pki"), folder
        os.mkdir(os.path.join(folder, "etcd"))
        self.former = {name: read(self.pki, f"{name}.crt") for name in CAS}
        self.former_public = read(self.pki, "sa.pub")
        for name, subject in CAS.items():
            key, crt = (os.path.join(folder, f"{name}.{ending}") for ending in ("key", "crt"))
            run(*MAKE_CA, "-subj", f"/CN={subject}", "-keyout", key, "-out", crt)
        key = os.path.join(folder, "sa.key")
        run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        run("openssl", "ec", "-in", key, "-pubout", "-out", os.path.join(folder, "sa.pub"))
        self.added = {name: read(folder, f"{name}.crt") for name in CAS}
        self.added_public = read(folder, "sa.pub")

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.pki, name)
        with open(os.open(path + ".next", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(path + ".next", path)

    def certs(self, *names):
        run(self.c.ironclad, "certs", "renew", *names, "--data-dir", self.c.data)

    def trust_both(self):
        for name in CAS:
            self.write(f"{name}.crt", self.former[name] + self.added[name])
        self.write("sa.pub", self.former_public + self.added_public)
        self.certs("admin")

    def sign_with_new(self):
        for name in CAS:
            self.write(f"{name}.crt", self.added[name] + self.former[name])
            self.write(f"{name}.key", read(self.new, f"{name}.key"), 0o600)
        self.write("sa.key", read(self.new, "sa.key"), 0o600)
        self.certs()

    def drop_former(self):
        for name in CAS:
            self.write(f"{name}.crt", self.added[name])
        self.write("sa.pub", self.added_public)
        self.certs("admin")

    def wait_for_published(self, expected):
        def shown():
            return self.c.json("configmap", "kube-root-ca.crt")["data"]["ca.crt"] == expected
        until(shown, 40, 0.5, "the published CA")

    def is_verified_with_new(self):
        """Returns whether the API server shows a certificate of the new CA."""
        host = json.loads(self.c.k("config", "view", "--minify", "-o", "json"))["clusters"][0]["cluster"]["server"][len("https://"):]
        script = f"openssl s_client -connect {host} -CAfile {self.new}/ca.crt -verify_return_error </dev/null"
        return shell(script).returncode == 0


def key_id(token):
    return json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))["kid"]


def pids(c):
    return {name: x["pid"] for name, x in c.components().items()}


@check("simulated/cas-are-replaced-without-a-restart", deadline=240, needs=("simulated/deployment",))
def replaced(c):
    with tempfile.TemporaryDirectory() as folder:
        r, before = Replacement(c, folder), pids(c)
        stolen = os.path.join(folder, "former.kubeconfig")
        shutil.copy(c.k.kubeconfig, stolen)
        token = c.k("create", "token", "default").strip()
        r.trust_both()
        r.wait_for_published(r.former["ca"] + r.added["ca"])
        c.scaled(2)
        r.sign_with_new()
        until(r.is_verified_with_new, 20, 0.5, "the API server shows a certificate of the new CA")
        r.wait_for_published(r.added["ca"] + r.former["ca"])
        c.scaled(3)

        def signed_with_new():
            """The files of keys are read at other times than those of certificates."""
            fresh = c.k("create", "token", "default").strip()
            return key_id(fresh) != key_id(token) and fresh
        fresh = until(signed_with_new, 60, 0.5, "tokens are signed with the new key")
        r.drop_former()
        r.wait_for_published(r.added["ca"])
        assert pids(c) == before, "a process was restarted"
        run(c.ironclad, "up", "--data-dir", c.data)
        assert pids(c) == before, "ironclad up restarted a process"
        c.scaled(2)
        c.k("rollout", "restart", "deployment/web")
        c.k("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
        assert "x509" in Kubectl(stolen).run("get", "nodes", okay=False).stderr
        tree = json.loads(c.k("config", "view", "--minify", "--raw", "-o", "json"))
        former = json.loads(Kubectl(stolen)("config", "view", "--minify", "--raw", "-o", "json"))

        def identify(user):
            """Returns the errors of kubectl with the new CA and these credentials."""
            tree["users"][0]["user"] = user
            with open(stolen, "w", encoding="utf-8") as file:
                json.dump(tree, file)
            return Kubectl(stolen).run("auth", "whoami", okay=None).stderr
        for user in (former["users"][0]["user"], {"token": token}):
            until(lambda user=user: "Unauthorized" in identify(user), 20, 1, "former credentials are rejected")
        assert identify({"token": fresh}) == "", identify({"token": fresh})
