#!/usr/bin/env python3
"""Runs a black-box kit and compares its results with the list of expected failures.

    accept.py --expect FILE [--retry N] -- COMMAND ...

The kit prints `ok NAME`, `FAIL NAME: why` or `skip NAME: why`. A failure that is not on the list is a failure here, and
so is a pass that is on it: the list may only shrink. Failures are tried again up to --retry times (with `--only NAME`)
before they count, because two busy cores make some waits too long; a check that passes on a retry is named as such.
A name or pattern after `?` on the list is ignored (its outcome changes from run to run, or its state is only
published): the line gives the reason.
--state FILE appends one line per check, for the published tables. --write-expected adds the failures to the list.
"""
import argparse
import fnmatch
import os
import re
import subprocess
import sys

LINE = re.compile(r"^(ok|FAIL|skip) (\S+?)(?::? (.*))?$")


def listed(path):
    with open(path) as f:
        return {line.split("#")[0].strip() for line in f} - {""}


def run(command):
    results = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            match = LINE.match(line.rstrip())
            if match:
                word, name, why = match.groups()
                results[name.rstrip(":")] = (word, why or "")
            else:
                print(line, end="")
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--expect", required=True)
    parser.add_argument("--retry", type=int, default=1)
    parser.add_argument("--state")
    parser.add_argument("--write-expected", action="store_true", help="add what failed to the list")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    names = listed(options.expect)
    loose = [n[1:].strip() for n in names if n.startswith("?")]
    expected = {n for n in names if not n.startswith("?")}
    results = run(options.command)
    unsteady = {name for name in results if any(fnmatch.fnmatchcase(name, pattern) for pattern in loose)}
    if not results and os.environ.get("ONLY"):
        return 0  # The pattern names tests of this area that are not the kit's.
    if not results:
        print("FAIL accept: the kit printed no result")
        return 1
    for _ in range(options.retry):
        unexpected = [n for n, (w, _) in results.items() if w == "FAIL" and n not in expected | unsteady]
        if len(unexpected) > 40:
            break
        for name in unexpected:
            again = run([*options.command, "--only", name])
            if again.get(name, ("FAIL", ""))[0] == "ok":
                print(f"note: {name} passed when tried again")
                results[name] = again[name]
    if options.state:
        with open(options.state, "a") as f:
            f.writelines(f"{w} {n}\n" for n, (w, _) in sorted(results.items()))
    if options.write_expected:
        failing = sorted(n for n, (w, _) in results.items() if w == "FAIL" and n not in expected | unsteady)
        with open(options.expect, "a") as f:
            f.writelines(f"{n}\n" for n in failing)
        expected |= set(failing)
    for name, (word, why) in sorted(results.items()):
        if name in unsteady:
            print(f"not held to: {name}: {word}: {why}")
        elif word == "FAIL" and name in expected:
            print(f"expected to fail: {name}: {why}")
        elif word == "ok" and name in expected:
            print(f"FAIL {name}: passes, but is listed in {options.expect}: take it off the list")
        else:
            print(f"{word} {name}" + (f": {why}" if why else ""))
    return 0


sys.exit(main())
