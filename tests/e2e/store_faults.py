#!/usr/bin/env python3
"""Real kvstore processes under real faults: kill -9 again and again, SIGSTOP, a full disk, a partition in network namespaces,
clocks that jump, and all of them at once.

After each fault: everything that was acknowledged is there, and no linearizable read is older than a write that was
acknowledged before it began. Disks, partitions and all at once need root.

    store_faults.py --bin-dir DIR --work DIR [--operations N --seconds N --seed N] [ONLY ...]
"""
import argparse
import datetime
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Skip, check, main, shell, until  # noqa: E402
from faults import Clock, Namespaces, SmallDisk  # noqa: E402
from members import Context, Member, cluster, end, find_leader, free_port  # noqa: E402

KEYS = 20


class Work(threading.Thread):
    """Writes growing numbers to its own keys, and checks that no read is older than the last acknowledged write."""

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
            leader = find_leader(members)
            others = [member for member in members if member is not leader]
            until(lambda: leader.put("x", f"old{round}"), what="a write through the leader")
            leader.process.send_signal(signal.SIGSTOP)
            until(lambda: others[round % 2].put("x", f"new{round}"), 20, 0.1, "the others go on")
            leader.process.send_signal(signal.SIGCONT)
            # It may return an error, but no stale data.
            assert leader.get("x") in (None, f"new{round}"), "a stale read"
            assert until(lambda: leader.get("x"), 20) == f"new{round}"
    finally:
        end(members)


class Writer(threading.Thread):
    """Writes through one member without a break. What the member does not answer within 15 s counts as lost."""

    def __init__(self, number, member):
        super().__init__(daemon=True)
        self.key, self.member, self.over, self.answered, self.lost = f"writer{number}", member, False, 0, []

    def run(self):
        while not self.over:
            done = self.member.etcdctl("put", self.key, str(self.answered), seconds=15)
            if done.returncode == 0:
                self.answered += 1
            else:
                self.lost.append(done.stderr)


@check("faults/paused-follower-answers-its-clients", deadline=90)
def paused(c):
    """A snapshot replaces the state that would answer a waiting request. A member that was away for a moment needs none."""
    members = cluster(c, ["a", "b", "c"], more=("--snapshot-count=1", "--snapshot-catchup-entries=1"))
    try:
        leader = find_leader(members)
        follower, third = [m for m in members if m is not leader]
        writers = [Writer(number, member) for number, member in enumerate([follower] * 3 + [third])]
        for writer in writers:
            writer.start()
        for _ in range(10):
            time.sleep(0.2)
            follower.process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            follower.process.send_signal(signal.SIGCONT)
        for writer in writers:
            writer.over = True
            writer.join(40)
        assert not any(writer.lost for writer in writers), [writer.lost for writer in writers]
        assert all(writer.answered > 5 for writer in writers), [writer.answered for writer in writers]
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


@check("faults/partition", deadline=90)
def partition(c):
    if os.geteuid() != 0:
        raise Skip("network namespaces need root")
    with Namespaces() as net:
        members = cluster(c, ["a", "b", "c"], net.hosts, [net.inside(name) for name in net.names])
        try:
            work = [Work(number, members) for number in range(3)]
            for worker in work:
                worker.start()
            for round in range(2):
                leader = find_leader(members)
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


@check("faults/clock-jump", deadline=60)
def clock_jump(c):
    folder = c.folder()
    clock = Clock(os.path.join(folder, "clock"))
    flags = ["--auto-compaction-retention=1h", "--warning-unary-request-duration=1ns"]
    member = cluster(c, ["a"], more=flags, unders=[clock.prefix], folder=folder)[0]
    watch = None
    try:
        lease = member.etcdctl("lease", "grant", "300").stdout.split()[1]
        begin = time.monotonic()
        assert member.etcdctl("put", "leased", "x", f"--lease={lease}").returncode == 0
        for words in (["user", "add", "root:pw"], ["user", "grant-role", "root", "root"], ["auth", "enable"]):
            done = member.etcdctl(*words, seconds=15)
            assert done.returncode == 0, done.stderr
        # Its token was issued before the clock was set.
        watch = subprocess.Popen(["etcdctl", f"--endpoints={member.endpoint}", "--user=root:pw", "watch", "told"], text=True,
                                 stdout=subprocess.PIPE, env={**os.environ, "ETCDCTL_API": "3"})
        root = member.etcdctl("put", "first", "1", "--user=root:pw", "-w", "fields", seconds=15).stdout
        first = next(line.split(" : ")[1] for line in root.splitlines() if "Revision" in line)
        for hours in (1, -1, 0):
            clock.set(hours * 3600)
            until(lambda: abs(ahead(member) - hours * 3600) < 60, 30, 0.3, "the clock is taken")
            told = member.etcdctl("lease", "timetolive", lease, "--user=root:pw", seconds=15).stdout
            left = int(told.split("remaining(")[1].split("s)")[0])
            spent = time.monotonic() - begin
            assert abs(left - (300 - spent)) < 15, f"{left} s are left of a lease of 300 s after {spent:.0f} s, with {hours} h"
            for words in (["put", "told", f"hours{hours}"], ["get", "leased"], ["get", "first", f"--rev={first}"]):
                done = member.etcdctl(*words, "--user=root:pw", seconds=15)
                assert done.returncode == 0 and done.stdout.strip(), f"{words} with {hours} h: {done.stdout}{done.stderr}"
            seen = [watch.stdout.readline().strip() for _ in range(3)]
            assert seen[2] == f"hours{hours}", seen
    finally:
        if watch:
            watch.kill()
            watch.wait()
        end([member])


