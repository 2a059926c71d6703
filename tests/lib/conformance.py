#!/usr/bin/env python3
"""Turns the kits' state files (FOLDER/KIT.state, lines `ok NAME`) into docs/api-conformance.md, on standard output.

The states are those of the kits (ok, FAIL, skip) and `absent`: not tried, because the group's feature is not implemented.
--expect FOLDER has the lists of expected failures: a comment above or after a name there is the reason.
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
table, with the reason if it is known."""


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
                elif not name.startswith("?"):
                    reasons[name] = comment or above
    return reasons


def group_of(name):
    return name.replace("/", ".", 1).partition(".")[0]


def write_kit(title, states, reasons):
    groups = collections.defaultdict(collections.Counter)
    for name, word in states.items():
        groups[group_of(name)][word] += 1
    total = sum(groups.values(), collections.Counter())
    print(f"\n## {title}\n\n{total['ok']} of {total.total()} pass.\n")
    print("| group | pass | fail | skipped | not implemented |\n|---|---|---|---|---|")
    for group, count in sorted(groups.items()):
        print(f"| {group} | {count['ok']} | {count['FAIL']} | {count['skip']} | {count['absent']} |")
    failed = collections.defaultdict(list)
    for name, word in sorted(states.items()):
        if word == "FAIL":
            failed[reasons.get(name, "")].append(name)
    if failed:
        print("\nFailing:\n")
    for why, names in sorted(failed.items(), key=lambda item: item[1]):
        print(f"- {', '.join(f'`{name}`' for name in names)}{': ' + why if why else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--expect", default="tests/accept")
    options = parser.parse_args()
    print(HEAD)
    for kit, title in TITLES.items():
        path = os.path.join(options.folder, f"{kit}.state")
        if os.path.exists(path):
            write_kit(title, read_states(path), read_reasons(os.path.join(options.expect, f"{kit}.expected-failures")))


main()
