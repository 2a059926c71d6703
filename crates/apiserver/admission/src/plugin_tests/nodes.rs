use super::*;
use crate::node_restriction::NodeRestriction;

fn plugin() -> NodeRestriction {
    let pod = |name: &str, node: &str| {
        json!({"metadata": {"name": name, "namespace": "n", "uid": format!("{name}-uid")},
        "spec": {"nodeName": node, "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}}]}})
    };
    NodeRestriction(context(&[
        (
            "nodes",
            json!({"metadata": {"name": "one", "uid": "node-uid"}}),
        ),
        ("pods", pod("mine", "one")),
        ("pods", pod("theirs", "two")),
    ]))
}

/// Makes the node `one` the user of a write to the object `name`.
fn by_node(name: &'static str, write: Write) -> Write {
    let user = User {
        name: "system:node:one".into(),
        groups: vec!["system:nodes".into()],
        ..User::default()
    };
    Write {
        user,
        name,
        ..write
    }
}

/// Checks that the write of node `one` is rejected for `why`; None: allowed.
fn check(name: &'static str, write: Write, why: Option<&str>) {
    let write = by_node(name, write);
    let result = validate(&plugin(), &write);
    match why {
        None => assert_eq!(result, Ok(()), "{} {name} {}", write.path, write.object),
        Some(why) => {
            let text = result.expect_err(&write.object.to_string());
            assert!(text.ends_with(&format!(" is forbidden: {why}")), "{text}");
        }
    }
}

#[test]
fn requests_of_other_users_are_not_restricted() {
    let labels =
        json!({"metadata": {"name": "two", "labels": {"node-restriction.kubernetes.io/x": "y"}}});
    assert_eq!(validate(&plugin(), &create("nodes", labels)), Ok(()));
}

#[test]
fn node_user_without_a_name_is_rejected() {
    let mut write = by_node("one", create("nodes", json!({})));
    write.user.name = "system:node:".into();
    let text = validate(&plugin(), &write).unwrap_err();
    assert!(
        text.ends_with("could not determine node from user \"system:node:\""),
        "{text}"
    );
}

#[test]
fn node_changes_its_own_object_without_restricted_fields() {
    let node = |metadata: Value, spec: Value| json!({"metadata": metadata, "spec": spec});
    let plain = || node(json!({"name": "one"}), json!({}));
    let restricted = json!({"name": "one", "labels": {"node-restriction.kubernetes.io/b": "1", "foo.k8s.io/a": "1", "own": "1"}});
    let owned = json!({"name": "one", "ownerReferences": [{"uid": "u"}]});
    let source = json!({"configSource": {"configMap": {}}});
    let taints = json!({"taints": [{"key": "k"}]});
    for (write, why) in [
        (
            create("nodes", node(json!({"name": "one"}), taints.clone())),
            None,
        ),
        (
            create("nodes", node(restricted.clone(), json!({}))),
            Some(
                "node \"one\" is not allowed to set the following labels: foo.k8s.io/a, node-restriction.kubernetes.io/b",
            ),
        ),
        (
            create("nodes", node(json!({"name": "one"}), source.clone())),
            Some("node \"one\" is not allowed to set configSource"),
        ),
        (
            update("nodes", plain(), node(restricted.clone(), json!({}))),
            Some("is not allowed to modify labels: foo.k8s.io/a, node-restriction.kubernetes.io/b"),
        ),
        (
            update(
                "nodes",
                node(restricted.clone(), json!({})),
                node(restricted, json!({})),
            ),
            None,
        ),
        (
            update("nodes", plain(), node(json!({"name": "one"}), taints)),
            Some("node \"one\" is not allowed to modify taints"),
        ),
        (
            update("nodes", plain(), node(json!({"name": "one"}), source)),
            Some("node \"one\" is not allowed to modify configSource"),
        ),
        (
            update("nodes", plain(), node(owned, json!({}))),
            Some("node \"one\" is not allowed to modify ownerReferences"),
        ),
    ] {
        check("one", write, why);
    }
    check(
        "two",
        update("nodes", plain(), plain()),
        Some("node \"one\" is not allowed to modify node \"two\""),
    );
}

fn mirror_pod(change: impl Fn(&mut Value)) -> Write {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "one", "uid": "node-uid", "controller": true});
    let mut pod = json!({"metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "h"}, "ownerReferences": [owner]},
        "spec": {"nodeName": "one"}});
    change(&mut pod);
    create("pods", pod)
}

#[test]
fn node_creates_only_mirror_pods_that_it_owns() {
    check("m", mirror_pod(|_| {}), None);
    let set = |pointer: &'static str, value: Value| {
        mirror_pod(move |pod| *pod.pointer_mut(pointer).unwrap() = value.clone())
    };
    let owner = "/metadata/ownerReferences/0";
    for (write, why) in [
        (
            set("/metadata/annotations", json!({})),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"one\" can only create mirror pods",
        ),
        (
            set("/spec/nodeName", json!("two")),
            "node \"one\" can only create pods with spec.nodeName set to itself",
        ),
        (
            set("/metadata/ownerReferences", json!([])),
            "node \"one\" can only create pods with an owner reference set to itself",
        ),
        (
            set("/metadata/ownerReferences", json!([{}, {}])),
            "node \"one\" can only create pods with a single owner reference set to itself",
        ),
        (
            set("/metadata/ownerReferences/0/name", json!("two")),
            "node \"one\" can only create pods with an owner reference set to itself",
        ),
        (
            set("/metadata/ownerReferences/0/kind", json!("Pod")),
            "node \"one\" can only create pods with an owner reference set to itself",
        ),
        (
            set("/metadata/ownerReferences/0/controller", json!(false)),
            "node \"one\" can only create pods with a controller owner reference set to itself",
        ),
        (
            set("/metadata/ownerReferences/0/uid", json!("old")),
            "node one UID mismatch: expected old got node-uid",
        ),
    ] {
        check("m", write, Some(why));
    }
    let blocking =
        mirror_pod(|pod| pod.pointer_mut(owner).unwrap()["blockOwnerDeletion"] = json!(true));
    check(
        "m",
        blocking,
        Some("node \"one\" must not set blockOwnerDeletion on an owner reference"),
    );
}

