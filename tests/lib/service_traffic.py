"""Traffic through a Service: a pod that sends requests, and a pod on each of two workers that answers them."""
import json

from checks import until

IMAGE = "ironclad.local/busybox:1"
SERVER = """mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\\necho\\nhostname\\n' >/tmp/www/cgi-bin/who
chmod +x /tmp/www/cgi-bin/who
exec httpd -f -p 8080 -h /tmp/www"""
# One line for each request: its number, the result and the pod that answered, or the error.
CALLER = """n=0
while :; do
  n=$((n + 1))
  if answer=$(wget -q -T 2 -O- "http://{address}/cgi-bin/who" 2>&1); then echo "$n ok $answer"; else echo "$n failed $(date +%T) $answer"; fi
  sleep 0.05
done"""


def pod(name, node, script, **more):
    container = {"name": "c", "image": IMAGE, "command": ["sh", "-c", script], **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name.split("-")[0]}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]}}


class ServiceTraffic:
    """Requests from a pod on the first worker to a Service with a pod on each worker."""

    def __init__(self, k, workers):
        self.servers = {f"server-{worker}" for worker in workers}
        probe = {"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"},
                   "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]}}
        items = [service, *(pod(f"server-{worker}", worker, SERVER, **probe) for worker in workers)]
        k("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        k("wait", "pod", *self.servers, "--for=condition=Ready", "--timeout=60s", timeout=70)
        address = k("get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")
        k("apply", "-f", "-", stdin=json.dumps(pod("caller", workers[0], CALLER.format(address=address))))
        until(lambda: self.servers == {line[2] for line in self.read(k) if line[1] == "ok"}, 60, what="answers of both pods")
        # The first requests may be earlier than the rules.
        self.number = self.last(k)

    @staticmethod
    def read(k, *options):
        """Returns number, result and further words of each request."""
        return [line.split(maxsplit=2) for line in k("logs", "caller", *options, timeout=60).splitlines()]

    def last(self, k):
        """Returns the number of the last request."""
        return int(self.read(k, "--tail=1")[0][0])

    def finish(self, k, least):
        """Returns how many requests there were since the last call. None failed, and both pods answered."""
        lines = [line for line in self.read(k) if int(line[0]) > self.number]
        failed = [line for line in lines if line[1] != "ok"]
        assert not failed, f"{len(failed)} of {len(lines)} requests through the Service failed: {failed[:3]}"
        assert len(lines) >= least, f"only {len(lines)} requests through the Service"
        assert {line[2] for line in lines} == self.servers, {line[2] for line in lines}
        self.number = int(lines[-1][0])
        return len(lines)

    def delete(self, k):
        k("delete", "service", "server", timeout=60)
        k("delete", "pod", "caller", *self.servers, "--timeout=60s", timeout=70)
