"""A small harness for checks against a running cluster.

A check is a function decorated with `@check("area/name", deadline=60)`. It raises AssertionError (or any error) to fail
and Skip to be skipped with a printed reason. `main()` runs them in the order of definition and prints one line each:
`ok NAME`, `FAIL NAME: why`, `skip NAME: why`. Waiting is always on a condition with a deadline (`until`).

With the environment variable ONLY (`tests/run AREA PATTERN`), only checks whose name contains its value run, after the
checks that they need: `@check("area/name", needs=("area/other",))`.
"""
import os
import signal
import subprocess
import sys
import time

CHECKS = []
NEEDS = {}
# Seconds that `until` waits at least, and factor of the deadlines of checks, which are those of a machine without other work.
LEAST_WAIT, SLOWNESS = 60, 2


class Skip(Exception):
    """The check does not apply here; the text is the reason."""


class Deadline(BaseException):
    """The check exceeded its deadline."""


def check(name, deadline=60, needs=()):
    """Registers a check. `needs` names earlier checks whose effect it depends on."""
    def add(function):
        CHECKS.append((name, deadline, function))
        NEEDS[name] = needs
        return function
    return add


def _selected(only):
    """Returns the names of the checks that contain a word of `only`, and of those that they need."""
    names, waiting = set(), [name for name, _, _ in CHECKS if not only or any(word in name for word in only)]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += NEEDS[name]
    return names


def until(condition, seconds=30, every=0.2, what=None):
    """Waits until `condition()` is true and returns its value; an error in it counts as false.

    Waits at least LEAST_WAIT, so that a check fails by what does not happen and not by a slow machine."""
    seconds = max(seconds, LEAST_WAIT)
    end, last = time.monotonic() + seconds, None
    while True:
        try:
            value = condition()
            if value:
                return value
            last = value
        except (AssertionError, subprocess.SubprocessError, OSError, StopIteration, LookupError, ValueError) as error:
            last = str(error) or type(error).__name__
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what or getattr(condition, '__name__', 'condition')}; last: {last}")
        time.sleep(every)


class Kubectl:
    """The real kubectl with one kubeconfig."""

    def __init__(self, kubeconfig, namespace="default"):
        self.program = os.environ.get("KUBECTL", "kubectl")
        self.kubeconfig, self.namespace = kubeconfig, namespace

    def command(self, *words):
        return [self.program, "--kubeconfig", self.kubeconfig, "--namespace", self.namespace, *words]

    def run(self, *words, stdin=None, timeout=60, okay=True):
        """Runs kubectl; with okay=True a non-zero exit is an AssertionError, with okay=False success is."""
        done = subprocess.run(self.command(*words), input=stdin, capture_output=True, text=True, timeout=timeout)
        if okay is not None and (done.returncode == 0) != okay:
            raise AssertionError(f"kubectl {' '.join(words)} ended with {done.returncode}: {done.stdout[-400:]}{done.stderr[-800:]}")
        return done

    def __call__(self, *words, **options):
        return self.run(*words, **options).stdout

    def start(self, *words, **options):
        """Starts kubectl and returns the process (the caller ends it)."""
        options.setdefault("stdout", subprocess.PIPE)
        return subprocess.Popen(self.command(*words), stderr=subprocess.STDOUT, text=True, **options)


def _alarm(_signal, _frame):
    raise Deadline


def main(context, only=()):
    signal.signal(signal.SIGALRM, _alarm)
    failed = 0
    selected = _selected(list(only) or os.environ.get("ONLY", "").split())
    for name, deadline, function in CHECKS:
        if name not in selected:
            continue
        start = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, deadline * SLOWNESS)
            function(context)
            print(f"ok {name}", flush=True)
        except Skip as reason:
            print(f"skip {name}: {reason}", flush=True)
        except Deadline:
            failed += 1
            print(f"FAIL {name}: did not end within {deadline * SLOWNESS} s", flush=True)
        except Exception as error:  # any error is this check's failure, not the run's end
            failed += 1
            text = " ".join(str(error).split())[:900]
            print(f"FAIL {name}: {type(error).__name__}: {text}", flush=True)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if os.environ.get("TIMES"):
            print(f"      {time.monotonic() - start:.1f} s")
    return 1 if failed else 0


def shell(command, **options):
    options.setdefault("timeout", 120)
    return subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True, **options)


def bail(text):
    print(text, file=sys.stderr)
    sys.exit(2)