/// Returns fields of a pod's spec that refer to objects, with the word for these objects in the
/// rejection.
fn list_api_references() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("serviceAccountName", json!("sa"), "a service account"),
        ("imagePullSecrets", json!([{"name": "s"}]), "secrets"),
        ("volumes", json!([{"secret": {}}]), "secrets"),
        (
            "volumes",
            json!([{"csi": {"nodePublishSecretRef": {}}}]),
            "secrets",
        ),
        ("volumes", json!([{"configMap": {}}]), "configmaps"),
        (
            "volumes",
            json!([{"persistentVolumeClaim": {}}]),
            "persistentvolumeclaims",
        ),
        (
            "volumes",
            json!([{"ephemeral": {}}]),
            "persistentvolumeclaims",
        ),
        (
            "volumes",
            json!([{"projected": {"sources": [{"serviceAccountToken": {}}]}}]),
            "projected volumes",
        ),
        (
            "volumes",
            json!([{"projected": {"sources": [{"secret": {}}]}}]),
            "projected volumes",
        ),
        (
            "volumes",
            json!([{"flexVolume": {"secretRef": {"name": "s"}}}]),
            "secrets",
        ),
        ("volumes", json!([{"csi": {}}]), "csidrivers"),
        ("resourceClaims", json!([{}]), "resourceclaims"),
        (
            "containers",
            json!([{"env": [{"valueFrom": {"configMapKeyRef": {}}}]}]),
            "configmaps",
        ),
        (
            "initContainers",
            json!([{"envFrom": [{"secretRef": {}}]}]),
            "secrets",
        ),
    ]
}

#[test]
fn mirror_pod_may_not_reference_api_objects() {
    for (field, value, what) in list_api_references() {
        let write = mirror_pod(|pod| pod["spec"][field] = value.clone());
        check(
            "m",
            write,
            Some(&format!(
                "node \"one\" can not create pods that reference {what}"
            )),
        );
    }
    check(
        "m",
        mirror_pod(|pod| {
            pod["spec"]["volumes"] = json!([{"projected": {"sources": [{"downwardAPI": {}}]}}])
        }),
        None,
    );
}

#[test]
fn node_deletes_and_evicts_only_pods_on_itself() {
    let pod = |node: &str| json!({"metadata": {"name": "p"}, "spec": {"nodeName": node}});
    check("p", delete("pods", pod("one")), None);
    check(
        "p",
        delete("pods", pod("two")),
        Some("node \"one\" can only delete pods with spec.nodeName set to itself"),
    );
    check("mine", create("pods/eviction", json!({})), None);
    check(
        "theirs",
        create("pods/eviction", json!({})),
        Some("node one can only evict pods with spec.nodeName set to itself"),
    );
}

