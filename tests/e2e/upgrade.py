#!/usr/bin/env python3
"""`ironclad upgrade` on a cluster with simulated containers: it replaces every component, undoes what fails, and survives a kill.

    upgrade.py --kubeconfig FILE --data-dir DIR --ironclad BINARY --work DIR
"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Kubectl, check, main, shell, until  # noqa: E402

PROGRAMS = ("kvstore", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "cluster-dns", "ironclad")
ORDER = ["kvstore", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubelet-2", "cluster-dns"]
# Reports the version of a kube-scheduler, and ends at once as a server.
BROKEN = '#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\necho "this build is broken" >&2\nexit 3\n'


def duplicate(source, target):
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@contextlib.contextmanager
def suspended(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Context:
    def __init__(self, options):
        self.k, self.data, self.ironclad = Kubectl(options.kubeconfig), options.data_dir, options.ironclad
        self.work, self.first = options.work, os.path.dirname(os.path.abspath(options.ironclad))

    def directory(self, name):
        """Makes a directory with the programs; each has a file of its own, as those of another release."""
        path = os.path.join(self.work, name)
        if not os.path.exists(path):
            os.makedirs(path)
            for program in PROGRAMS:
                duplicate(os.path.join(self.first, program), os.path.join(path, program))
        return path

    def broken(self, name):
        path = self.directory(name)
        scheduler = os.path.join(path, "kube-scheduler")
        os.rename(scheduler, scheduler + ".real")
        with open(scheduler, "w", encoding="utf-8") as file:
            file.write(BROKEN.format(real=scheduler + ".real"))
        os.chmod(scheduler, 0o755)
        return path

    def command(self, *words):
        return [self.ironclad, "upgrade", "--data-dir", self.data, *words]

    def upgrade(self, *words, okay=True):
        done = shell(self.command(*words), timeout=300)
        assert (done.returncode == 0) == okay, f"upgrade {words} ended with {done.returncode}: {done.stderr}"
        return done

    def supervisor(self):
        return json.loads(shell([self.ironclad, "status", "--data-dir", self.data, "--output", "json"]).stdout)["supervisor"]

    def components(self):
        done = shell([self.ironclad, "status", "--data-dir", self.data, "--output", "json"])
        assert done.returncode == 0, done.stderr
        return {c["name"]: c["pid"] for c in json.loads(done.stdout)["components"]}

    def programs(self):
        """Returns the directories of the programs that run."""
        return {os.path.dirname(os.readlink(f"/proc/{pid}/exe")) for pid in self.components().values()}

    def stored(self):
        with open(os.path.join(self.data, "settings.json"), encoding="utf-8") as file:
            return json.load(file)["binDir"]

    def pod(self):
        pod = json.loads(self.k("get", "pod", "witness", "-o", "json"))
        return pod["metadata"]["uid"], pod["status"]["phase"], pod["status"]["containerStatuses"][0]["restartCount"]


@check("upgrade/pod-runs", deadline=60)
def pod_runs(c):
    # The namespace's service account is a moment younger than the cluster.
    until(lambda: c.k("get", "serviceaccount", "default"))
    c.k("run", "witness", "--image=web:1")
    c.k("wait", "pod/witness", "--for=condition=Ready", "--timeout=100s", timeout=110)


@check("upgrade/failed-check-changes-nothing", deadline=90)
def checks(c):
    before = c.components()
    incomplete = c.directory("incomplete")
    os.unlink(os.path.join(incomplete, "kubelet"))
    other = c.directory("other")
    os.unlink(os.path.join(other, "kubelet"))
    duplicate(os.path.join(other, "kube-proxy"), os.path.join(other, "kubelet"))
    for words, text in [(("--bin-dir", incomplete), "kubelet does not exist"), (("--bin-dir", other), "it is another program"),
                        (("--bin-dir", c.first), "already"), (("--rollback",), "no upgrade was interrupted"),
                        (("--bin-dir", c.directory("next"), "--timeout", "1s"), "--timeout is at least")]:
        assert text in c.upgrade(*words, okay=False).stderr, (words, text)
    if os.geteuid() == 0:
        shared = c.directory("shared")
        os.chmod(shared, 0o777)
        refused = c.upgrade("--bin-dir", shared, "--dry-run", okay=False).stderr
        assert "so another user could replace programs that root runs" in refused, refused
    pid = before["kube-scheduler"]
    # A stopped supervisor does not start it again.
    with suspended(c.supervisor()):
        os.kill(pid, signal.SIGKILL)
        refused = c.upgrade("--bin-dir", c.directory("next"), okay=False).stderr
    assert "kube-scheduler is not ready, so nothing was changed" in refused, refused
    until(lambda: c.components()["kube-scheduler"] != pid, what="kube-scheduler is back")
    after = c.components()
    assert {n for n in after if after[n] != before[n]} == {"kube-scheduler"}, (before, after)
    assert not os.path.exists(os.path.join(c.data, "upgrade.json"))


@check("upgrade/dry-run-prints-the-steps", deadline=60)
def dry_run(c):
    before = c.components()
    printed = c.upgrade("--bin-dir", c.directory("next"), "--dry-run").stdout
    assert [line.split()[0] for line in printed.splitlines()[1:]] == ORDER, printed
    assert c.components() == before and c.programs() == {c.first}


@check("upgrade/broken-scheduler-is-rolled-back", deadline=300, needs=("upgrade/pod-runs",))
def rolled_back(c):
    pod, before = c.pod(), c.components()
    broken = c.broken("broken")
    # The components before it must be ready within this time, also on a slow machine.
    failed = c.upgrade("--bin-dir", broken, "--timeout", "45s", okay=False).stderr
    for text in ("kube-scheduler was not healthy within 45 s", "kube-scheduler.log", "this build is broken",
                 f"run the programs of {c.first} again"):
        assert text in failed, failed
    steps = [line.split()[-2] for line in failed.splitlines() if line.endswith(" back")]
    assert steps == list(reversed(ORDER[:4])), failed
    after = c.components()
    assert c.programs() == {c.first} and c.stored() == c.first
    assert {n for n in ORDER if after[n] == before[n]} == set(ORDER[4:]), "components after the failed one were restarted"
    assert c.pod() == pod, "the pod was touched"
    assert not os.path.exists(os.path.join(c.data, "upgrade.json"))
    c.k("run", "scheduled", "--image=web:1")
    c.k("wait", "pod/scheduled", "--for=condition=Ready", "--timeout=100s", timeout=110)


@check("upgrade/killed-command-is-undone-or-continued", deadline=300, needs=("upgrade/pod-runs",))
def killed(c):
    after = c.directory("next")

    def interrupt():
        with open(os.path.join(c.work, "killed.log"), "w+", encoding="utf-8") as log:
            command = subprocess.Popen(c.command("--bin-dir", after), stdout=log, stderr=log)
            until(lambda: "replacing kube-controller-manager" in open(log.name, encoding="utf-8").read(), 60, every=0.02)
            # The other command waits a moment, in which this one would go on.
            with suspended(command.pid):
                busy = shell([c.ironclad, "up", "--data-dir", c.data])
            assert busy.returncode == 1 and "another `ironclad` command changes the cluster" in busy.stderr, busy.stderr
            command.kill()
            command.wait(60)
        assert c.stored() == c.first
        until(lambda: len(c.programs()) == 2, what="a part of the components is replaced")
        renewal = shell([c.ironclad, "certs", "renew", "--data-dir", c.data])
        assert renewal.returncode == 1 and "upgrade was interrupted" in renewal.stderr, renewal.stderr
    interrupt()
    c.upgrade("--rollback")
    assert c.programs() == {c.first} and c.stored() == c.first
    interrupt()
    refused = c.upgrade("--bin-dir", c.directory("third"), okay=False).stderr
    assert f"upgrade to {after} was interrupted" in refused, refused
    undo = [line.split()[0] for line in c.upgrade("--rollback", "--dry-run").stdout.splitlines()[1:]]
    # A step is announced before it is stored: the command was killed before or after that.
    assert undo in (ORDER[2::-1], ORDER[1::-1]), undo
    before = c.components()
    # As after a boot without systemd.
    os.kill(c.supervisor(), signal.SIGKILL)
    continued = c.upgrade("--bin-dir", os.path.join(c.work, "next", "..", "next")).stderr
    assert "continuing" in continued and "replacing kvstore" not in continued, continued
    assert c.programs() == {after} and c.stored() == after
    now = c.components()
    assert now["kvstore"] == before["kvstore"], "a component was replaced twice"
    assert not os.path.exists(os.path.join(c.data, "upgrade.json"))


@check("upgrade/component-whose-program-was-built-again-is-replaced-again", deadline=200, needs=("upgrade/killed-command-is-undone-or-continued",))
def built_again(c):
    before, rebuilt = c.stored(), c.directory("rebuilt")
    with open(os.path.join(c.work, "killed.log"), "w+", encoding="utf-8") as log:
        command = subprocess.Popen(c.command("--bin-dir", rebuilt), stdout=log, stderr=log)
        until(lambda: "replacing kube-controller-manager" in open(log.name, encoding="utf-8").read(), 60, every=0.02)
        command.kill()
        command.wait(60)
    server = os.path.join(rebuilt, "kube-apiserver")
    shutil.copy(server, server + ".new")  # with another time
    os.rename(server + ".new", server)
    continued = c.upgrade("--bin-dir", rebuilt).stderr
    assert "replacing kube-apiserver" in continued and "replacing kvstore" not in continued, continued
    assert c.programs() == {rebuilt} and c.stored() == rebuilt != before


@check("upgrade/every-component-is-replaced-and-pods-stay", deadline=200, needs=("upgrade/killed-command-is-undone-or-continued",))
def replaced(c):
    pod, before = c.pod(), c.components()
    third = c.directory("third")
    done = c.upgrade("--bin-dir", third)
    order = [line.split()[-1] for line in done.stderr.splitlines() if ": replacing " in line]
    assert order == ORDER, done.stderr
    after = c.components()
    assert all(after[name] != before[name] for name in ORDER), (before, after)
    assert c.programs() == {third} and c.stored() == third
    assert c.pod() == pod, "the pod was touched"
    # Later commands use the new directory, and restart nothing.
    repeated = shell([os.path.join(third, "ironclad"), "up", "--data-dir", c.data])
    assert repeated.returncode == 0 and c.components() == after, repeated.stderr


@check("upgrade/joined-machine", deadline=120)
def joined(c):
    invitation = shell([c.ironclad, "token", "create", "--data-dir", c.data, "--print-join-command"]).stdout.split()
    folder = os.path.join(c.work, "joined")
    options = ["--data-dir", folder, "--simulated", "--pick-ports", "--node-name", "upgraded-guest"]
    try:
        done = shell([c.ironclad, *invitation[1:], *options])
        assert done.returncode == 0, done.stderr
        done = shell([c.ironclad, "upgrade", "--data-dir", folder, "--bin-dir", c.directory("next")])
        assert done.returncode == 0 and "1/1: replacing kubelet" in done.stderr, done.stderr
        status = json.loads(shell([c.ironclad, "status", "--data-dir", folder, "--output", "json"]).stdout)
        program = os.readlink(f"/proc/{status['components'][0]['pid']}/exe")
        assert program == os.path.join(c.directory("next"), "kubelet"), program
    finally:
        shell([c.ironclad, "reset", "--data-dir", folder])
        c.k.run("delete", "node", "upgraded-guest", okay=None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ironclad", required=True)
    parser.add_argument("--work", required=True)
    sys.exit(main(Context(parser.parse_args())))
