//! Warnings, with upstream's texts.
#![allow(clippy::unwrap_used)]

use api_meta::Kind;
use api_validation::object_warnings;
use serde_json::{Value, json};

fn kind(group: &'static str, kind: &'static str) -> Kind<'static> {
    Kind {
        group,
        version: "v1",
        kind,
        namespaced: true,
    }
}

/// Asserts that each warning about a new object begins as expected.
fn check(of: Kind<'static>, object: &Value, expected: &[&str]) {
    let found = object_warnings(of, "", object, None);
    let matches =
        found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| f.starts_with(e));
    assert!(matches, "{object}: {found:#?}");
}

#[test]
fn services() {
    let service = kind("", "Service");
    for (spec, expected) in [
        (
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "sessionAffinity": "None"}),
            vec![],
        ),
        (
            json!({"type": "ClusterIP", "clusterIP": "010.0.0.1", "clusterIPs": ["010.0.0.1"]}),
            vec![
                "spec.clusterIPs[0]: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"",
            ],
        ),
        (
            json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "loadBalancerIP": "1.2.3.4", "externalIPs": ["1.2.3.4"], "sessionAffinity": "ClientIP"}),
            vec![
                "spec.loadBalancerIP is ignored for headless services",
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
            ],
        ),
        (
            json!({"type": "NodePort", "externalIPs": ["FD00::1"]}),
            vec![
                "spec.externalIPs[0]: IPv6 address \"FD00::1\" should be in RFC 5952 canonical format (\"fd00::1\")",
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            ],
        ),
        (
            json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]}),
            vec![
                "spec.loadBalancerSourceRanges[0]: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)",
            ],
        ),
        (
            json!({"type": "ExternalName", "externalName": "a", "externalIPs": ["1.2.3.4"]}),
            vec!["spec.externalIPs is ignored when spec.type is \"ExternalName\""],
        ),
        (
            json!({"type": "ClusterIP", "externalName": "a", "trafficDistribution": "PreferClose"}),
            vec![
                "spec.externalName is ignored when spec.type is not \"ExternalName\"",
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
            ],
        ),
    ] {
        check(service, &json!({"spec": spec}), &expected);
    }
    let annotated = json!({"metadata": {"annotations": {"service.kubernetes.io/topology-aware-hints": "Auto"}}, "spec": {}});
    check(
        service,
        &annotated,
        &[
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
        ],
    );
    let status =
        json!({"status": {"loadBalancer": {"ingress": [{"ip": "01.2.3.4"}, {"hostname": "a"}]}}});
    assert_eq!(
        object_warnings(service, "status", &status, None),
        [
            "status.loadBalancer.ingress[0]: non-standard IP address \"01.2.3.4\" is invalid: use \"1.2.3.4\""
        ]
    );
}

#[test]
fn endpoints_and_nodes() {
    let endpoints = json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "010.0.0.1"}]}]});
    check(
        kind("", "Endpoints"),
        &endpoints,
        &["subsets[0].notReadyAddresses[0].ip: non-standard IP address"],
    );
    let slice = kind("discovery.k8s.io", "EndpointSlice");
    let object = json!({"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}]});
    check(
        slice,
        &object,
        &["spec.addressType: FQDN endpoints are deprecated"],
    );
    assert!(object_warnings(slice, "", &object, Some(&object)).is_empty());
    let object = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["010.0.0.1"]}]});
    check(
        slice,
        &object,
        &["endpoints[0].addresses[0]: non-standard IP address"],
    );
    let node =
        json!({"spec": {"configSource": {}, "externalID": "x", "podCIDRs": ["10.0.0.1/24"]}});
    check(
        kind("", "Node"),
        &node,
        &[
            "spec.configSource: the feature is removed",
            "spec.externalID: this field is deprecated, and is unused by Kubernetes",
            "spec.podCIDRs[0]: CIDR value \"10.0.0.1/24\" is ambiguous",
        ],
    );
}

