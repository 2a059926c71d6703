#!/usr/bin/env python3
"""Turns the kits' state files (FOLDER/KIT.state, lines `ok NAME`) into docs/api-conformance.md, on standard output.

The states are those of the kits (ok, FAIL, skip) and `absent`: not tried, because the group's feature is not implemented.
--expect FOLDER has the lists of expected failures: a comment above or after a name there is the reason. KIT.skipped beside them has
the reasons of checks that are skipped. A file FOLDER/KIT.run has the date and the commit of the run.
"""
import argparse
import collections
import os

TITLES = {
    "api": "API server, against checks that the stock v1.36.2 server passes",
    "store": "Store, against checks that etcd passes",
    "cluster": "Whole cluster with real containers, against checks that a stock cluster passes",
}
HEAD = """# Conformance

Written by `tests/conformance`; do not edit. Each row is a group of black-box checks. Failing checks are listed below each
table, with the reason if it is known, and so are skipped ones."""


def read_states(path):
    """Returns the last state of each check."""
    with open(path) as lines:
        return {name: word for word, name in (line.split() for line in lines)}


def read_reasons(path):
    """Maps names to reasons. A comment line applies to the names that follow it, up to an empty line."""
    reasons, above = {}, ""
    if os.path.exists(path):
        with open(path) as lines:
            for line in lines:
                name, _, comment = (part.strip() for part in line.partition("#"))
                if not name:
                    above = comment
                else:
                    # `?` before a name: its outcome changes from run to run.
                    reasons[name.lstrip("? ")] = comment or above
    return reasons


def group_of(name):
    return name.replace("/", ".", 1).partition(".")[0]


def read_run(path):
    """Returns the sentence about the run, if the file is there."""
    if not os.path.exists(path):
        return ""
    with open(path) as line:
        date, commit = line.read().split()
    return f" Run on {date}, commit {commit}."


def write_names(heading, names, reasons):
    """Writes the names, those with one reason in one line."""
    by_reason = collections.defaultdict(list)
    for name in sorted(names):
        by_reason[reasons.get(name, "")].append(name)
    if names:
        print(f"\n{heading}:\n")
    for why, same in sorted(by_reason.items(), key=lambda item: item[1]):
        print(f"- {', '.join(f'`{name}`' for name in same)}{': ' + why if why else ''}")


def write_kit(title, states, reasons, skipped, run):
    groups = collections.defaultdict(collections.Counter)
    for name, word in states.items():
        groups[group_of(name)][word] += 1
    total = sum(groups.values(), collections.Counter())
    print(f"\n## {title}\n\n{total['ok']} of {total.total()} pass.{run}\n")
    print("| group | pass | fail | skipped | not implemented |\n|---|---|---|---|---|")
    for group, count in sorted(groups.items()):
        print(f"| {group} | {count['ok']} | {count['FAIL']} | {count['skip']} | {count['absent']} |")
    write_names("Failing", [name for name, word in states.items() if word == "FAIL"], reasons)
    write_names("Skipped", [name for name, word in states.items() if word == "skip"], skipped)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--expect", default="tests/accept")
    options = parser.parse_args()
    print(HEAD)
    for kit, title in TITLES.items():
        path = os.path.join(options.folder, f"{kit}.state")
        if os.path.exists(path):
            reasons, skipped = (
                read_reasons(os.path.join(options.expect, f"{kit}.{kind}")) for kind in ("expected-failures", "skipped")
            )
            write_kit(title, read_states(path), reasons, skipped, read_run(os.path.join(options.folder, f"{kit}.run")))


main()
