"""A full disk and a clock that jumps on one machine of three: checks of the area ha, which ha.py runs."""
import os
import shutil
import time

from checks import check, until
from control_plane import CONTROL, Client, conditions, store_leader
from faults import Clock, SmallDisk

NEEDED = ("ha/worker-joins-and-reaches-all-servers", "ha/pods-of-two-workers-serve-a-service")
HOUR = 3600


def wait_until_whole(c, victim, through):
    until(lambda: all(part["ready"] for part in c[victim].components()), 90, 1)
    until(lambda: c.kubectl(victim).run("get", "--raw", "/readyz", timeout=5), 60, 0.5)
    until(lambda: set(c.members(through)) == set(CONTROL), 30)
    until(lambda: all(conditions(c.kubectl(through), name)[0]["Ready"] == "True" for name in (*CONTROL, "w1")), 60, 1)


def write_under(c, victim, what, break_it, repair):
    """Writes while one machine has a fault, through its API server first, and checks that the others go on."""
    through = next(name for name in CONTROL if name != victim)
    client = Client(c, victim)
    client.start()
    until(lambda: len(client.acknowledged) > 20, 30)
    began, written = time.monotonic(), len(client.acknowledged)
    break_it()
    until(lambda: client.wrong or len(client.acknowledged) > written + 1, 40, 0.02)
    again = time.monotonic() - began
    # Time enough for the Leases of leaders on this machine to end.
    until(lambda: client.wrong or time.monotonic() - began > 20, 30)
    assert store_leader(c, through)
    for name in CONTROL:
        if name != victim:
            c.kubectl(name).run("create", "configmap", f"during-{name}")
            c.kubectl(name).run("delete", "configmap", f"during-{name}")
    during = len(client.acknowledged) - written
    assert during > 20, f"only {during} writes during the fault"
    repair()
    wait_until_whole(c, victim, through)
    longest = client.finish(c)
    served = f", {c.traffic.finish(c.kubectl(through), 100)} requests through the Service" if c.traffic else ""
    print(f"      {what} {victim}: writes again {again:.1f} s, longest write {longest:.1f} s of {len(client.acknowledged)}{served}")


@check("ha/survives-full-disk-of-cp3", deadline=240, needs=NEEDED)
def full_disk(c):
    """The disk of the store is filled to the last byte."""
    machine, store = c["cp3"], os.path.join(c["cp3"].folder, "store")
    machine.okay("down")
    os.rename(store, store + ".large")
    disk = SmallDisk(store, "160m")
    try:
        shutil.copytree(store + ".large", store, dirs_exist_ok=True)
        machine.okay("up")
        wait_until_whole(c, "cp3", "cp1")
        write_under(c, "cp3", "full disk", disk.fill, disk.empty)
        machine.okay("down")
        shutil.rmtree(store + ".large")
        shutil.copytree(store, store + ".large")
    finally:
        disk.end()
        os.rmdir(store)
        os.rename(store + ".large", store)
    machine.okay("up")
    wait_until_whole(c, "cp3", "cp1")


@check("ha/survives-clock-of-cp2", deadline=240, needs=NEEDED)
def clock(c):
    """The wall clock of a machine jumps forward by an hour, and back."""
    machine, jumping = c["cp2"], Clock(os.path.join(c.work, "clock"))
    machine.okay("down")
    machine.prefix = jumping.prefix
    machine.okay("up")
    wait_until_whole(c, "cp2", "cp1")
    write_under(c, "cp2", "clock", lambda: jumping.set(HOUR), lambda: jumping.set(0))
    machine.okay("down")
    machine.prefix = []
    machine.okay("up")
    wait_until_whole(c, "cp2", "cp1")
