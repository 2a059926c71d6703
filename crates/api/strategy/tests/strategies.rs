//! Fields that create, update and status writes reset, keep and count, as upstream's strategies do.
#![allow(clippy::unwrap_used)]

use api_meta::Kind;
use api_strategy::{as_stored, prepare_create, prepare_update};
use serde_json::{Value, json};

const UID: &str = "8c5b0e2a-7b0e-4d0e-9a8e-3c8f1f2f8b11";

fn kind(group: &'static str, kind: &'static str) -> Kind<'static> {
    Kind {
        group,
        version: "v1",
        kind,
        namespaced: true,
    }
}

const POD: (&str, &str) = ("", "Pod");
const SERVICE: (&str, &str) = ("", "Service");
const DEPLOYMENT: (&str, &str) = ("apps", "Deployment");

/// Returns the object that a create with `fields` stores.
fn created((group, name): (&'static str, &'static str), fields: Value) -> Value {
    let mut object =
        json!({"metadata": {"name": "x", "uid": UID, "creationTimestamp": "2024-01-01T00:00:00Z"}});
    merge(&mut object, fields);
    prepare_create(kind(group, name), &mut object);
    object
}

/// Returns the object that an update of `old` with `change` stores.
fn updated(
    (group, name): (&'static str, &'static str),
    subresource: &str,
    old: &Value,
    change: Value,
) -> Value {
    let mut new = old.clone();
    merge(&mut new, change);
    prepare_update(kind(group, name), subresource, &mut new, old);
    new
}

fn merge(target: &mut Value, change: Value) {
    match change {
        Value::Object(fields) if target.is_object() => {
            for (field, value) in fields {
                match value {
                    Value::Null => drop(target.as_object_mut().unwrap().remove(&field)),
                    value => merge(&mut target[field.as_str()], value),
                }
            }
        }
        value => *target = value,
    }
}

fn generation(object: &Value) -> Option<i64> {
    object["metadata"]["generation"].as_i64()
}

#[test]
fn create_sets_the_first_generation_of_kinds_that_have_one() {
    for (group, name, expected) in [
        ("", "Pod", Some(1)),
        ("", "ConfigMap", None),
        ("", "Service", None),
        ("apps", "Deployment", Some(1)),
        ("apps", "ControllerRevision", None),
        ("batch", "Job", Some(1)),
        ("networking.k8s.io", "Ingress", Some(1)),
        ("policy", "PodDisruptionBudget", Some(1)),
        ("scheduling.k8s.io", "PriorityClass", Some(1)),
        ("discovery.k8s.io", "EndpointSlice", Some(1)),
        ("rbac.authorization.k8s.io", "Role", None),
    ] {
        let object = created((group, name), json!({"metadata": {"generation": 7}}));
        assert_eq!(generation(&object), expected, "{name}");
    }
}

#[test]
fn create_drops_the_status_of_the_client() {
    let status = json!({"status": {"replicas": 3, "phase": "Running"}});
    assert_eq!(created(DEPLOYMENT, status.clone())["status"], json!({}));
    let pod = created(POD, status);
    assert_eq!(
        pod["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
}

#[test]
fn create_keeps_the_status_of_a_node() {
    // The kubelet registers its node with capacity and conditions in one request.
    let status = json!({"status": {"capacity": {"cpu": "1"}}});
    let node = created(("", "Node"), status.clone());
    assert_eq!(node["status"], status["status"]);
}

#[test]
fn create_computes_the_qos_class_of_a_pod() {
    for (resources, class) in [
        (json!({}), "BestEffort"),
        (json!({"requests": {"cpu": "1"}}), "Burstable"),
        (
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
            "Guaranteed",
        ),
    ] {
        let pod = created(
            POD,
            json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}),
        );
        assert_eq!(pod["status"]["qosClass"], class, "{resources}");
    }
}

#[test]
fn create_adds_the_finalizer_of_a_namespace_once() {
    for finalizers in [json!([]), json!(["kubernetes"]), Value::Null] {
        let namespace = created(
            ("", "Namespace"),
            json!({"spec": {"finalizers": finalizers}}),
        );
        assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(namespace["status"], json!({"phase": "Active"}));
    }
}