#[test]
fn node_writes_no_pods_outside_of_status_and_eviction() {
    check(
        "p",
        update("pods", json!({}), json!({})),
        Some(
            "unexpected operation \"UPDATE\", node \"one\" can only create and delete mirror pods",
        ),
    );
    check(
        "p",
        create("pods/binding", json!({})),
        Some("unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed"),
    );
}

#[test]
fn pod_status_of_a_node_changes_no_metadata_or_claims() {
    let old = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": "one"}, "status": {"phase": "Pending"}});
    let with = |pointer: &str, field: &str, value: Value| {
        let mut new = old.clone();
        new.pointer_mut(pointer).unwrap()[field] = value;
        update("pods/status", old.clone(), new)
    };
    check("p", with("/status", "phase", json!("Running")), None);
    for (write, why) in [
        (
            with("/metadata", "labels", json!({})),
            "node \"one\" cannot update labels through pod status",
        ),
        (
            with("/status", "resourceClaimStatuses", json!([{"name": "c"}])),
            "node \"one\" cannot update resource claim statuses",
        ),
        (
            with("/metadata", "finalizers", json!(["f"])),
            "node \"one\" cannot update finalizers or owner references through pod status",
        ),
    ] {
        check("p", write, Some(why));
    }
    let mut other = old.clone();
    other["spec"]["nodeName"] = json!("two");
    check(
        "p",
        update("pods/status", other.clone(), other),
        Some("node \"one\" can only update pod status for pods with spec.nodeName set to itself"),
    );
}

#[test]
fn node_requests_tokens_for_its_pods_and_their_audiences() {
    let token = |kind: &str, name: &str, uid: &str, audiences: Value| {
        let reference = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
        create(
            "serviceaccounts/token",
            json!({"spec": {"boundObjectRef": reference, "audiences": audiences}}),
        )
    };
    let vault = || json!(["vault"]);
    check("sa", token("Pod", "mine", "mine-uid", vault()), None);
    for (write, why) in [
        (
            create("serviceaccounts/token", json!({"spec": {}})),
            "node requested token not bound to a pod",
        ),
        (
            token("Secret", "mine", "mine-uid", vault()),
            "node requested token not bound to a pod",
        ),
        (
            token("Pod", "mine", "", vault()),
            "node requested token with a pod binding without a uid",
        ),
        (
            token("Pod", "theirs", "theirs-uid", vault()),
            "node requested token bound to a pod scheduled on a different node",
        ),
        (
            token("Pod", "mine", "mine-uid", json!(["a", "b"])),
            "node may only request 0 or 1 audiences",
        ),
        // No audience means that of the API server, which no volume of the pod requests.
        (
            token("Pod", "mine", "mine-uid", json!([])),
            "audience \"\" not found in pod spec volume, system:node:one is not authorized to request tokens for this audience",
        ),
        (
            token("Pod", "mine", "mine-uid", json!(["other"])),
            "audience \"other\" not found in pod spec volume, system:node:one is not authorized to request tokens for this audience",
        ),
        (
            token("Pod", "mine", "old-uid", vault()),
            "the UID in the bound object reference (old-uid) does not match the UID in record. The object might have been deleted and then recreated",
        ),
    ] {
        check("sa", write, Some(why));
    }
}

#[test]
fn node_writes_only_its_own_lease_csi_node_and_slices() {
    let named = |name: &str| json!({"metadata": {"name": name}});
    let lease = |namespace: &'static str, write: Write| Write { namespace, ..write };
    let path = "coordination.k8s.io:leases";
    check(
        "one",
        lease("kube-node-lease", create(path, named("one"))),
        None,
    );
    check(
        "one",
        lease("default", create(path, named("one"))),
        Some("can only access leases in the \"kube-node-lease\" system namespace"),
    );
    check(
        "two",
        lease("kube-node-lease", delete(path, named("two"))),
        Some("can only access node lease with the same name as the requesting node"),
    );
    check("one", create("storage.k8s.io:csinodes", named("one")), None);
    check(
        "two",
        create("storage.k8s.io:csinodes", named("two")),
        Some("can only access CSINode with the same name as the requesting node"),
    );
    let slice = |node: &str| json!({"spec": {"nodeName": node}});
    let path = "resource.k8s.io:resourceslices";
    check("s", create(path, slice("one")), None);
    let why = Some(
        "can only create, update or delete a ResourceSlice with spec.nodeName set to the requesting node",
    );
    check("s", create(path, slice("two")), why);
    check("s", delete(path, slice("two")), why);
}

