#!/usr/bin/env python3
"""Operation of kvstore: slow requests in the log, metrics, checking and repairing a member.

    store_operations.py --bin-dir DIR --work DIR [--only WORD ...]
"""
import argparse
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import Skip, check, main, until  # noqa: E402
from forged import forge  # noqa: E402
from members import Context, Member, cluster, end, find_leader, free_port, single  # noqa: E402
from refused import no_panic  # noqa: E402


def metrics(member):
    """Returns the page as a dictionary: name with labels, value."""
    with urllib.request.urlopen(f"http://{member.endpoint}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and not line.startswith("#")}


def logged(member):
    with open(member.log) as file:
        return re.sub(r"\x1b\[[0-9;]*m", "", file.read())


@check("operations/compacted-space-is-released", deadline=60)
def space(c):
    member = single(c)
    size = "etcd_mvcc_db_total_size_in_bytes"
    try:
        for _ in range(60):
            assert member.etcdctl("put", "large", text="v" * 1_000_000).returncode == 0
        done = member.etcdctl("get", "large", "-w", "fields")
        revision = next(line.split(" : ")[1] for line in done.stdout.splitlines() if '"Revision"' in line)
        # Wait until everything is in the engine's files.
        assert member.etcdctl("defrag", seconds=30).returncode == 0
        before = metrics(member)[size]
        assert member.etcdctl("compact", revision, "--physical", seconds=30).returncode == 0
        assert member.etcdctl("defrag", seconds=30).returncode == 0
        after = metrics(member)[size]
        assert after < before - 50_000_000, f"{before:.0f} bytes became {after:.0f}"
        assert len(member.get("large")) == 1_000_000
    finally:
        end([member])


@check("operations/slow-requests-are-logged-with-their-phases", deadline=60)
def slow(c):
    member = single(c, "--warning-unary-request-duration=1ns", "--warning-apply-duration=1ns")
    try:
        assert member.put("logged/key", "a-secret-value")
        assert member.get("logged/key") == "a-secret-value"

        def find_lines():
            return [line for line in logged(member).splitlines() if "a request took long" in line and "logged/key" in line]
        # The log may be written after the response was sent.
        until(lambda: len(find_lines()) >= 2, what="both requests are logged")
        lines = find_lines()
        assert len(lines) == 2, lines
        put, get = lines
        for word in ("WARN", "/etcdserverpb.KV/Put", "of 14 bytes", "received ", "proposed ", "committed ", "applied ", "answered "):
            assert word in put, (word, put)
        for word in ("/etcdserverpb.KV/Range", "with 1 of 1 keys", "answered "):
            assert word in get, (word, get)
        assert "a-secret-value" not in logged(member)
        assert metrics(member)["etcd_server_slow_apply_total"] > 0
    finally:
        end([member])


@check("operations/quick-requests-are-not-logged", deadline=60)
def quick(c):
    member = single(c, "--warning-unary-request-duration=1h", "--warning-apply-duration=1h")
    try:
        assert member.put("k", "v")
        assert "a request took long" not in logged(member)
        assert metrics(member)["etcd_server_slow_apply_total"] == 0
    finally:
        end([member])


@check("operations/metrics-have-etcds-names", deadline=90)
def names(c):
    members = cluster(c, ["a", "b", "c"])
    try:
        leader = find_leader(members)
        before = metrics(leader)
        assert leader.put("k", "v") and leader.get("k") == "v"
        assert leader.etcdctl("del", "k").returncode == 0
        after = metrics(leader)
        for name in ("put", "range", "delete"):
            name = f"etcd_mvcc_{name}_total"
            assert after[name] == before[name] + 1, (name, before[name], after[name])
        put = 'grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"'
        assert after[f"grpc_server_started_total{{{put}}}"] == 1
        assert after[f'grpc_server_handled_total{{grpc_code="OK",{put}}}'] == 1
        assert after[f"grpc_server_handling_seconds_count{{{put}}}"] == 1
        for name in ("peer_sent_bytes_total{To", "peer_received_bytes_total{From", "peer_round_trip_time_seconds_count{To"):
            found = [value for key, value in after.items() if key.startswith(f"etcd_network_{name}=")]
            assert len(found) == 2 and all(value > 0 for value in found), (name, found)
        assert after['etcd_cluster_version{cluster_version="3.6"}'] == 1
        assert after["process_max_fds"] >= after["process_open_fds"] > 0
        assert abs(after["process_start_time_seconds"] - time.time()) < 300
        for name in ("etcd_debugging_mvcc_slow_watcher_total", "etcd_debugging_mvcc_pending_events_total",
                     "etcd_server_read_indexes_failed_total"):
            assert after[name] == 0, (name, after[name])
        assert "etcd_server_heartbeat_send_failures_total" in after  # on a busy machine some are late
        assert after["etcd_mvcc_db_total_size_in_bytes"] != after["etcd_mvcc_db_total_size_in_use_in_bytes"]
        assert after["etcd_mvcc_db_total_size_in_bytes"] == after["kvstore_engine_disk_bytes"]
    finally:
        end(members)


@check("operations/late-heartbeats-and-failed-reads-are-counted", deadline=90)
def late(c):
    members = cluster(c, ["a", "b"])
    try:
        leader = find_leader(members)
        leader.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)  # six heartbeats, and less than an election
        leader.process.send_signal(signal.SIGCONT)
        until(lambda: metrics(leader)["etcd_server_heartbeat_send_failures_total"] > 0, 30)
        next(m for m in members if m is not leader).kill()

        def count_failed_read():
            assert leader.get("k", seconds=15) is None, "a read without a majority"
            counted = metrics(leader)
            return counted["etcd_server_slow_read_indexes_total"] > 0 and counted["etcd_server_read_indexes_failed_total"] > 0 and counted
        counted = until(count_failed_read, 40, 0.1, "a read fails without a majority")
        assert any(value > 0 for key, value in counted.items() if key.startswith("etcd_network_peer_sent_failures_total"))
    finally:
        end(members)


