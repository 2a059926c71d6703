"""Checks a program's error: one sentence with the problem and the remedy, and the right exit code.

Log lines (they begin with a time, or are JSON) may come before that sentence; nothing else may.
"""
import os
import re
import subprocess

LOG_LINE = re.compile(r"^(\x1b\[[0-9;]*m)*\s*(\d{4}-\d\d-\d\dT|\{|[IWEF]\d{4} )")
PANIC = ("panicked at", "RUST_BACKTRACE", "stack backtrace", "overflowed its stack")


def start(argv, env=None, **options):
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=None if env is None else {**os.environ, **env}, **options)


def ended(process, seconds):
    """Returns standard output and error of a process that must exit within `seconds`."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{process.args[0]} still runs after {seconds} s: {out[-300:]}{err[-600:]}") from None


def no_panic(text):
    """Fails with the text around the first sign of a panic: log lines may follow it."""
    for word in PANIC:
        at = text.find(word)
        assert at < 0, f"a panic: {text[max(0, at - 300):at + 700]}"


def sentence(err):
    """Returns the only line that is no log line, without the program's name."""
    lines = [line for line in err.splitlines() if line.strip() and not LOG_LINE.match(line)]
    assert len(lines) == 1, f"not one sentence: {lines}"
    return lines[0]


def refused(argv, *words, code=1, seconds=60, env=None):
    """Runs a program that must fail with all `words` in its one sentence; returns the sentence."""
    argv = [str(word) for word in argv]
    process = start(argv, env)
    out, err = ended(process, seconds)
    no_panic(out + err)
    name = os.path.basename(argv[0])
    assert process.returncode == code, f"{name} ended with {process.returncode} and not {code}: {err[-600:]}"
    said = sentence(err)
    assert said.startswith(f"{name}: "), f"the sentence does not say who speaks: {said}"
    missing = [word for word in words if word not in said]
    assert not missing, f"{missing} not in: {said}"
    if os.environ.get("SHOW"):
        print(f"      {said}")
    return said