def ahead(member):
    """Returns the difference between the log's time and this clock in seconds. Every request is logged."""
    member.get("nothing")
    with open(member.log) as log:
        last = re.sub(r"\x1b\[[0-9;]*m", "", log.readlines()[-1]).split()[0].split(".")[0]
    return datetime.datetime.fromisoformat(last + "+00:00").timestamp() - time.time()


class Trouble:
    """Faults of all kinds, one member at a time; each ends with all members serving."""

    KINDS = ["kill", "stop", "without_peers", "without_anybody", "full_disk", "clock"]

    def __init__(self, rng, members, net, disks, clocks):
        self.rng, self.members, self.net, self.disks, self.clocks = rng, members, net, disks, clocks
        self.done, self.next = dict.fromkeys(self.KINDS, 0), []

    def one(self):
        """Returns the next fault, in half of the cases for the leader. All kinds occur before one is repeated."""
        self.next = self.next or self.rng.sample(self.KINDS, len(self.KINDS))
        kind, at = self.next.pop(), self.rng.randrange(len(self.members))
        if self.rng.random() < 0.5:
            at = next((n for n, member in enumerate(self.members) if member.leads()), at)
        getattr(self, kind)(at)
        for member in self.members:
            assert member.process.poll() is None, f"{member.name} ended by itself after {kind} of {self.members[at].name}"
            until(lambda: member.get("nothing") is not None, 40, 0.1, f"{member.name} serves after {kind} of {self.members[at].name}")
        self.done[kind] += 1

    def wait(self, most):
        time.sleep(self.rng.uniform(0.2, most))

    def kill(self, at):
        self.members[at].kill()
        self.wait(2)
        self.members[at].start()

    def stop(self, at):
        self.members[at].process.send_signal(signal.SIGSTOP)
        self.wait(3)
        self.members[at].process.send_signal(signal.SIGCONT)

    def without_peers(self, at):
        self.net.peers(at, False)
        self.wait(3)
        self.net.peers(at, True)

    def without_anybody(self, at):
        self.net.join(at, False)
        self.wait(3)
        self.net.join(at, True)

    def full_disk(self, at):
        """Writes through other members until this one reports that its disk is full."""
        member, other = self.members[at], self.members[at - 1]
        self.disks[at].fill()
        for number in range(40):
            if member.process.poll() is not None:
                break
            other.etcdctl("put", f"large/{number % 4}", text="v" * 1_000_000)
        assert until(lambda: member.process.poll() is not None, 30), f"{member.name} goes on with a full disk"
        assert "No space left on device" in last_line(member), last_line(member)
        self.disks[at].empty()
        self.members[at].start()

    def clock(self, at):
        self.clocks[at].set(self.rng.choice([-3600, 0, 3600]))
        self.wait(Clock.LATE)


def last_line(member):
    with open(member.log) as log:
        return log.readlines()[-1]


# The load aborts after a minute without responses.
@check("faults/everything-at-once", deadline=3600)
def everything(c):
    if os.geteuid() != 0:
        raise Skip("network namespaces and small disks need root")
    print(f"      seed {c.seed}", flush=True)
    folder, names = c.folder(), ["a", "b", "c"]
    disks, clocks = [], [Clock(os.path.join(folder, f"clock-{name}")) for name in names]
    # Makes segments, snapshots for disconnected members and compactions frequent.
    more = ["--snapshot-count=2000", "--auto-compaction-mode=revision", "--auto-compaction-retention=1000"]
    with Namespaces() as net:
        members = []
        try:
            disks.extend(SmallDisk(os.path.join(folder, name), "400m") for name in names)
            insides, unders = [net.inside(name) for name in net.names], [clock.prefix for clock in clocks]
            members = cluster(c, names, net.hosts, insides, more, unders, folder)
            trouble = Trouble(random.Random(c.seed), members, net, disks, clocks)
            under_load(c, members, trouble)
        finally:
            try:
                end(members)
            finally:
                for disk in disks:
                    disk.end()


def under_load(c, members, trouble):
    """Injects faults until the load has finished; returns the load's result."""
    words = [os.path.join(c.bin_dir, "store-bench"), "--verify", c.operations, "--rate", c.operations // c.seconds, "--seed", c.seed,
             "--endpoints", ",".join(member.endpoint for member in members)]
    path = os.path.join(c.work, "load.log")
    with open(path, "w") as log:
        load = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
    try:
        # On a slow machine the load may finish before each kind of fault has occurred.
        while load.poll() is None or not all(trouble.done.values()):
            trouble.one()
    finally:
        load.kill()
        load.wait()
        with open(path) as log:
            told = log.read()
        faults = ", ".join(f"{count} {kind}" for kind, count in trouble.done.items())
        print(f"      {told.strip().splitlines()[-1]}\n      faults: {faults}", flush=True)
    assert load.returncode == 0, told[-900:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin-dir", required=True, help="where kvstore is")
    parser.add_argument("--work", required=True, help="a folder for data; emptied first")
    parser.add_argument("--operations", type=int, default=20_000, help="of faults/everything-at-once")
    parser.add_argument("--seconds", type=int, default=40, help="that they take at least")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of its faults and its load")
    parser.add_argument("only", nargs="*")
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    os.makedirs(given.work)
    context = Context(given)
    context.operations, context.seconds, context.seed = given.operations, given.seconds, given.seed
    sys.exit(main(context, given.only))