def kvstore(c, *words):
    return subprocess.run([os.path.join(c.bin_dir, "kvstore"), *words], capture_output=True, text=True, timeout=60)


def picture(folder):
    """Returns every file with its content and time, and every directory."""
    found = {}
    for place, folders, files in os.walk(folder):
        found.update({os.path.join(place, name): None for name in folders})
        for name in files:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                found[path] = (os.stat(path).st_mtime_ns, hashlib.sha256(file.read()).hexdigest())
    return found


def filled(c, count=50, *more):
    """Returns the data directory of a stopped member with keys."""
    member = single(c, *more)
    for number in range(count):
        assert member.put(f"key{number}", f"value number {number}")
    member.process.terminate()
    member.process.wait(60)
    return member, os.path.join(member.folder, "a")


def checked(c, folder):
    """Runs `kvstore check`, which must not change any file."""
    before = picture(folder)
    done = kvstore(c, "check", f"--data-dir={folder}", f"--work-dir={c.folder()}")
    assert picture(folder) == before, "the folder was changed"
    no_panic(done.stderr)
    return done


def flip(path, text):
    """Changes a byte in a file, in the middle of a text."""
    with open(path, "r+b") as file:
        at = file.read().rindex(text)
        file.seek(at + 1)
        file.write(bytes([text[1] ^ 0xff]))


@check("operations/check-of-a-good-folder", deadline=60)
def good(c):
    member, folder = filled(c)
    done = checked(c, folder)
    assert done.returncode == 0, done
    for word in ("identity: member", "log: ", "state: ", "revision 51", "50 keys", "1 members", "they belong together"):
        assert word in done.stdout, (word, done.stdout)
    member.start()
    during = kvstore(c, "check", f"--data-dir={folder}")
    member.kill()
    assert during.returncode == 1 and "in use" in during.stderr, during


