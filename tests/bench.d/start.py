#!/usr/bin/env python3
"""Time from `ironclad up` to node Ready, and from the API server's start to /readyz on an empty store."""
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from figures import arguments, components, table, write  # noqa: E402


def command_line(options):
    """Returns the arguments of the running API server."""
    pid = components(options)["kube-apiserver"]
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        return f.read().split(b"\0")[:-1]


def main():
    options = arguments()
    text = open(options.up_log).read()
    ready = re.search(r"ready after ([0-9.]+) s", text)
    figures = {"up_to_ready_s": float(ready.group(1)) if ready else None}
    figures["apiserver_ready_ms"] = fresh_server(options, command_line(options))
    table(("what", "measured"), [("`ironclad up` to node and DNS ready, first time, s", figures["up_to_ready_s"]),
                                 ("API server start to /readyz, empty store, ms", figures["apiserver_ready_ms"])])
    write(options, figures)


def fresh_server(options, command):
    """Starts a second API server with the cluster's own flags, on an empty prefix of the store and another port."""
    words = [w.decode() for w in command]
    keep = [w for w in words if not re.match(r"--(secure-port|etcd-prefix|port-file|advertise-port)(=|$)", w)]
    port_file = os.path.join(options.data_dir, "bench.port")
    keep += ["--secure-port=0", "--etcd-prefix=/bench-empty", f"--port-file={port_file}"]
    samples = []
    for turn in range(5):
        if os.path.exists(port_file):
            os.unlink(port_file)
        keep[-2] = f"--etcd-prefix=/bench-empty-{turn}"
        begun = time.monotonic()
        process = subprocess.Popen(keep, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while True:
                if os.path.exists(port_file):
                    port = open(port_file).read().strip()
                    pki = os.path.join(options.data_dir, "pki")
                    done = subprocess.run(["curl", "-s", "-m", "1", "--cacert", f"{pki}/ca.crt", "--cert", f"{pki}/admin.crt",
                                           "--key", f"{pki}/admin.key", f"https://127.0.0.1:{port}/readyz"], capture_output=True)
                    if done.stdout == b"ok":
                        samples.append((time.monotonic() - begun) * 1000)
                        break
                if time.monotonic() - begun > 20:
                    raise SystemExit("the API server was not ready within 20 s")
                time.sleep(0.005)
        finally:
            process.terminate()
            process.wait()
    return round(sorted(samples)[2])


main()