#[test]
fn create_generates_the_selector_of_a_job() {
    let spec = json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}});
    let job = created(("batch", "Job"), spec);
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!(
        job["spec"]["selector"]["matchLabels"],
        json!({"batch.kubernetes.io/controller-uid": UID})
    );
    for (label, value) in [
        ("a", "b"),
        ("batch.kubernetes.io/controller-uid", UID),
        ("batch.kubernetes.io/job-name", "x"),
        ("controller-uid", UID),
        ("job-name", "x"),
    ] {
        assert_eq!(labels[label], value, "{label}");
    }
}

#[test]
fn create_leaves_the_manual_selector_of_a_job() {
    let spec = json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}});
    let job = created(("batch", "Job"), json!({"spec": spec}));
    assert_eq!(job["spec"], spec);
}

#[test]
fn create_lists_the_storage_version_of_a_custom_resource_definition() {
    let versions = json!([{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]);
    let definition = created(
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        json!({"spec": {"versions": versions}}),
    );
    assert_eq!(definition["status"]["storedVersions"], json!(["v2"]));
}

#[test]
fn create_reports_a_local_api_service_as_available() {
    let group = "apiregistration.k8s.io";
    let local = created((group, "APIService"), json!({"spec": {}}));
    assert_eq!(local["status"]["conditions"][0]["reason"], "Local");
    let remote = created(
        (group, "APIService"),
        json!({"spec": {"service": {"name": "s"}}}),
    );
    assert_eq!(remote["status"], json!({}));
}

#[test]
fn update_increments_the_generation_with_the_spec_only() {
    let old = created(DEPLOYMENT, json!({"spec": {"replicas": 1}}));
    for (change, expected) in [
        (json!({"spec": {"replicas": 2}}), 2),
        (json!({"metadata": {"labels": {"a": "b"}}}), 1),
        (json!({"metadata": {"annotations": {"a": "b"}}}), 2),
        (json!({"status": {"replicas": 2}}), 1),
        (json!({"metadata": {"generation": 9}}), 1),
    ] {
        let new = updated(DEPLOYMENT, "", &old, change.clone());
        assert_eq!(generation(&new), Some(expected), "{change}");
    }
}

#[test]
fn update_treats_empty_and_absent_fields_as_equal() {
    let old = created(DEPLOYMENT, json!({"spec": {"replicas": 1}}));
    let new = updated(DEPLOYMENT, "", &old, json!({"spec": {"selector": {}}}));
    assert_eq!(generation(&new), Some(1));
}

#[test]
fn update_counts_the_deletion_of_a_pod_as_a_change() {
    let old = created(POD, json!({"spec": {}}));
    let deleted = json!({"metadata": {"deletionTimestamp": "2024-01-02T00:00:00Z"}});
    assert_eq!(generation(&updated(POD, "", &old, deleted)), Some(2));
}

#[test]
fn update_counts_every_change_of_an_endpoint_slice() {
    let slice = ("discovery.k8s.io", "EndpointSlice");
    let old = created(slice, json!({"endpoints": []}));
    for (change, expected) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), 2),
        (json!({"endpoints": [{"addresses": ["10.0.0.1"]}]}), 2),
        (json!({"metadata": {"resourceVersion": "9"}}), 1),
    ] {
        let new = updated(slice, "", &old, change.clone());
        assert_eq!(generation(&new), Some(expected), "{change}");
    }
}

#[test]
fn update_keeps_the_status() {
    let old = json!({"metadata": {"generation": 1}, "spec": {}, "status": {"replicas": 1}});
    let new = updated(DEPLOYMENT, "", &old, json!({"status": {"replicas": 5}}));
    assert_eq!(new["status"], json!({"replicas": 1}));
}

#[test]
fn update_keeps_the_finalizers_of_a_namespace_but_finalize_changes_them() {
    let namespace = ("", "Namespace");
    let old = created(namespace, json!({}));
    let change = json!({"spec": {"finalizers": []}});
    let update = updated(namespace, "", &old, change.clone());
    assert_eq!(update["spec"]["finalizers"], json!(["kubernetes"]));
    let finalized = updated(namespace, "finalize", &old, change);
    assert_eq!(finalized["spec"]["finalizers"], json!([]));
}

#[test]
fn update_keeps_the_type_of_a_secret_that_the_client_omits() {
    let old = json!({"metadata": {}, "type": "kubernetes.io/tls"});
    let new = updated(("", "Secret"), "", &old, json!({"type": null}));
    assert_eq!(new["type"], "kubernetes.io/tls");
}