@check("operations/check-of-damaged-folders", deadline=120)
def damaged(c):
    _, folder = filled(c)
    wal, state = os.path.join(folder, "member/wal"), os.path.join(folder, "member/state")
    aside = os.path.join(c.folder(), "aside")
    for part, remedy in ((wal, "snapshot restore"), (state, "start the member")):
        shutil.move(part, aside)
        done = checked(c, folder)
        assert done.returncode == 1 and part in done.stderr and remedy in done.stderr, done
        shutil.move(aside, part)
    assert checked(c, folder).returncode == 0
    log = max(os.path.join(wal, name) for name in os.listdir(wal) if name.endswith(".wal"))
    flip(log, b"value number 7")
    done = checked(c, folder)
    assert done.returncode == 1 and log in done.stderr and "log: DAMAGED" in done.stdout, done
    # If the log is damaged, the state is still checked.
    assert "state: at entry" in done.stdout, done.stdout
    fresh, other = filled(c, 1)
    shutil.rmtree(state)
    shutil.copytree(os.path.join(other, "member/state"), state)
    damage_state(os.path.join(other, "member/state"))
    done = checked(c, other)
    assert done.returncode == 1 and "state: DAMAGED" in done.stdout and "start the member" in done.stderr, done


def damage_state(folder):
    """Overwrites the engine's manifest of its files."""
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)
            if not name.endswith("lock"):
                with open(path, "r+b") as file:
                    file.write(b"\xff" * min(64, os.path.getsize(path)))


