#!/usr/bin/env python3
"""The published Python client (package `kubernetes`) against a running cluster: create, list, watch, patch, delete.

    python_client.py KUBECONFIG
"""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from checks import check, main, until  # noqa: E402
from kubernetes import client, config, watch  # noqa: E402
from kubernetes.client.rest import ApiException  # noqa: E402

NAMESPACE = "python-client"


class Context:
    def __init__(self, kubeconfig):
        config.load_kube_config(kubeconfig)
        self.core = client.CoreV1Api()
        self.apps = client.AppsV1Api()


@check("interop/python/create")
def create(c):
    c.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    made = c.core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name="one", labels={"a": "b"}), data={"k": "v"}))
    assert made.metadata.uid and made.metadata.resource_version
    try:
        c.core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="one")))
        raise AssertionError("a second create passed")
    except ApiException as error:
        assert error.status == 409 and "AlreadyExists" in error.body


@check("interop/python/list")
def list_(c):
    assert [x.metadata.name for x in c.core.list_namespaced_config_map(NAMESPACE, label_selector="a=b").items] == ["one"]
    first = c.core.list_config_map_for_all_namespaces(limit=1)
    assert len(first.items) == 1 and first.metadata._continue
    assert c.core.list_config_map_for_all_namespaces(limit=500, _continue=first.metadata._continue).items


@check("interop/python/watch")
def watch_(c):
    seen, listed = [], c.core.list_namespaced_config_map(NAMESPACE)

    def follow():
        for event in watch.Watch().stream(c.core.list_namespaced_config_map, NAMESPACE, timeout_seconds=50,
                                          resource_version=listed.metadata.resource_version):
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                return
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    c.core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="two")))
    c.core.patch_namespaced_config_map("two", NAMESPACE, {"data": {"x": "y"}})
    c.core.delete_namespaced_config_map("two", NAMESPACE)
    thread.join(60)
    assert [s for s in seen if s[1] == "two"] == [("ADDED", "two"), ("MODIFIED", "two"), ("DELETED", "two")], seen


@check("interop/python/patch")
def patch(c):
    done = c.core.patch_namespaced_config_map("one", NAMESPACE, {"data": {"k": None, "n": "w"}})
    assert done.data == {"n": "w"}, done.data
    done = c.core.patch_namespaced_config_map("one", NAMESPACE, [{"op": "replace", "path": "/data/n", "value": "z"}])
    assert done.data == {"n": "z"}, done.data


@check("interop/python/delete")
def delete(c):
    c.core.delete_namespace(NAMESPACE)

    def gone():
        try:
            c.core.read_namespace(NAMESPACE)
            return False
        except ApiException as error:
            return error.status == 404
    until(gone, 45)


if __name__ == "__main__":
    sys.exit(main(Context(sys.argv[1])))