#[test]
fn update_keeps_the_cluster_ip_that_the_client_omits() {
    let spec = json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
    let old = json!({"metadata": {}, "spec": spec});
    let change = json!({"spec": {"clusterIP": null, "clusterIPs": null, "ipFamilies": null}});
    assert_eq!(updated(SERVICE, "", &old, change)["spec"], spec);
}

#[test]
fn update_to_an_external_name_does_not_keep_the_cluster_ip() {
    let old = json!({"metadata": {}, "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1"}});
    let change = json!({"spec": {"type": "ExternalName", "clusterIP": null}});
    assert_eq!(
        updated(SERVICE, "", &old, change)["spec"],
        json!({"type": "ExternalName"})
    );
}

#[test]
fn update_keeps_the_node_port_of_the_same_port_and_protocol() {
    let port =
        |protocol: &str, node: i64| json!({"port": 53, "protocol": protocol, "nodePort": node});
    let old = json!({"metadata": {}, "spec": {"type": "NodePort",
        "ports": [port("TCP", 30001), port("UDP", 30002)]}});
    let omitted = |protocol: &str| json!({"port": 53, "protocol": protocol});
    let change = json!({"spec": {"ports": [omitted("UDP"), omitted("TCP")]}});
    let new = updated(SERVICE, "", &old, change);
    assert_eq!(
        new["spec"]["ports"],
        json!([port("UDP", 30002), port("TCP", 30001)])
    );
}

#[test]
fn update_of_a_daemon_set_counts_changes_of_the_template() {
    let set = ("apps", "DaemonSet");
    let old = created(
        set,
        json!({"spec": {"template": {"spec": {"hostNetwork": false}}}}),
    );
    let at = "/metadata/annotations/deprecated.daemonset.template.generation";
    assert_eq!(old.pointer(at).unwrap(), "1");
    let same = updated(set, "", &old, json!({"spec": {"minReadySeconds": 5}}));
    assert_eq!(same.pointer(at).unwrap(), "1");
    let template = json!({"spec": {"template": {"spec": {"hostNetwork": true}}}});
    assert_eq!(updated(set, "", &old, template).pointer(at).unwrap(), "2");
}

#[test]
fn status_write_changes_neither_spec_nor_generation() {
    let old = created(DEPLOYMENT, json!({"spec": {"replicas": 1}}));
    let change = json!({"spec": {"replicas": 9}, "status": {"replicas": 1}});
    let new = updated(DEPLOYMENT, "status", &old, change);
    assert_eq!(new["spec"], json!({"replicas": 1}));
    assert_eq!(new["status"], json!({"replicas": 1}));
    assert_eq!(generation(&new), Some(1));
}

#[test]
fn status_write_may_change_annotations_of_most_kinds() {
    let change = json!({"metadata": {"annotations": {"a": "b"}}});
    let old = created(DEPLOYMENT, json!({}));
    let new = updated(DEPLOYMENT, "status", &old, change.clone());
    assert_eq!(new["metadata"]["annotations"], json!({"a": "b"}));
    let attachment = ("storage.k8s.io", "VolumeAttachment");
    let old = created(attachment, json!({}));
    let new = updated(attachment, "status", &old, change);
    assert_eq!(new["metadata"]["annotations"], Value::Null);
}

#[test]
fn status_write_of_a_pod_keeps_owners_and_qos_class() {
    let old = json!({"metadata": {"ownerReferences": [{"uid": "u"}]}, "spec": {},
        "status": {"phase": "Pending", "qosClass": "Burstable"}});
    let change = json!({"metadata": {"ownerReferences": null},
        "status": {"phase": "Running", "qosClass": null}});
    let new = updated(POD, "status", &old, change);
    assert_eq!(new["metadata"], old["metadata"]);
    assert_eq!(
        new["status"],
        json!({"phase": "Running", "qosClass": "Burstable"})
    );
}

#[test]
fn status_write_of_a_volume_sets_the_time_of_the_phase_change() {
    let volume = ("", "PersistentVolume");
    let old = json!({"metadata": {}, "status": {"phase": "Available", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}});
    let at = "lastPhaseTransitionTime";
    let bound = updated(
        volume,
        "status",
        &old,
        json!({"status": {"phase": "Bound"}}),
    );
    assert_ne!(bound["status"][at], old["status"][at]);
    let same = updated(volume, "status", &old, json!({"status": {"message": "m"}}));
    assert_eq!(same["status"][at], old["status"][at]);
    let given = json!({"status": {"phase": "Bound", at: "2021-01-01T00:00:00Z"}});
    let written = updated(volume, "status", &old, given);
    assert_eq!(written["status"][at], "2021-01-01T00:00:00Z");
}

