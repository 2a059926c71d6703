#!/usr/bin/env python3
"""Processor time of the gateway per request, beside nginx and HAProxy of the distribution, with the same load and endpoint.

    gateway.py --bin DIR --json FILE [--quick] [--around COMMAND]

wrk sends requests over 32 connections to a proxy, which forwards them over kept connections to nginx on another address. What
counts is the processor time of the proxy's processes: requests per second depend on what else runs. --around is a command that
runs each measurement, for instance to stop other work meanwhile.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from alone import free_port, running, start  # noqa: E402
from checks import Kubectl, shell, until  # noqa: E402
from figures import table, usage, write  # noqa: E402

# wrk sends the URL's host as the name of the TLS connection, and must find an address for it.
HOST = "localhost"
LOADS = {"plain": ("http", ()), "TLS": ("https", ()), "TLS, a connection each": ("https", ("-H", "Connection: close"))}
NGINX_HEAD = "daemon off; worker_processes {workers}; pid {work}/{name}.pid; error_log {work}/{name}.log; events {{ worker_connections 4096; }}\n"
BACKEND = NGINX_HEAD + """http {{ access_log off; keepalive_requests 1000000000; server {{ listen {address}:{port};
  location / {{ default_type text/plain; return 200 "{body}"; }} }} }}"""
NGINX = NGINX_HEAD + """http {{ access_log off; keepalive_requests 1000000000;
  upstream pods {{ server {address}:{port}; keepalive 64; keepalive_requests 1000000000; }}
  server {{ listen 127.0.0.1:{http}; listen 127.0.0.1:{https} ssl; ssl_certificate {work}/tls.crt; ssl_certificate_key {work}/tls.key;
    server_name {host}; location / {{ proxy_pass http://pods; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme; }} }} }}"""
HAPROXY = """global
  nbthread {workers}
defaults
  mode http
  timeout connect 3s
  timeout client 60s
  timeout server 60s
  option forwardfor
  http-reuse always
frontend f
  bind 127.0.0.1:{http}
  bind 127.0.0.1:{https} ssl crt {work}/tls.pem alpn h2,http/1.1
  http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}
  default_backend pods
backend pods
  server s {address}:{port} pool-max-conn 64
"""


def own_address():
    """Returns an address that is not on loopback, where the gateway connects to no endpoint."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("192.0.2.1", 9))
        return s.getsockname()[0]


def add_usage(pid):
    """Returns RSS in MB and CPU seconds of a process and its children."""
    memory, seconds, _ = usage(pid)
    for child in shell(["pgrep", "-P", str(pid)]).stdout.split():
        of_child = add_usage(int(child))
        memory, seconds = memory + of_child[0], seconds + of_child[1]
    return memory, seconds


class Bench:
    def __init__(self, options, alone):
        self.options, self.alone = options, alone
        self.address = own_address()
        self.values = {"work": alone.folder, "host": HOST, "workers": os.cpu_count(), "address": self.address, "port": free_port(),
                       "body": "x" * 1024}
        made = shell(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                      "-subj", "/CN=bench", "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", "tls.key", "-out", "tls.crt"], cwd=alone.folder)
        assert made.returncode == 0, made.stderr
        shell("cat tls.crt tls.key >tls.pem", cwd=alone.folder)

    def configure(self, name, template, **more):
        file = os.path.join(self.alone.folder, f"{name}.conf")
        with open(file, "w", encoding="utf-8") as f:
            f.write(template.format(name=name, **self.values, **more))
        return file

    def start_backend(self):
        return start(self.alone.folder, "backend", "nginx", "-c", self.configure("backend", BACKEND))

    def start_nginx(self, ports):
        return start(self.alone.folder, "nginx", "nginx", "-c", self.configure("nginx", NGINX, **ports))

    def start_haproxy(self, ports):
        return start(self.alone.folder, "haproxy", "haproxy", "-db", "-f", self.configure("haproxy", HAPROXY, **ports))

    def start_gateway(self, ports):
        return start(
            self.alone.folder, "gateway", os.path.join(self.options.bin, "ironclad-gateway"), f"--kubeconfig={self.alone.kubeconfig}",
            f"--http-listen=127.0.0.1:{ports['http']}", f"--https-listen=127.0.0.1:{ports['https']}", "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}", f"--endpoint-range={self.address}/32", "--shutdown-delay=0s", "--drain-timeout=1s",
            "--leader-elect=false")

    def create_objects(self):
        """Creates what the gateway needs: a Service with a slice, an Ingress with a certificate."""
        k = Kubectl(self.alone.kubeconfig)
        for item in [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ironclad-gateway"}},
            {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "ironclad"}, "spec": {"controller": "ironclad/gateway"}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bench"}, "spec": {"ports": [{"name": "web", "port": 80}]}},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
             "metadata": {"name": "bench", "labels": {"kubernetes.io/service-name": "bench"}},
             "ports": [{"name": "web", "port": self.values["port"]}], "endpoints": [{"addresses": [self.address]}]},
            {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "bench"}, "spec": {
                "ingressClassName": "ironclad", "tls": [{"hosts": [HOST], "secretName": "bench"}],
                "rules": [{"host": HOST, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {
                    "service": {"name": "bench", "port": {"number": 80}}}}]}}]}},
        ]:
            k("apply", "-f", "-", stdin=json.dumps(item))
        k("create", "secret", "tls", "bench", f"--cert={self.alone.folder}/tls.crt", f"--key={self.alone.folder}/tls.key")

    def load(self, url, seconds, *words):
        """Sends requests and returns how many were answered."""
        command = [*shlex.split(self.options.around), "wrk", "-t1", "-c32", f"-d{seconds}s", *words, url]
        done = shell(command, timeout=seconds + 600)
        found = re.search(r"(\d+) requests in", done.stdout)
        assert found and "Non-2xx" not in done.stdout, done.stdout + done.stderr
        return int(found[1])

    def measure(self, start_proxy):
        """Returns microseconds of processor time per request of each load, and the memory in MB after all."""
        ports = {scheme: free_port() for scheme in ("http", "https")}
        process = start_proxy(ports)
        seconds, figures = (2 if self.options.quick else 4), {}
        try:
            for name, (scheme, words) in LOADS.items():
                url = f"{scheme}://{HOST}:{ports[scheme]}/"
                ready = ["curl", "-sf", "--cacert", f"{self.alone.folder}/tls.crt", "-o", os.devnull, url]
                until(lambda ready=ready: shell(ready).returncode == 0, 30, what=f"an answer at {url}")
                self.load(url, 1, *words)
                samples = []
                for _ in range(1 if self.options.quick else 3):
                    _, before = add_usage(process.pid)
                    requests = self.load(url, seconds, *words)
                    memory, after = add_usage(process.pid)
                    samples.append((after - before) / requests * 1e6)
                figures[name] = sorted(samples)[len(samples) // 2]
            figures["memory"] = memory
        finally:
            stop(process)
        return figures


def stop(process):
    process.terminate()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--around", default="")
    options = parser.parse_args()
    missing = [program for program in ("nginx", "haproxy", "wrk", "openssl", "curl", "kubectl") if not shutil.which(program)]
    if missing:
        sys.exit(f"gateway.py: not installed: {', '.join(missing)}: apt-get install nginx-light haproxy wrk openssl curl")
    with running(f"{options.bin}/kube-apiserver", f"{options.bin}/kvstore") as alone:
        bench = Bench(options, alone)
        bench.create_objects()
        backend = bench.start_backend()
        try:
            figures = {name: bench.measure(proxy) for name, proxy in [
                ("ironclad-gateway", bench.start_gateway), ("nginx", bench.start_nginx), ("HAProxy", bench.start_haproxy)]}
        finally:
            stop(backend)
    table(["processor time of a request, us", *LOADS, "memory, MB"],
          [[name, *(f"{value:.1f}" for value in found.values())] for name, found in figures.items()])
    write(options, figures)


if __name__ == "__main__":
    main()