@check("operations/saved-snapshot-passes-bbolts-check", deadline=240)
def bbolt(c):
    if not shutil.which("go"):
        raise Skip("there is no Go toolchain")
    program, place = os.path.join(c.folder(), "bolt"), os.path.join(os.path.dirname(__file__), "..", "interop", "bolt")
    built = subprocess.run(["go", "build", "-o", program, "."], cwd=place, capture_output=True, text=True, timeout=180)
    if built.returncode != 0:
        raise Skip(f"bbolt could not be built: {built.stderr.splitlines()[-1:]}")
    member, saved = single(c), os.path.join(c.folder(), "saved.db")
    try:
        for number in range(300):
            assert member.put(f"key{number:04}", "x" * (number * 37 % 9000))
        for words in (("lease", "grant", "1000"), ("user", "add", "u:p"), ("role", "add", "r"), ("del", "key0003")):
            assert member.etcdctl(*words).returncode == 0, words
        done = member.etcdctl("snapshot", "save", saved, seconds=20)
        assert done.returncode == 0, done
    finally:
        end([member])
    checked = subprocess.run([program, saved], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked
    buckets = dict(line.split() for line in checked.stdout.splitlines())
    assert buckets["key"] == "301" and buckets["lease"] == "1" and buckets["authUsers"] == "1", buckets
    with open(saved, "r+b") as file:  # a page that leads nowhere
        file.seek(3 * 4096 + 8)
        file.write(b"\xff" * 8)
    assert subprocess.run([program, saved], capture_output=True, timeout=60).returncode != 0


@check("operations/members-restored-after-a-majority-is-lost", deadline=120)
def majority_lost(c):
    """Follows the operators' page: a snapshot of the survivor, and a new cluster from it."""
    members = cluster(c, ["a", "b", "c"])
    new, saved = [], os.path.join(c.folder(), "saved.db")
    try:
        for number in range(20):
            assert members[0].put(f"key{number}", f"value {number}")
        survivor = members[2]
        assert until(lambda: survivor.get("key19"), 20) == "value 19"
        for member in members[:2]:
            member.kill()
            shutil.rmtree(os.path.join(member.folder, member.name))
        until(lambda: not survivor.put("more", "x"), 30, 0.1, "writes are refused without a majority")
        done = survivor.etcdctl("snapshot", "save", saved, seconds=20)
        assert done.returncode == 0, done
        survivor.kill()
        ports = [(free_port(), free_port()) for _ in "abc"]
        listed = ",".join(f"{name}=http://127.0.0.1:{port[1]}" for name, port in zip("abc", ports))
        folder = c.folder()
        for name, port in zip("abc", ports):
            done = kvstore(c, "snapshot", "restore", saved, f"--name={name}", f"--data-dir={folder}/{name}",
                           f"--initial-cluster={listed}", "--initial-cluster-token=new",
                           f"--initial-advertise-peer-urls=http://127.0.0.1:{port[1]}", "--bump-revision=1000", "--mark-compacted")
            assert done.returncode == 0, done
            new.append(Member(c, name, folder, "127.0.0.1", listed, port, more=("--initial-cluster-token=new",)))
        for member in new:
            member.start(wait=False)
        for member in new:
            assert until(lambda: member.get("key7"), 30) == "value 7"
        assert new[1].put("afterwards", "x") and until(lambda: new[2].get("afterwards"), 30) == "x"
        fields = new[0].etcdctl("get", "key7", "-w", "fields").stdout
        assert int(re.search(r'"Revision" : (\d+)', fields).group(1)) > 1000, fields
    finally:
        end(members + new)


@check("operations/one-grows-to-three-and-back", deadline=150)
def grow(c):
    """Runs the commands of the operators' page."""
    ports = [(free_port(), free_port()) for _ in "abc"]
    urls = [f"http://127.0.0.1:{port[1]}" for port in ports]
    folder, members = c.folder(), []
    try:
        members.append(Member(c, "a", folder, "127.0.0.1", f"a={urls[0]}", ports[0]))
        members[0].start()
        assert members[0].put("before", "x")
        for at, name in ((1, "b"), (2, "c")):
            add = ("member", "add", name, f"--peer-urls={urls[at]}")
            # Rejected until the previously added member is reachable.
            until(lambda: members[0].etcdctl(*add, seconds=10).returncode == 0, 20, what="a member is added")
            listed = ",".join(f"{n}={url}" for n, url in zip("abc"[:at + 1], urls))
            members.append(Member(c, name, folder, "127.0.0.1", listed, ports[at], more=("--initial-cluster-state=existing",)))
            members[at].start()
            assert members[at].get("before") == "x" and until(lambda: members[at].put(f"with {name}", "y"), 30)
        ids = {m.name: re.search(r'"MemberID" : (\d+)', m.etcdctl("endpoint", "status", "-w", "fields").stdout).group(1) for m in members}
        leader = find_leader(members)
        done = leader.etcdctl("move-leader", f"{int(ids[members[0].name]):x}") if leader is not members[0] else None
        assert done is None or done.returncode == 0, done
        for at in (2, 1):
            until(lambda: members[0].etcdctl("member", "remove", f"{int(ids[members[at].name]):x}", seconds=10).returncode == 0, 30)
            assert members[at].process.wait(60) == 1 and "has been removed" in logged(members[at])
            assert until(lambda: members[0].put(f"without {members[at].name}", "z"), 30)
        assert members[0].get("with c") == "y" and len(members[0].etcdctl("member", "list").stdout.splitlines()) == 1
    finally:
        end(members)


def set_aside(folder):
    return [name for name in os.listdir(os.path.join(folder, "member")) if re.fullmatch(r"state-damaged-\d{8}T\d{6}Z", name)]


@check("operations/damaged-state-comes-back-from-the-log", deadline=90)
def from_the_log(c):
    member, folder = filled(c)
    damage_state(os.path.join(folder, "member/state"))
    member.start()
    try:
        assert member.get("key49") == "value number 49" and member.put("more", "x")
        assert len(set_aside(folder)) == 1 and "made again from the log" in logged(member)
        member.kill()
        member.start()
        assert member.get("key0") == "value number 0" and member.get("more") == "x" and len(set_aside(folder)) == 1
    finally:
        end([member])


@check("operations/damaged-state-without-a-source-is-rejected", deadline=90)
def from_nowhere(c):
    member, folder = filled(c, 160, "--snapshot-count=10", "--snapshot-catchup-entries=100")
    state = os.path.join(folder, "member/state")
    damage_state(state)
    before = picture(state)
    member.start(wait=False)
    assert member.process.wait(60) == 1
    last = logged(member).splitlines()[-1]
    assert "damaged" in last and "no other member" in last and "kvstore snapshot restore" in last, last
    assert picture(state) == before and not set_aside(folder)
    shutil.rmtree(state)
    member.start(wait=False)
    assert member.process.wait(60) == 1 and "behind the log" in logged(member).splitlines()[-1], logged(member)[-600:]


@check("operations/damaged-state-comes-back-from-the-others", deadline=120)
def from_the_others(c):
    members = cluster(c, ["a", "b", "c"], more=("--snapshot-count=10", "--snapshot-catchup-entries=100"))
    try:
        for number in range(160):
            assert members[0].put(f"key{number}", f"value number {number}")
        leader = find_leader(members)
        broken = next(m for m in members if m is not leader)
        folder = os.path.join(broken.folder, broken.name)
        until(lambda: broken.get("key159") == "value number 159", 20)
        broken.process.terminate()
        broken.process.wait(60)
        damage_state(os.path.join(folder, "member/state"))
        others = [m for m in members if m is not broken]
        assert others[0].put("meanwhile", "x")
        broken.start()
        assert until(lambda: broken.get("meanwhile"), 30) == "x" and broken.get("key0") == "value number 0"
        assert len(set_aside(folder)) == 1 and "made again from another member" in logged(broken)
        until(lambda: "the state is there again" in logged(broken))
        # It counts for the quorum again, so one of the others can be removed.
        others[0].kill()
        until(lambda: broken.put("afterwards", "y"), 30)
        assert broken.get("afterwards") == "y"
    finally:
        end(members)


@check("operations/one-survivor-goes-on-alone", deadline=150)
def alone(c):
    """Follows the operators' page for a cluster with a single surviving member."""
    members = cluster(c, ["a", "b", "c"])
    try:
        for number in range(20):
            assert members[0].put(f"key{number}", f"value {number}")
        survivor, peer = members[2], members[2].argv[6].split("=", 1)[1]
        assert until(lambda: survivor.get("key19"), 20) == "value 19"
        fields = survivor.etcdctl("endpoint", "status", "-w", "fields").stdout
        for member in members:
            member.kill()
        for member in members[:2]:
            shutil.rmtree(os.path.join(member.folder, member.name))
        survivor.argv.append("--force-new-cluster")
        for _ in range(3):  # interrupted, and given again
            survivor.start(wait=False)
            time.sleep(0.3)
            survivor.kill()
        survivor.start()
        assert [survivor.get(f"key{number}") for number in range(20)] == [f"value {number}" for number in range(20)]
        assert survivor.put("alone", "x")
        listed = survivor.etcdctl("member", "list").stdout.splitlines()
        assert len(listed) == 1 and "c" in listed[0].split(", ") and peer in listed[0], listed
        # The cluster id is unchanged.
        for name in ("ClusterID", "MemberID"):
            line = re.search(rf'"{name}" : \d+', fields).group(0)
            assert line in survivor.etcdctl("endpoint", "status", "-w", "fields").stdout, line
        assert "remove --force-new-cluster before the next start" in logged(survivor)
        survivor.kill()
        survivor.argv.remove("--force-new-cluster")
        survivor.start()
        ports = free_port(), free_port()
        url = f"http://127.0.0.1:{ports[1]}"
        assert until(lambda: survivor.etcdctl("member", "add", "d", f"--peer-urls={url}", seconds=10).returncode == 0, 20)
        new = Member(c, "d", survivor.folder, "127.0.0.1", f"c={peer},d={url}", ports, more=("--initial-cluster-state=existing",))
        members.append(new)
        new.start()
        assert new.get("key7") == "value 7" and until(lambda: new.put("together", "y"), 30) and survivor.get("together") == "y"
        assert len(survivor.etcdctl("member", "list").stdout.splitlines()) == 2
    finally:
        end(members)


def page(member, path):
    try:
        with urllib.request.urlopen(f"http://{member.endpoint}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def member_id(member):
    done = member.etcdctl("endpoint", "status", "-w", "fields")
    return int(re.search(r'"MemberID" : (\d+)', done.stdout).group(1))


def newest_log(folder):
    wal = os.path.join(folder, "member/wal")
    return max(os.path.join(wal, name) for name in os.listdir(wal) if name.endswith(".wal"))


@check("operations/a-member-with-other-data-is-named", deadline=180)
def corrupt(c):
    members = cluster(c, ["a", "b", "c"], more=("--experimental-corrupt-check-time=1s",))
    try:
        for number in range(20):
            assert members[0].put(f"key{number}", f"value number {number}")
        leader = find_leader(members)
        wrong = next(m for m in members if m is not leader)
        others = [m for m in members if m is not wrong]
        folder, number = os.path.join(wrong.folder, wrong.name), member_id(wrong)
        until(lambda: wrong.get("key19") == "value number 19", 20)
        time.sleep(2.5)  # two comparisons of members that agree
        assert "CORRUPT" not in others[0].etcdctl("alarm", "list").stdout
        wrong.process.terminate()
        wrong.process.wait(60)
        assert forge(newest_log(folder), b"value number 7", b"value number X") == 1
        shutil.rmtree(os.path.join(folder, "member/state"))
        wrong.start()
        until(lambda: "CORRUPT" in others[0].etcdctl("alarm", "list").stdout, 30, 0.2, "the alarm is raised")
        assert others[0].etcdctl("alarm", "list").stdout.split() == [f"memberID:{number}", "alarm:CORRUPT"]
        for words in (("put", "k", "v"), ("del", "key1"), ("compaction", "3"), ("lease", "grant", "60")):
            done = others[0].etcdctl(*words)
            assert done.returncode != 0 and "etcdserver: corrupt cluster" in done.stderr, done
        assert others[0].get("key7") == "value number 7"
        assert page(others[0], "/health")[0] == 503 and "ALARM CORRUPT" in page(others[0], "/health")[1]
        assert page(others[0], "/readyz")[0] == 503 and "[-]data_corruption failed" in page(others[0], "/readyz")[1]
        wrong.kill()
        wrong.argv.append("--experimental-initial-corrupt-check")
        wrong.start(wait=False)
        assert wrong.process.wait(90) == 1 and "found data inconsistency with peers" in logged(wrong), logged(wrong)[-600:]
        # As the message says; the alarm is removed with its member.
        assert others[0].etcdctl("member", "remove", f"{number:x}", seconds=20).returncode == 0
        assert until(lambda: others[0].put("k", "v"), 20)
        assert "CORRUPT" not in others[1].etcdctl("alarm", "list").stdout
    finally:
        end(members)


@check("operations/members-with-the-same-data-start-and-go-on", deadline=150)
def not_corrupt(c):
    members = cluster(c, ["a", "b", "c"], more=("--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true",
                                                "--compact-hash-check-time=1s", "--corrupt-check-time=1s"))
    try:
        for number in range(30):
            assert members[0].put(f"key{number % 5}", f"value {number}")
        assert members[0].etcdctl("compaction", "20").returncode == 0
        restarted = members[2]
        restarted.process.terminate()
        restarted.process.wait(60)
        assert members[0].put("meanwhile", "x")
        restarted.start()
        assert "the other members have the same data" in logged(restarted)
        assert until(lambda: restarted.get("meanwhile"), 30) == "x"

        def count_hashes():
            return sum(metrics(m)["etcd_mvcc_hash_rev_duration_seconds_count"] for m in members)
        before = count_hashes()
        until(lambda: count_hashes() > before + 6, 30, what="two comparisons of members that agree")
        assert members[0].put("afterwards", "x") and members[0].etcdctl("alarm", "list").stdout == ""
    finally:
        end(members)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args()
    given.work = os.path.abspath(given.work)
    os.makedirs(given.work, exist_ok=True)
    sys.exit(main(Context(given), given.only))