#[test]
fn signing_request_is_approved_through_its_subresource_only() {
    let request = ("certificates.k8s.io", "CertificateSigningRequest");
    let old = json!({"metadata": {}, "spec": {"request": "a"}, "status": {}});
    let approved = json!({"spec": {"request": "b"},
        "status": {"conditions": [{"type": "Approved", "status": "True"}], "certificate": "c"}});
    let through_status = updated(request, "status", &old, approved.clone());
    assert_eq!(through_status["status"]["conditions"], json!([]));
    let through_approval = updated(request, "approval", &old, approved);
    let condition = &through_approval["status"]["conditions"][0];
    assert_eq!(condition["type"], "Approved");
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string());
    assert_eq!(through_approval["spec"], json!({"request": "a"}));
    assert_eq!(through_approval["status"]["certificate"], Value::Null);
}

#[test]
fn ephemeral_containers_change_through_their_subresource_without_other_fields() {
    let old = created(POD, json!({"spec": {"nodeName": "n"}}));
    let change = json!({"spec": {"nodeName": "m", "ephemeralContainers": [{"name": "e"}]}});
    let new = updated(POD, "ephemeralcontainers", &old, change);
    assert_eq!(
        new["spec"],
        json!({"nodeName": "n", "ephemeralContainers": [{"name": "e"}]})
    );
    assert_eq!(generation(&new), Some(2));
}

#[test]
fn resize_changes_resources_and_resize_policies_only() {
    let container = |cpu: &str, image: &str| json!({"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}});
    let old = created(POD, json!({"spec": {"containers": [container("1", "a")]}}));
    let change = json!({"spec": {"containers": [container("2", "b")]}});
    let new = updated(POD, "resize", &old, change);
    assert_eq!(new["spec"]["containers"], json!([container("2", "a")]));
}

#[test]
fn csi_node_without_drivers_is_stored_without_the_list() {
    let mut node = json!({"spec": {"drivers": []}});
    as_stored(kind("storage.k8s.io", "CSINode"), &mut node);
    assert_eq!(node, json!({"spec": {}}));
}

#[test]
fn update_drops_what_the_new_type_of_a_service_does_not_use() {
    let balancer = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001,
        "loadBalancerClass": "a/b", "allocateLoadBalancerNodePorts": true, "ports": [{"port": 80, "nodePort": 30080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}});
    let plain = updated(
        SERVICE,
        "",
        &balancer,
        json!({"spec": {"type": "ClusterIP"}}),
    );
    assert_eq!(
        plain["spec"],
        json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80}]})
    );
    assert_eq!(plain["status"], json!({"loadBalancer": {}}));
    let alias = json!({"spec": {"type": "ExternalName", "externalName": "a.b"}});
    let alias = updated(SERVICE, "", &balancer, alias);
    assert_eq!(
        alias["spec"],
        json!({"type": "ExternalName", "externalName": "a.b", "ports": [{"port": 80}]})
    );
    // A value that the update changes stays, so that validation reports it.
    let changed = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30081}], "loadBalancerClass": "c/d"}});
    let changed = updated(SERVICE, "", &balancer, changed);
    assert_eq!(changed["spec"]["ports"][0]["nodePort"], 30081);
    assert_eq!(changed["spec"]["loadBalancerClass"], "c/d");
}

#[test]
fn cluster_ips_follow_the_cluster_ip() {
    let service = created(SERVICE, json!({"spec": {"clusterIP": "10.0.0.1"}}));
    assert_eq!(service["spec"]["clusterIPs"], json!(["10.0.0.1"]));
    let changed = updated(
        SERVICE,
        "",
        &service,
        json!({"spec": {"clusterIP": "10.0.0.2"}}),
    );
    assert_eq!(changed["spec"]["clusterIPs"], json!(["10.0.0.2"]));
    let omitted = json!({"spec": {"clusterIP": null, "clusterIPs": null}});
    assert_eq!(
        updated(SERVICE, "", &service, omitted)["spec"],
        service["spec"]
    );
}

