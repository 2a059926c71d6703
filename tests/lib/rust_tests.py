"""Runs test programs that cargo has built, without cargo, whose lock on the build directory would make other areas wait.

    rust_tests.py MESSAGES [--workspace] [--exclude NAME ...] [--package NAME ...] [--test NAME] [--only PATTERN] [--no-skips]

MESSAGES is what `cargo test --no-run --message-format=json` printed. The options are those of `cargo test --tests`, but for the
pattern of names. The tests of all chosen packages run, also after a failure. With --no-skips, a test that prints "skipped: REASON" and a
pattern that no test has are failures, for a machine that has all that the tests need.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
from typing import NamedTuple

# The exit status of a program one of whose tests failed.
FAILED = 101
# All tests together take at most these seconds. The line "has been running for over 60 seconds" names one that hangs.
SECONDS = 2700


class Program(NamedTuple):
    """A program with the tests of a library, of a binary, or of a file in `tests`."""
    package: str
    target: str
    folder: str
    path: str


def read_programs(messages):
    """Returns the test programs of cargo's messages, sorted by package and target."""
    programs = []
    with open(messages) as lines:
        for message in map(json.loads, lines):
            if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
                folder = os.path.dirname(message["manifest_path"])
                programs.append(Program(package_name(message["package_id"]), message["target"]["name"], folder, message["executable"]))
    return sorted(programs)


def package_name(package_id):
    """Returns the name in `path+file:///DIR#VERSION` or `path+file:///DIR#NAME@VERSION`. Without one it is the folder's."""
    address, _, version = package_id.partition("#")
    return version.split("@")[0] if "@" in version else address.rsplit("/", 1)[-1]


def choose(programs, given):
    """Returns the programs that the options name. An unknown package is an error, as for cargo."""
    packages = {program.package for program in programs}
    unknown = {*given.package, *given.exclude} - packages
    if unknown:
        sys.exit(f"FAIL rust_tests: no tests were built of {', '.join(sorted(unknown))}")
    chosen = packages - set(given.exclude) if given.workspace else set(given.package)
    return [program for program in programs if program.package in chosen and given.test in (None, program.target)]


def run(program, pattern, end, allows_skips):
    """Runs the tests of a program until `end` at the latest; returns whether all passed, and the number of tests."""
    print(f"     Running {program.package}: {program.target}", flush=True)
    # As cargo does: tests find their own files by this variable.
    environment = {**os.environ, "CARGO_MANIFEST_DIR": program.folder}
    command = [program.path, "--quiet", *pattern.split(), *([] if allows_skips else ["--show-output"])]
    name = f"{program.package}/{program.target}"
    try:
        done = subprocess.run(command, cwd=program.folder, env=environment, timeout=end - time.monotonic(), text=True,
                              stdout=None if allows_skips else subprocess.PIPE)
    except subprocess.TimeoutExpired as error:
        # In bytes, whatever the mode of the streams is.
        print((error.stdout or b"").decode(errors="replace"), flush=True)
        sys.exit(f"FAIL {name}: the tests were not done within {SECONDS} seconds")
    if done.returncode not in (0, FAILED):
        print(f"FAIL {name}: ended with status {done.returncode}", flush=True)
    if allows_skips:
        return done.returncode == 0, None
    print(done.stdout, flush=True)
    skips, count = examine(done.stdout)
    for skip in skips:
        print(f"FAIL {name}: a test was {skip}", flush=True)
    return done.returncode == 0 and not skips, count


def examine(output):
    """Returns the lines of skipped tests in a program's output, and the number of its tests."""
    return re.findall(r"^skipped: .*$", output, re.MULTILINE), sum(map(int, re.findall(r"^running (\d+) tests?$", output, re.MULTILINE)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages")
    parser.add_argument("--workspace", action="store_true")
    parser.add_argument("--exclude", action="append", default=[])
    parser.add_argument("--package", action="append", default=[])
    parser.add_argument("--test")
    parser.add_argument("--only", default="")
    parser.add_argument("--no-skips", action="store_true")
    given = parser.parse_args()
    end = time.monotonic() + SECONDS
    results = [run(program, given.only, end, not given.no_skips) for program in choose(read_programs(given.messages), given)]
    if given.no_skips and not any(count for _, count in results):
        print(f"FAIL rust_tests: no test has {given.only!r} in its name", flush=True)
        return 1
    return 0 if results and all(passed for passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
