#!/usr/bin/env python3
"""Checks the locked crates against deny.toml, as `cargo deny check` does: sources, licences, bans, advisories.

Prints a line "ok NAME", "FAIL NAME: why" or "skip NAME: why" for each check. Advisories are those of RustSec. Their
repository is cloned, or taken from IRONCLAD_ADVISORY_DB, a git repository; without either that check is skipped."""
import json
import os
import re
import subprocess
import sys
import tomllib

ADVISORIES = "https://github.com/rustsec/advisory-db"
SECONDS = 60


def main():
    policy = tomllib.load(open("deny.toml", "rb"))
    shape = tomllib.load(open("Cargo.lock", "rb"))["package"]
    checks = {"sources": sources, "licences": licences, "bans": bans, "advisories": advisories}
    for name, check in checks.items():
        try:
            wrong = check(policy, shape)
            print(f"FAIL supply/{name}: {'; '.join(wrong)}" if wrong else f"ok supply/{name}")
        except Skipped as why:
            print(f"skip supply/{name}: {why}")


class Skipped(Exception):
    """The reason why a check can't run here."""


def sources(policy, locked):
    allowed = {f"registry+{url}" for url in policy["sources"]["allow-registry"]}
    return [f"{p['name']} comes from {p['source']}" for p in locked if p.get("source") and p["source"] not in allowed]


def bans(policy, locked):
    names = {p["name"] for p in locked}
    return [f"{rule['crate']} is in the lock file: {rule['reason']}" for rule in policy["bans"]["deny"] if rule["crate"] in names]


def licences(policy, _locked):
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Skipped(f"cargo metadata: {done.stderr.strip().splitlines()[-1]}")
    rules = policy["licenses"]
    extra = {rule["crate"]: set(rule["allow"]) for rule in rules.get("exceptions", [])}
    wrong = []
    for package in json.loads(done.stdout)["packages"]:
        if package["source"] is None:
            continue
        allowed = set(rules["allow"]) | extra.get(package["name"], set())
        if not permitted(package["license"] or "", allowed):
            wrong.append(f"{package['name']} has the licence {package['license']!r}")
    return wrong


def permitted(expression, allowed):
    """Returns whether an SPDX expression permits a choice of allowed licences. A slash is the old form of OR."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def either():
        value = both()
        while words and words[0] == "OR":
            words.pop(0)
            value = both() or value
        return value

    def both():
        value = one()
        while words and words[0] == "AND":
            words.pop(0)
            value = one() and value
        return value

    def one():
        if not words:
            return False
        word = words.pop(0)
        if word == "(":
            value = either()
            return bool(words) and words.pop(0) == ")" and value
        if words and words[0] == "WITH":
            word = " ".join([word, words.pop(0), words.pop(0)])
        return word in allowed

    return either() and not words


def advisories(policy, locked):
    versions = {}
    for package in locked:
        if package.get("source"):
            versions.setdefault(package["name"], []).append(package["version"])
    accepted = {rule["id"]: rule["reason"] for rule in policy["advisories"]["ignore"]}
    found = dict(matches(database(), versions))
    wrong = [f"{id} in {what}" for id, what in sorted(found.items()) if id not in accepted]
    return wrong + [f"{id} is accepted in deny.toml but concerns nothing: remove it" for id in accepted if id not in found]


def database():
    """A git repository with the advisories."""
    given = os.environ.get("IRONCLAD_ADVISORY_DB")
    if given:
        return given
    folder = os.path.join(os.environ["WORK"], "advisory-db")
    command = ["git", "clone", "--quiet", "--bare", "--depth", "1", ADVISORIES, folder]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Skipped(f"{ADVISORIES} can't be cloned within {SECONDS} s") from None
    if done.returncode:
        raise Skipped(f"{ADVISORIES} can't be cloned: {done.stderr.strip().splitlines()[-1]}")
    return folder


def matches(repository, versions):
    def git(*words):
        return subprocess.run(["git", f"--git-dir={repository}", *words], capture_output=True, text=True, check=True).stdout

    for path in git("ls-tree", "-r", "--name-only", "HEAD", "crates").splitlines():
        name = path.split("/")[1]
        front = re.search(r"```toml\n(.*?)```", git("show", f"HEAD:{path}"), re.S) if name in versions else None
        if not front:
            continue
        record = tomllib.loads(front[1])
        ranges = record.get("versions", {})
        safe = ranges.get("patched", []) + ranges.get("unaffected", [])
        hit = [v for v in versions[name] if not any(satisfies(v, requirement) for requirement in safe)]
        if hit and not record["advisory"].get("withdrawn"):
            yield record["advisory"]["id"], f"{name} {' '.join(hit)}"


def numbers(version):
    return tuple(int(part or 0) for part in re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", version).groups())


def satisfies(version, requirement):
    """Returns whether a version is in a range such as `>= 1.2, < 2`; a bare version and ^ match compatible versions."""
    have = numbers(version)
    for part in requirement.split(","):
        sign, wanted = re.match(r"\s*(>=|<=|>|<|=|\^|~)?\s*(\S+)", part).groups()
        low = numbers(wanted)
        first = next((i for i, n in enumerate(low) if n), 2) if sign in ("^", None) else 1
        high = (*low[:first], low[first] + 1, 0, 0)[:3]
        holds = {">=": have >= low, "<=": have <= low, ">": have > low, "<": have < low, "=": have == low}
        if not holds.get(sign, low <= have < high):
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
