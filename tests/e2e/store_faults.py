#!/usr/bin/env python3
"""Real kvstore processes under real faults: kill -9 again and again, SIGSTOP, a full disk, a partition in network namespaces.

After each fault: everything that was acknowledged is there, and no linearizable read is older than a write that was
acknowledged before it began. The last two need root.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Skip, check, main, shell, until  # noqa: E402
from members import Context, Member, cluster, end, free_port  # noqa: E402

KEYS = 20


class Work(threading.Thread):
    """Writes growing numbers to keys of its own, and checks that no read is older than what was acknowledged."""

    def __init__(self, number, members):
        super().__init__(daemon=True)
        self.number, self.members, self.over, self.wrong = number, members, False, None
        self.acknowledged, self.tried, self.count = {}, {}, 0

    def run(self):
        rng = random.Random(self.number)
        while not self.over and not self.wrong:
            key, member = f"w{self.number}-{rng.randrange(KEYS)}", rng.choice(self.members)
            try:
                if rng.random() < 0.6:
                    self.count += 1
                    self.tried[key] = self.count
                    if member.put(key, str(self.count)):
                        self.acknowledged[key] = self.count
                else:
                    self.look(key, member.get(key))
            except subprocess.TimeoutExpired:
                pass

    def look(self, key, value):
        at_least, at_most = self.acknowledged.get(key, 0), self.tried.get(key, 0)
        if value is not None and not at_least <= int(value or 0) <= at_most:
            self.wrong = f"{key} is {value!r}, acknowledged was {at_least}, written at most {at_most}"

    def end(self):
        self.over = True
        self.join(30)
        for key in self.acknowledged:
            self.look(key, until(lambda: self.members[0].get(key), 20, 0.2, f"{key} can be read"))
        assert not self.wrong, self.wrong
        assert len(self.acknowledged) > 3, "hardly anything was written"


@check("faults/kill-again-and-again", deadline=60)
def kill(c):
    members = cluster(c, ["a"])
    try:
        work = [Work(number, members) for number in range(3)]
        for worker in work:
            worker.start()
        for _ in range(8):
            time.sleep(random.uniform(0.3, 1.2))
            members[0].kill()
            members[0].start()
        for worker in work:
            worker.end()
    finally:
        end(members)


@check("faults/leader-stopped", deadline=60)
def stopped(c):
    members = cluster(c, ["a", "b", "c"])
    try:
        for round in range(3):
            leader = until(lambda: next((m for m in members if m.leads()), None), 20)
            others = [member for member in members if member is not leader]
            assert leader.put("x", f"old{round}")
            leader.process.send_signal(signal.SIGSTOP)
            until(lambda: others[round % 2].put("x", f"new{round}"), 20, 0.1, "the others go on")
            leader.process.send_signal(signal.SIGCONT)
            # It may refuse; it may not answer from the past.
            assert leader.get("x") in (None, f"new{round}"), "a stale read"
            assert until(lambda: leader.get("x"), 20) == f"new{round}"
    finally:
        end(members)


@check("faults/full-disk", deadline=60)
def full(c):
    if os.geteuid() != 0:
        raise Skip("mounting a small disk needs root")
    place = c.folder()
    shell(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", place], check=True)
    ports = (free_port(), free_port())
    member = Member(c, "a", place, "127.0.0.1", f"a=http://127.0.0.1:{ports[1]}", ports)
    try:
        member.start()
        acknowledged = []
        value = "v" * 100_000
        for number in range(600):
            if member.process.poll() is not None or not member.put(f"big{number}", f"{number}{value}"):
                break
            acknowledged.append(number)
        assert 10 < len(acknowledged) < 599, f"{len(acknowledged)} writes fit"
        member.kill()
        shell(["mount", "-o", "remount,size=400m", place], check=True)
        member.start()
        for number in acknowledged:
            found = member.get(f"big{number}")
            assert found == f"{number}{value}", f"big{number} was acknowledged and is {found[:20]!r}"
        assert member.put("afterwards", "x")
    finally:
        end([member])
        shell(["umount", "-l", place])


class Namespaces:
    """Three network namespaces on a bridge of their own."""

    def __init__(self):
        self.tag, self.hosts = f"kvf{os.getpid() % 10_000}", ["10.213.7.1", "10.213.7.2", "10.213.7.3"]
        self.names = [f"{self.tag}-{at}" for at in range(3)]

    def __enter__(self):
        shell(["ip", "link", "add", self.tag, "type", "bridge"], check=True)
        shell(["ip", "link", "set", self.tag, "up"], check=True)
        for name, host in zip(self.names, self.hosts):
            shell(["ip", "netns", "add", name], check=True)
            shell(["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name], check=True)
            shell(["ip", "link", "set", name, "master", self.tag, "up"], check=True)
            inside = ["ip", "netns", "exec", name]
            shell([*inside, "ip", "addr", "add", f"{host}/24", "dev", "eth0"], check=True)
            for device in ("eth0", "lo"):
                shell([*inside, "ip", "link", "set", device, "up"], check=True)
        return self

    def __exit__(self, *_):
        for name in self.names:
            shell(["ip", "netns", "del", name])
        shell(["ip", "link", "del", self.tag])

    def join(self, at, yes):
        shell(["ip", "link", "set", self.names[at], "up" if yes else "down"], check=True)


@check("faults/partition", deadline=90)
def partition(c):
    if os.geteuid() != 0:
        raise Skip("network namespaces need root")
    with Namespaces() as net:
        insides = [["ip", "netns", "exec", name] for name in net.names]
        members = cluster(c, ["a", "b", "c"], net.hosts, insides)
        try:
            work = [Work(number, members) for number in range(3)]
            for worker in work:
                worker.start()
            for round in range(2):
                leader = until(lambda: next((m for m in members if m.leads()), None), 20)
                others = [member for member in members if member is not leader]
                until(lambda: leader.put("x", f"old{round}"), 20)
                net.join(members.index(leader), False)
                until(lambda: others[0].put("x", f"new{round}"), 20, 0.1, "the majority goes on")
                assert leader.get("x", seconds=2) is None, "a leader without its followers answered"
                net.join(members.index(leader), True)
                assert until(lambda: leader.get("x"), 20) == f"new{round}"
            for worker in work:
                worker.end()
        finally:
            end(members)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin-dir", required=True, help="where kvstore is")
    parser.add_argument("--work", required=True, help="a folder for data; emptied first")
    parser.add_argument("only", nargs="*")
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    os.makedirs(given.work)
    sys.exit(main(Context(given), given.only))
