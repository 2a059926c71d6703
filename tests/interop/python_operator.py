#!/usr/bin/env python3
"""An operator on kopf, and the Python client's dynamic client on its custom resource.

    python_operator.py KUBECONFIG
"""
import os
import subprocess
import sys
import threading

import kopf
import yaml
from kubernetes import client, config, dynamic
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
NAMESPACE, GROUP = "python-operator", "kopf.example.com"
DEFINITION = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crates.kopf.example.com}
spec:
  group: kopf.example.com
  scope: Namespaced
  names: {plural: crates, singular: crate, kind: Crate}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, default: 1}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
""")


def operate():
    """The handlers, in a process of their own: `kopf run python_operator.py`."""
    @kopf.on.create(GROUP, "v1", "crates", id="created")
    def created(spec, name, namespace, **_):
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"size": str(spec["size"])}}
        kopf.adopt(made)
        client.CoreV1Api().create_namespaced_config_map(namespace, made)
        return {"size": spec["size"]}

    @kopf.on.update(GROUP, "v1", "crates", field="spec.size")
    def updated(new, name, namespace, **_):
        client.CoreV1Api().patch_namespaced_config_map(name, namespace, {"data": {"size": str(new)}})

    @kopf.on.delete(GROUP, "v1", "crates")
    def deleted(name, namespace, **_):
        client.CoreV1Api().create_namespaced_config_map(namespace, {"metadata": {"name": f"{name}-deleted"}})


if __name__ != "__main__":
    config.load_kube_config(os.environ["KUBECONFIG"])
    operate()
else:
    from checks import check, main, until

    class Context:
        def __init__(self, kubeconfig):
            config.load_kube_config(kubeconfig)
            self.core = client.CoreV1Api()
            self.dynamic = dynamic.DynamicClient(client.ApiClient())
            self.kubeconfig, self.process = kubeconfig, None

        def crates(self):
            return self.dynamic.resources.get(api_version=f"{GROUP}/v1", kind="Crate")

        def size(self, name):
            return self.core.read_namespaced_config_map(name, NAMESPACE).data["size"]

    def has_status(c):
        """Checks that the handler's result is in the status."""
        status = c.crates().get(name="one", namespace=NAMESPACE).to_dict().get("status")
        assert status and status.get("created") == {"size": 1}, status
        return True

    def passes(request, *words):
        """Returns the response of a request, or None while it fails."""
        try:
            return request(*words)
        except (client.ApiException, NotFoundError, ResourceNotFoundError):
            return None

    @check("interop/python-operator/definition")
    def definition(c):
        c.core.create_namespace({"metadata": {"name": NAMESPACE}})
        client.ApiextensionsV1Api().create_custom_resource_definition(DEFINITION)
        until(lambda: passes(c.crates), 20)

    @check("interop/python-operator/create", needs=("interop/python-operator/definition",))
    def create(c):
        log = open(os.path.join(os.environ.get("WORK", "/tmp"), "kopf.log"), "w")
        c.process = subprocess.Popen([os.path.join(os.path.dirname(sys.executable), "kopf"), "run", "--standalone", "--namespace", NAMESPACE, __file__],
                                     env=os.environ | {"KUBECONFIG": c.kubeconfig}, stdout=log, stderr=subprocess.STDOUT)
        made = c.crates().create(body={"apiVersion": f"{GROUP}/v1", "kind": "Crate", "metadata": {"name": "one"}, "spec": {}}, namespace=NAMESPACE)
        assert made.spec.size == 1, made
        until(lambda: passes(c.size, "one") == "1", 30)
        until(lambda: has_status(c), 20)
        assert c.crates().get(name="one", namespace=NAMESPACE).metadata.finalizers == ["kopf.zalando.org/KopfFinalizerMarker"]

    @check("interop/python-operator/update", needs=("interop/python-operator/create",))
    def update(c):
        seen = []

        def follow():
            for event in c.crates().watch(namespace=NAMESPACE, timeout=100):
                seen.append((event["type"], event["object"].spec.size))
                if event["object"].spec.size == 3:
                    return
        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        until(lambda: seen, 20, what="the watch has begun")
        crates = c.crates()
        crates.patch(name="one", namespace=NAMESPACE, body={"spec": {"size": 2}}, content_type="application/merge-patch+json")
        until(lambda: passes(c.size, "one") == "2", 20)
        crates.patch(name="one", namespace=NAMESPACE, body=[{"op": "replace", "path": "/spec/size", "value": 3}],
                     content_type="application/json-patch+json")
        until(lambda: passes(c.size, "one") == "3", 20)
        thread.join(60)
        assert seen[0][0] == "ADDED" and ("MODIFIED", 3) in seen, seen

    @check("interop/python-operator/apply", needs=("interop/python-operator/create",))
    def apply(c):
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Crate", "metadata": {"name": "two"}, "spec": {"size": 7}}
        done = c.crates().server_side_apply(body=body, namespace=NAMESPACE, field_manager="python")
        assert [m.manager for m in done.metadata.managedFields if m.operation == "Apply"] == ["python"], done.metadata
        until(lambda: passes(c.size, "two") == "7", 20)

    @check("interop/python-operator/delete", needs=("interop/python-operator/apply",))
    def delete(c):
        for name in ("one", "two"):
            c.crates().delete(name=name, namespace=NAMESPACE)
            until(lambda: passes(c.core.read_namespaced_config_map, f"{name}-deleted", NAMESPACE), 20)
            until(lambda: not passes(lambda: c.crates().get(name=name, namespace=NAMESPACE)), 20)
            until(lambda: not passes(c.size, name), 30, what="the ConfigMap of the owner is collected")
        c.process.terminate()
        c.process.wait(60)
        client.ApiextensionsV1Api().delete_custom_resource_definition("crates." + GROUP)
        c.core.delete_namespace(NAMESPACE)

    context = Context(sys.argv[1])
    try:
        status = main(context)
    finally:
        if context.process and context.process.poll() is None:
            context.process.kill()
    sys.exit(status)