#[test]
fn data_source_of_a_claim_is_copied_into_its_other_field() {
    const CLAIM: (&str, &str) = ("", "PersistentVolumeClaim");
    let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
    let other = json!({"kind": "Pod", "name": "a"});
    for (spec, source_after, reference_after) in [
        (
            json!({"dataSource": source}),
            source.clone(),
            source.clone(),
        ),
        (
            json!({"dataSourceRef": source}),
            source.clone(),
            source.clone(),
        ),
        // The older field ignores kinds that it doesn't know.
        (json!({"dataSource": other}), Value::Null, Value::Null),
        (
            json!({"dataSourceRef": other}),
            other.clone(),
            other.clone(),
        ),
    ] {
        let claim = created(CLAIM, json!({"spec": spec}));
        assert_eq!(claim["spec"]["dataSource"], source_after, "{spec}");
        assert_eq!(claim["spec"]["dataSourceRef"], reference_after, "{spec}");
    }
    let foreign = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "n"});
    let claim = created(CLAIM, json!({"spec": {"dataSourceRef": foreign}}));
    assert_eq!(claim["spec"]["dataSource"], Value::Null);
}

#[test]
fn deallocated_devices_lose_their_state() {
    const CLAIM: (&str, &str) = ("resource.k8s.io", "ResourceClaim");
    let device = |name: &str| json!({"driver": "d", "pool": "p", "device": name});
    let old = json!({"spec": {}, "status": {"allocation": {"devices": {"results": [device("a"), device("b")]}},
        "devices": [device("a"), device("b")]}});
    let fewer = json!({"status": {"allocation": {"devices": {"results": [device("b")]}}}});
    let fewer = updated(CLAIM, "status", &old, fewer);
    assert_eq!(fewer["status"]["devices"], json!([device("b")]));
    let none = updated(
        CLAIM,
        "status",
        &old,
        json!({"status": {"allocation": null}}),
    );
    assert_eq!(none["status"], json!({}));
}

#[test]
fn references_of_a_service_account_have_only_names() {
    let secrets = json!([{"name": "s", "namespace": "n", "kind": "Secret"}]);
    let account = created(("", "ServiceAccount"), json!({"secrets": secrets}));
    assert_eq!(account["secrets"], json!([{"name": "s"}]));
}

#[test]
fn new_gated_pod_shows_why_it_waits() {
    let pod = created(POD, json!({"spec": {"schedulingGates": [{"name": "a"}]}}));
    let condition = &pod["status"]["conditions"][0];
    assert_eq!(condition["type"], "PodScheduled");
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "SchedulingGated");
    let plain = created(POD, json!({"spec": {}}));
    assert_eq!(plain["status"].get("conditions"), None);
}

#[test]
fn status_write_of_an_old_kubelet_keeps_observed_generations() {
    let mut old = created(POD, json!({"spec": {}}));
    let known = json!({"observedGeneration": 3, "conditions": [
        {"type": "Ready", "status": "True", "observedGeneration": 3}, {"type": "x", "status": "True"}]});
    merge(&mut old, json!({"status": known}));
    let written = json!({"observedGeneration": null, "conditions": [
        {"type": "x", "status": "False"}, {"type": "Ready", "status": "False"}]});
    let new = updated(POD, "status", &old, json!({"status": written}));
    assert_eq!(new["status"]["observedGeneration"], 3);
    assert_eq!(
        new["status"]["conditions"][0].get("observedGeneration"),
        None
    );
    assert_eq!(new["status"]["conditions"][1]["observedGeneration"], 3);
}

#[test]
fn resize_leaves_changed_lists_of_containers_to_validation() {
    let pod = |names: &[&str]| {
        let all: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        created(POD, json!({"spec": {"containers": all}}))
    };
    let old = pod(&["a", "b"]);
    for names in [&["b", "a"][..], &["a"], &["a", "b", "c"]] {
        let change = json!({"spec": {"containers": pod(names)["spec"]["containers"]}});
        let new = updated(POD, "resize", &old, change);
        let found: Vec<&str> = new["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|c| c["name"].as_str())
            .collect();
        assert_eq!(found, names);
    }
}

#[test]
fn labels_of_a_job_s_author_are_left_to_validation() {
    let labels = json!({"job-name": "other"});
    let job = created(
        ("batch", "Job"),
        json!({"spec": {"template": {"metadata": {"labels": labels}}}}),
    );
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["job-name"], "other");
    assert_eq!(labels["batch.kubernetes.io/job-name"], "x");
}