#[test]
fn ingresses_and_policies() {
    let ingress = kind("networking.k8s.io", "Ingress");
    let object =
        json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "a"}}, "spec": {}});
    check(
        ingress,
        &object,
        &[
            "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead",
        ],
    );
    assert!(object_warnings(ingress, "", &object, Some(&object)).is_empty());
    let block = json!({"ipBlock": {"cidr": "10.0.0.1/8", "except": ["010.1.0.0/16"]}});
    check(
        kind("networking.k8s.io", "NetworkPolicy"),
        &json!({"spec": {"egress": [{"to": [block]}]}}),
        &[
            "spec.egress[0].to[0].ipBlock.cidr: CIDR value \"10.0.0.1/8\" is ambiguous",
            "spec.egress[0].to[0].ipBlock.except[0]: non-standard CIDR value \"010.1.0.0/16\" is invalid: use \"10.1.0.0/16\"",
        ],
    );
}

#[test]
fn volumes_and_claims() {
    let terms =
        json!([{"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}]);
    let volume = json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "a"}},
        "spec": {"persistentVolumeReclaimPolicy": "Recycle", "rbd": {}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    check(
        kind("", "PersistentVolume"),
        &volume,
        &[
            "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \"storageClassName\" attribute instead",
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated.",
            "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
        ],
    );
    let claim = json!({"spec": {"resources": {"requests": {"storage": "500m"}}}});
    check(
        kind("", "PersistentVolumeClaim"),
        &claim,
        &[
            "spec.resources.requests[storage]: fractional byte value \"500m\" is invalid, must be an integer",
        ],
    );
    let class = json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "failure-domain.beta.kubernetes.io/zone", "values": ["a"]}]}]});
    check(
        kind("storage.k8s.io", "StorageClass"),
        &class,
        &[
            "allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
        ],
    );
    let capacity = json!({"nodeTopology": {"matchLabels": {"beta.kubernetes.io/arch": "a"}}});
    check(
        kind("storage.k8s.io", "CSIStorageCapacity"),
        &capacity,
        &["nodeTopology.matchLabels.beta.kubernetes.io/arch: deprecated since v1.14"],
    );
    let driver = kind("storage.k8s.io", "CSIDriver");
    let object = json!({"spec": {"tokenRequests": [{"audience": "a"}]}});
    check(
        driver,
        &object,
        &["spec.serviceAccountTokenInSecrets is unset; if supported"],
    );
    assert!(object_warnings(driver, "", &object, Some(&object)).is_empty());
}

#[test]
fn accounts_secrets_quotas_and_runtime_classes() {
    let account = kind("", "ServiceAccount");
    let object =
        json!({"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}});
    check(
        account,
        &object,
        &["metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+"],
    );
    assert!(object_warnings(account, "", &object, Some(&object)).is_empty());
    let secret = json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}});
    check(
        kind("", "Secret"),
        &secret,
        &["tls: failed to find any PEM data in certificate input"],
    );
    check(kind("", "Secret"), &json!({"type": "Opaque"}), &[]);
    let quota = json!({"spec": {"hard": {"cpu": "3", "limits.cpu": "2", "requests.memory": "1Gi", "limits.memory": "1Gi"}}});
    check(
        kind("", "ResourceQuota"),
        &quota,
        &["ResourceQuota cpu (3) should be less than limits.cpu (2)"],
    );
    let class = json!({"scheduling": {"nodeSelector": {"node-role.kubernetes.io/master": ""}}});
    check(
        kind("node.k8s.io", "RuntimeClass"),
        &class,
        &["scheduling.nodeSelector: use \"node-role.kubernetes.io/control-plane\" instead"],
    );
    check(kind("", "ConfigMap"), &json!({}), &[]);
}

#[test]
fn slices_and_configurations_of_admission() {
    let slice = kind("resource.k8s.io", "ResourceSlice");
    for (driver, expected) in [
        ("gpu.example.com", &[][..]),
        (
            "GPU.example.com",
            &[
                "spec.driver: driver names should be lowercase; \"GPU.example.com\" contains uppercase characters",
            ],
        ),
    ] {
        check(slice, &json!({"spec": {"driver": driver}}), expected);
    }
    let binding = kind(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
    );
    check(binding, &json!({"metadata": {"name": "b"}}), &[]);
    let object = json!({"metadata": {"name": "b.static.k8s.io"}});
    check(
        binding,
        &object,
        &[
            "metadata.name: names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot be managed via the API",
        ],
    );
    assert_eq!(
        object_warnings(binding, "", &object, Some(&object)).len(),
        1
    );
}
