#!/usr/bin/env python3
"""tests/run with areas made for it: what it prints and counts, the order of the plan, and what an interruption leaves."""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Skip, check, main, shell, until  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
# Waits for an area of the other lane, and fails if it does not run at the same time.
MEET = """
meet() {{ touch "{folder}/$1"; timeout 150 sh -c 'until [ -e "$0" ]; do sleep 0.05; done' "{folder}/$2" || echo "FAIL $1/alone"; }}
note() {{ echo "$1" >>"{folder}/order"; }}
"""


class Suite:
    """A folder with a plan and the scripts of areas."""

    def __init__(self, folder, plan, **areas):
        self.folder, self.started = folder, []
        self.write("plan", plan)
        for area, script in areas.items():
            self.write(f"{area}.sh", ". tests/lib/need.sh\n" + MEET.format(folder=folder) + script.replace("FOLDER", folder))

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(text)

    def start(self, *words, lanes=2):
        # Without what the run that this is a part of gives its areas.
        inherited = {name: value for name, value in os.environ.items() if name not in ("RUN", "WORK", "ONLY", "QUICK", "LIST")}
        environment = {**inherited, "IRONCLAD_TEST_AREAS": self.folder, "IRONCLAD_TEST_LANES": str(lanes), "TMPDIR": self.folder}
        self.started.append(subprocess.Popen(
            ["tests/run", *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return self.started[-1]

    def run(self, *words, **options):
        process = self.start(*words, **options)
        output, _ = process.communicate(timeout=200)
        return output, process.returncode

    def there(self, name):
        return os.path.exists(os.path.join(self.folder, name))

    def processes(self):
        """Lists the processes of its runs, which have the folder in their environment."""
        return shell(f"grep -lzF 'IRONCLAD_TEST_AREAS={self.folder}' /proc/[0-9]*/environ").stdout

    def order(self):
        with open(os.path.join(self.folder, "order")) as f:
            return f.read().split()


@contextlib.contextmanager
def suite(plan, **areas):
    with tempfile.TemporaryDirectory(prefix="suite.") as folder:
        made = Suite(folder, plan, **areas)
        try:
            yield made
        finally:
            for process in made.started:
                process.terminate()
                process.communicate()


def blocks(output):
    """Returns the lines of each area, and the last line of the output."""
    head, *parts = re.split(r"^=== ", output, flags=re.M)
    assert not head.strip(), head
    parts[-1], last = parts[-1].rstrip("\n").rsplit("\n", 1)
    return {lines[0]: lines[1:] for lines in (part.rstrip("\n").split("\n") for part in parts)}, last


def summary(lines):
    return re.sub(r", [0-9]+ s$", "", lines[-1])


@check("suite/lanes-run-beside-each-other-and-print-blocks", deadline=100)
def lanes(_):
    script = "meet {me} {other}\nfor i in $(seq 200); do echo {me} $i; done\necho ok {me}/a\nsleep 0.1 & wait\necho ok {me}/b\n"
    with suite("lane left\nlane right\n", left=script.format(me="left", other="right"), right=script.format(me="right", other="left")) as s:
        output, status = s.run()
    found, last = blocks(output)
    assert (status, last) == (0, "4 passed, 0 failed, 0 skipped"), output
    for area in ("left", "right"):
        numbers = [f"{area} {i}" for i in range(1, 201)]
        assert found[area][:202] == [*numbers, f"ok {area}/a", f"ok {area}/b"], found[area]
        assert summary(found[area][202:]) == f"--- {area}: 2 passed, 0 failed, 0 skipped", found[area]


@check("suite/failures-of-all-kinds-are-counted")
def failures(_):
    with suite("first good\nlane failing silent\nlane ended cargo\nalone crashed\nidle skipped\n", good="echo ok good", failing="echo ok x; echo FAIL y: z",
               silent=":", ended="echo ok w\nexit 3", crashed="kill -9 $$", skipped="skip_all skipped 'it is not there'",
               cargo="echo 'test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out'; exit 101") as s:
        output, status = s.run()
    found, last = blocks(output)
    assert (status, last) == (1, "6 passed, 6 failed, 2 skipped"), output
    expected = {"good": (1, 0, 0), "failing": (1, 1, 0), "silent": (0, 1, 0), "ended": (1, 1, 0), "cargo": (3, 2, 1), "crashed": (0, 1, 0), "skipped": (0, 0, 1)}
    for area, (passed, failed, skipped) in expected.items():
        assert summary(found[area]) == f"--- {area}: {passed} passed, {failed} failed, {skipped} skipped", found[area]
    assert "FAIL silent: the area's script printed no result" in found["silent"], found["silent"]
    assert "FAIL ended: the area's script ended with status 3" in found["ended"], found["ended"]


@check("suite/plan-is-followed", deadline=200)
def plan(_):
    with suite("alone last\nlane a b\nlane c\nidle i\nfirst f\n", f="note f; echo ok f", a="meet a c; note a; echo ok a", b="note b; echo ok b",
               c="meet c a; note c; echo ok c", i="meet i last; note i; echo ok i", last="meet last i; note last; echo ok last") as s:
        output, status = s.run()
        order = s.order()
        assert (status, order[0]) == (0, "f"), output
        assert order.index("a") < order.index("b") < order.index("last") and order.index("c") < order.index("last"), order
    # One after the other, in the order of the kinds of lines.
    note = "note {0}; echo ok {0}"
    with suite("alone e\nlane b c\nlane d\nidle i\nfirst a\n", **{area: note.format(area) for area in "abcdei"}) as s:
        output, status = s.run(lanes=1)
        assert (status, sorted(s.order())) == (0, list("abcdei")), output
        os.unlink(os.path.join(s.folder, "order"))
        output, status = s.run("c", "a")
        assert (status, s.order()) == (0, ["a", "c"]), output
        output, status = s.run("unknown")
        assert status == 2 and "unknown area unknown" in output, output


@check("suite/one-area-with-a-pattern")
def pattern(_):
    with suite("lane a\n", a='wanted a/x && echo ok a/x\nwanted a/y && echo ok a/y\ntrue') as s:
        for words, passed in (([], 2), (["a"], 2), (["a", "a/x"], 1), (["a", "nothing"], 0)):
            output, status = s.run(*words)
            _, last = blocks(output)
            assert (last, status) == (f"{passed} passed, 0 failed, 0 skipped", 0 if passed else 1), output


LONG = """
trap 'touch FOLDER/{0}.stopped' EXIT
setsid -f sh -c '{2} echo $$ >FOLDER/{0}.daemon; while :; do sleep 1000; done'
until [ -s FOLDER/{0}.daemon ]; do sleep 0.05; done
touch FOLDER/{0}.begun
{1}
echo ok {0}
"""
COMMANDS = {"script": "sleep 1000", "python": "python3 -c 'import time; time.sleep(1000)'", "limited": "timeout --foreground 900 sleep 1000"}


def interrupt(number, plan, daemon, *names):
    """Interrupts a run whose areas wait for ever, each with a daemon in a session of its own."""
    with suite(plan, **{name: LONG.format(name, COMMANDS[name], daemon) for name in names}) as s:
        process = s.start()
        until(lambda: all(s.there(f"{name}.begun") for name in names), 50, 0.05)
        process.send_signal(number)
        output, _ = process.communicate(timeout=200)
        assert process.returncode == 130, output
        assert all(s.there(f"{name}.stopped") for name in names), os.listdir(s.folder)
        assert not s.processes(), s.processes()
        assert not [name for name in os.listdir(s.folder) if name.startswith("ironclad.")], os.listdir(s.folder)


@check("suite/interruption-stops-all-lanes", deadline=300)
def interruption(_):
    for number in (signal.SIGINT, signal.SIGTERM):
        interrupt(number, "lane script\nlane python\nidle limited\n", "", "script", "python", "limited")
    interrupt(signal.SIGINT, "lane script\n", 'trap "" TERM;', "script")


@check("suite/daemons-end-with-the-run")
def daemons(_):
    with suite("lane a\nlane b\n", a="setsid -f sleep 1000\necho ok a", b="echo ok b") as s:
        output, status = s.run()
        assert status == 0 and not s.processes(), output


@check("suite/interruption-removes-networks", deadline=120)
def networks(_):
    if os.geteuid() != 0:
        raise Skip("network namespaces need root")
    script = ". tests/lib/cluster.sh\nown_network\necho $OWN_NETWORK >FOLDER/name\nip link show node0 && touch FOLDER/begun\nsleep 1000"
    with suite("lane a\nlane b\n", a=script, b="sleep 1000") as s:
        process = s.start()
        until(lambda: s.there("begun"), 20, 0.05)
        with open(os.path.join(s.folder, "name")) as f:
            name = f.read().strip()
        assert name in shell("ip netns list").stdout
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=200)
        assert process.returncode == 130 and name not in shell("ip netns list").stdout, output


@check("suite/test-programs-run-without-cargo")
def programs(_):
    with tempfile.TemporaryDirectory(prefix="suite.") as folder:
        messages = [{"reason": "build-finished", "success": True}]
        for package, target, script in (("a", "unit", "echo ran a $CARGO_MANIFEST_DIR $*"), ("a", "more", "exit 101"), ("b", "b", "kill -9 $$")):
            path = os.path.join(folder, f"{package}-{target}")
            with open(path, "w") as f:
                f.write(f"#!/bin/sh\n{script}\n")
            os.chmod(path, 0o755)
            ending = "#0.1.0" if package == "a" else "#b@0.1.0"
            messages.append({"reason": "compiler-artifact", "package_id": f"path+file://{folder}/a{ending}", "manifest_path": f"{folder}/Cargo.toml",
                             "target": {"name": target}, "profile": {"test": True}, "executable": path})
        path = os.path.join(folder, "messages")
        with open(path, "w") as f:
            f.writelines(json.dumps(message) + "\n" for message in messages)
        for words, status, expected in (
            ("--package a --test unit --only word", 0, [f"ran a {folder} --quiet word"]),
            ("--package a", 1, [f"ran a {folder} --quiet"]),
            ("--workspace --exclude a", 1, ["FAIL b/b: ended with status -9"]),
            ("--package c", 1, ["FAIL rust_tests: no tests were built of c"]),
        ):
            done = shell(["python3", os.path.join(ROOT, "tests/lib/rust_tests.py"), path, *words.split()])
            lines = [line for line in (done.stdout + done.stderr).splitlines() if "Running" not in line]
            assert (done.returncode, lines) == (status, expected), (words, done)


@check("suite/condition-with-an-error-is-waited-for")
def errors(_):
    """A command that hangs for a moment, and a cluster without a leader, are no failures yet."""
    for error in (AssertionError(), subprocess.TimeoutExpired("kubectl", 5), subprocess.CalledProcessError(1, "kubectl"), OSError(),
                  StopIteration(), KeyError(), IndexError(), ValueError()):
        answers = [True, error]

        def condition(answers=answers):
            answer = answers.pop()
            if isinstance(answer, Exception):
                raise answer
            return answer
        assert until(condition, 5, 0.01), error


@check("suite/every-area-is-in-the-plan-once")
def complete(_):
    folder = os.path.join(ROOT, "tests", "areas")
    with open(os.path.join(folder, "plan")) as f:
        lines = [line.split() for line in f if line.strip() and not line.startswith("#")]
    assert {line[0] for line in lines} == {"first", "lane", "alone", "idle", "named"}, lines
    planned = sorted(area for line in lines for area in line[1:])
    assert planned == sorted(name.removesuffix(".sh") for name in os.listdir(folder) if name.endswith(".sh")), planned


if __name__ == "__main__":
    sys.exit(main(None))