#[test]
fn node_changes_only_capacity_and_conditions_of_a_claim() {
    let claim = |capacity: &str, phase: &str| json!({"metadata": {"name": "c"}, "spec": {}, "status": {"capacity": capacity, "phase": phase}});
    check(
        "c",
        update(
            "persistentvolumeclaims/status",
            claim("1Gi", "Bound"),
            claim("2Gi", "Bound"),
        ),
        None,
    );
    check(
        "c",
        update(
            "persistentvolumeclaims/status",
            claim("1Gi", "Bound"),
            claim("1Gi", "Lost"),
        ),
        Some(
            "node \"one\" is not allowed to update fields other than status.capacity and status.conditions",
        ),
    );
    assert!(
        validate(
            &plugin(),
            &by_node(
                "c",
                update(
                    "persistentvolumeclaims",
                    claim("1Gi", "Bound"),
                    claim("1Gi", "Bound")
                )
            )
        )
        .is_err()
    );
}

#[test]
fn pod_certificate_is_for_a_pod_on_the_node() {
    let pod = |name: &str, node: &str, annotations: Value| {
        json!({"metadata": {"name": name, "namespace": "n", "uid": "pod-uid", "annotations": annotations},
            "spec": {"nodeName": node, "serviceAccountName": "sa"}})
    };
    let plugin = NodeRestriction(context(&[
        (
            "nodes",
            json!({"metadata": {"name": "one", "uid": "node-uid"}}),
        ),
        ("pods", pod("mine", "one", json!({}))),
        ("pods", pod("theirs", "two", json!({}))),
        (
            "pods",
            pod("mirror", "one", json!({"kubernetes.io/config.mirror": "x"})),
        ),
        (
            "serviceaccounts",
            json!({"metadata": {"name": "sa", "namespace": "n", "uid": "sa-uid"}}),
        ),
        (
            "serviceaccounts",
            json!({"metadata": {"name": "admin", "namespace": "n", "uid": "sa-uid"}}),
        ),
    ]));
    let path = "certificates.k8s.io:podcertificaterequests";
    let spec = json!({"nodeName": "one", "nodeUID": "node-uid", "podName": "mine", "podUID": "pod-uid",
        "serviceAccountName": "sa", "serviceAccountUID": "sa-uid"});
    let request = |changes: Value| {
        let mut spec = spec.clone();
        for (field, value) in changes.as_object().unwrap() {
            spec[field.as_str()] = value.clone();
        }
        json!({"metadata": {"name": "x"}, "spec": spec})
    };
    for (changes, expect) in [
        (json!({}), ""),
        (
            json!({"nodeName": "two"}),
            "which is not the requesting node \"one\"",
        ),
        (
            json!({"nodeUID": "other"}),
            "names nodes \"one\" with UID \"other\", but this server knows it with UID \"node-uid\"",
        ),
        (
            json!({"podName": "absent"}),
            "names pods \"absent\", which was not found",
        ),
        (
            json!({"podUID": "other"}),
            "names pods \"mine\" with UID \"other\", but this server knows it with UID \"pod-uid\"",
        ),
        (
            json!({"podName": "theirs"}),
            "pod \"n/theirs\" is not running on node \"one\"",
        ),
        (
            json!({"podName": "mirror"}),
            "pod \"n/mirror\" is a mirror pod",
        ),
        (
            json!({"serviceAccountName": "admin"}),
            "contains serviceAccountName (\"admin\") that differs",
        ),
        (
            json!({"serviceAccountUID": "other"}),
            "names serviceaccounts \"sa\" with UID \"other\"",
        ),
    ] {
        let write = by_node("x", create(path, request(changes.clone())));
        let found = validate(&plugin, &write).err().unwrap_or_default();
        assert_eq!(found.is_empty(), expect.is_empty(), "{changes}: {found}");
        assert!(found.contains(expect), "{changes}: {found}");
    }
    let other = Write {
        namespace: "m",
        ..create(path, request(json!({})))
    };
    assert!(validate(&plugin, &by_node("x", other)).is_err());
    let object = request(json!({}));
    for (write, why) in [
        (
            update(path, object.clone(), object.clone()),
            "unexpected operation UPDATE",
        ),
        (delete(path, object.clone()), "unexpected operation DELETE"),
        (
            create(
                "certificates.k8s.io:podcertificaterequests/status",
                object.clone(),
            ),
            "unexpected subresource status",
        ),
    ] {
        let found = validate(&plugin, &by_node("x", write)).unwrap_err();
        assert!(found.ends_with(why), "{found}");
    }
    // Other users are limited by their roles alone.
    let write = create(path, request(json!({"nodeName": "two"})));
    assert_eq!(validate(&plugin, &write), Ok(()));
}
