//! Attacks with the content of objects, by users and nodes that may write them.

#![allow(clippy::unwrap_used, missing_docs)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit_control_plane::{Caller, ControlPlane, Options};

/// Subject: CN=first, CN=second, O=group-a, O=group-b.
const HARMLESS: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIIBATCBpwIBADBFMQ4wDAYDVQQDDAVmaXJzdDEPMA0GA1UEAwwGc2Vjb25kMRAw
DgYDVQQKDAdncm91cC1hMRAwDgYDVQQKDAdncm91cC1iMFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAEQJKImVzyvscbys2/oL0aHx5yQsiV1SGDW2JT+bR7aPN1nl+F
4sb2gmFHmi6h7mKPFb449HOyeG2uZ+hQfrPgq6AAMAoGCCqGSM49BAMCA0kAMEYC
IQDWVHcg2o86m9+EGi1k0VqQwl/S1bl63KOvNjGhke67GAIhAItUHzUfOzP0x2tO
6kdPNdZX7wn1v5bxVtZ+eF50ew1I
-----END CERTIFICATE REQUEST-----
";
/// Subject: CN=user; O=group-a and O=system:masters in one relative distinguished name.
const MASTERS: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIHzMIGaAgEAMDgxDTALBgNVBAMMBHVzZXIxJzAOBgNVBAoMB2dyb3VwLWEwFQYD
VQQKDA5zeXN0ZW06bWFzdGVyczBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABECS
iJlc8r7HG8rNv6C9Gh8eckLIldUhg1tiU/m0e2jzdZ5fheLG9oJhR5ouoe5ijxW+
OPRzsnhtrmfoUH6z4KugADAKBggqhkjOPQQDAgNIADBFAiEA5R5X3GT1rTFNHCuT
sJVPQ4533sjRlHmxP6+kSPVkXLgCIFVrWKN6lqrYnZZoIjSEoHv5/wIT37BfMLoW
HYEj4D05
-----END CERTIFICATE REQUEST-----
";

async fn create_namespace(admin: &Caller, name: &str, labels: Value) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    admin
        .post("/api/v1/namespaces", &namespace)
        .await
        .expect_success();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    admin
        .post(
            &format!("/api/v1/namespaces/{name}/serviceaccounts"),
            &account,
        )
        .await;
}

fn signing_request(name: &str, signer: &str, pem: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"]}})
}

/// Ten operations that double the depth of the object crashed the server by a stack overflow.
#[tokio::test(flavor = "multi_thread")]
async fn json_patch_cannot_nest_an_object_without_bound() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}});
    admin
        .post("/api/v1/namespaces/default/configmaps", &object)
        .await
        .expect_success();
    let nested = (0..100).fold(json!(1), |value, _| json!({"a": value}));
    let mut patch = vec![json!({"op": "add", "path": "/x", "value": nested})];
    patch.extend((0..14).map(
        |n| json!({"op": "copy", "from": "/x", "path": format!("/x{}", "/a".repeat(100 << n))}),
    ));
    let path = "/api/v1/namespaces/default/configmaps/c?dryRun=All";
    let reply = admin.json_patch(path, &json!(patch)).await;
    assert_eq!(reply.status, 413, "{}", reply.text());
    admin
        .get("/api/v1/namespaces/default/configmaps/c")
        .await
        .expect_success();
}

/// Each error of an owner reference shows the whole list: a request of 3 MiB had a response of some
/// gigabytes, and took minutes of a processor.
#[tokio::test(flavor = "multi_thread")]
async fn errors_of_an_object_do_not_multiply_its_size() {
    let plane = ControlPlane::start().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]);
    plane.grant("mallory", "default", rules).await;
    let owners: Vec<Value> = (0..2_000)
        .map(|n| {
            json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": format!("u{n}"),
                "controller": true})
        })
        .collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "ownerReferences": owners}});
    let size = object.to_string().len();
    let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let reply = plane.user("mallory", None).post(path, &object).await;
    assert_eq!(reply.status, 422);
    let found = reply.text().len();
    assert!(found < 10 * size, "{found} bytes for {size}");
}

/// Each served version is looked up among the decodable ones, and its error shows all of them: a
/// request of 3 MiB took minutes, and its response had some hundred megabytes.
#[tokio::test(flavor = "multi_thread")]
async fn versions_of_a_storage_version_are_validated_in_linear_time() {
    let options = Options {
        api_server: vec!["--runtime-config=internal.apiserver.k8s.io/v1alpha1=true".to_owned()],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    let rules = json!([{"apiGroups": ["internal.apiserver.k8s.io"],
        "resources": ["storageversions/status"], "verbs": ["update"]}]);
    plane.grant("mallory", "", rules).await;
    let versions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let mut object = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1",
        "kind": "StorageVersion", "metadata": {"name": "apps.deployments"}, "spec": {}});
    let admin = plane.admin();
    admin.post(versions, &object).await.expect_success();
    let many = |prefix: &str, count: usize| -> Vec<String> {
        (0..count).map(|n| format!("{prefix}{n}")).collect()
    };
    object["status"] = json!({"storageVersions": [{"apiServerID": "a", "encodingVersion": "v1",
        "decodableVersions": many("v", 130_000), "servedVersions": many("w", 190_000)}]});
    let size = object.to_string().len();
    assert!((2_800_000..3 * 1024 * 1024).contains(&size), "{size}");
    let path = format!("{versions}/apps.deployments/status?dryRun=All");
    let reply = plane.user("mallory", None).put(&path, &object).await;
    assert_eq!(reply.status, 422, "{}", reply.text());
    let found = reply.body.len();
    assert!(found < 1024 * 1024, "{found} bytes");
}

/// The owners of fields are decoded, merged and sorted with each write, and a client may send them.
#[tokio::test(flavor = "multi_thread")]
async fn managed_fields_of_a_request_take_bounded_time_and_memory() {
    let plane = ControlPlane::start().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"],
        "verbs": ["get", "update", "patch"]}]);
    plane.grant("mallory", "default", rules).await;
    let mallory = plane.user("mallory", None);
    let path = "/api/v1/namespaces/default/configmaps/c";
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    plane.admin().post(maps, &object).await.expect_success();

    let entry = |manager: String, operation: &str, version: String, fields: &Value| {
        json!({"manager": manager, "operation": operation, "apiVersion": version,
            "fieldsType": "FieldsV1", "fieldsV1": fields, "time": "2026-01-02T03:04:05Z"})
    };
    let one = |fields: Value| vec![entry("m".into(), "Update", "v1".into(), &fields)];
    let own = json!({"f:data": {"f:k": {}}});
    let nested = (0..100).fold(json!({}), |inner, _| json!({"f:a": inner, "f:b": {}}));
    let leaves = |count: usize| -> serde_json::Map<String, Value> {
        (0..count).map(|n| (format!("f:k{n}"), json!({}))).collect()
    };
    let long = format!("k:{{\"name\":\"{}\"}}", "n".repeat(1_000_000));
    let cases: [(&str, Vec<Value>); 7] = [
        (
            "appliers",
            (0..14_000)
                .map(|n| entry(format!("m{n}"), "Apply", "v1".into(), &own))
                .collect(),
        ),
        (
            "versions",
            (0..14_000)
                .map(|n| entry("m".into(), "Update", format!("g/v{n}"), &own))
                .collect(),
        ),
        (
            "depth",
            (0..1_000)
                .map(|n| entry(format!("m{n}"), "Update", "v1".into(), &nested))
                .collect(),
        ),
        ("width", one(json!({"f:data": leaves(150_000)}))),
        (
            "a long key",
            one(json!({"f:data": {long: leaves(100_000)}})),
        ),
        (
            "a long manager with invalid characters",
            vec![entry("\u{a0}".repeat(20_000), "Update", "v1".into(), &own)],
        ),
        (
            "malformed steps",
            one(json!({"f:data": {"k:{": leaves(100_000)}})),
        ),
    ];
    for (case, entries) in cases {
        let mut object = object.clone();
        object["metadata"]["managedFields"] = entries.into();
        let size = object.to_string().len();
        assert!(size < 3 * 1024 * 1024, "{case}: {size} bytes");
        let patch = json!({"metadata": object["metadata"]});
        // Each request has 30 s.
        for reply in [
            mallory.put(&format!("{path}?dryRun=All"), &object).await,
            mallory
                .merge_patch(&format!("{path}?dryRun=All"), &patch)
                .await,
        ] {
            let is_expected = reply.status == 200 || (400..500).contains(&reply.status);
            assert!(
                is_expected,
                "{case}: {} {:.1000}",
                reply.status,
                reply.text()
            );
            let found = reply.body.len();
            assert!(found < 2 * size, "{case}: {found} bytes for {size}");
        }
    }
    // All of them own the field that an apply changes.
    let appliers = (0..5_000).map(|n| entry(format!("m{n}"), "Apply", "v1".into(), &own));
    let mut stored = object.clone();
    stored["metadata"]["managedFields"] = appliers.collect();
    mallory.put(path, &stored).await.expect_success();
    let mut intent = object;
    intent["data"]["k"] = json!("w");
    let reply = mallory
        .apply(&format!("{path}?fieldManager=applier"), &intent)
        .await;
    assert_eq!(reply.status, 409, "{:.1000}", reply.text());
    let (found, size) = (reply.body.len(), stored.to_string().len());
    assert!(found < 2 * size, "{found} bytes for {size}");
    mallory.get(path).await.expect_success();
}

/// Each conflict would name the version that the owner uses, once for each of its fields.
#[tokio::test(flavor = "multi_thread")]
async fn owner_of_a_long_version_is_not_stored() {
    let plane = ControlPlane::start().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"],
        "verbs": ["create", "patch"]}]);
    plane.grant("mallory", "default", rules).await;
    let mallory = plane.user("mallory", None);
    let data = |value: &str| -> serde_json::Map<String, Value> {
        (0..500).map(|n| (format!("k{n}"), json!(value))).collect()
    };
    let fields: serde_json::Map<_, _> = (0..500).map(|n| (format!("f:k{n}"), json!({}))).collect();
    let owner = json!({"manager": "m", "operation": "Update", "apiVersion": "v".repeat(50_000),
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": fields}});
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
        "data": data("v")});
    let maps = "/api/v1/namespaces/default/configmaps";
    mallory.post(maps, &object).await.expect_success();
    // The writer of a new object owns its fields, but an update may change the owners.
    let path = format!("{maps}/c");
    let owners = json!({"metadata": {"managedFields": [owner]}});
    let stored = mallory.merge_patch(&path, &owners).await.expect_success();
    assert!(stored.body.len() < 50_000, "{}", stored.body.len());
    object["data"] = data("w").into();
    let apply = format!("{path}?fieldManager=applier");
    let reply = mallory.apply(&apply, &object).await;
    assert_eq!(reply.status, 409, "{:.1000}", reply.text());
    assert!(reply.body.len() < 500 * 200, "{} bytes", reply.body.len());
}

/// A client that may write roles in a namespace must not exhaust the server: the permissions of a
/// role are compared one by one, and a role of some kilobytes may have billions.
#[tokio::test(flavor = "multi_thread")]
async fn role_with_very_many_combinations_is_refused() {
    let plane = ControlPlane::start().await;
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"],
        "verbs": ["create"]}]);
    plane.grant("mallory", "default", rules).await;
    let many = |prefix: &str| -> Vec<String> { (0..30).map(|n| format!("{prefix}{n}")).collect() };
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "r"}, "rules": [{"verbs": many("v"), "apiGroups": many("g"),
            "resources": many("r"), "resourceNames": many("n")}]});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles?dryRun=All";
    let reply = plane.user("mallory", None).post(path, &role).await;
    assert_eq!(reply.status, 403);
    let text = reply.text();
    assert!(
        text.contains("combinations") && text.len() < 10_000,
        "{text:.1000}"
    );
}

/// A user who may label ClusterRoles must not be able to aggregate a role's rules into roles of
/// other users.
#[tokio::test(flavor = "multi_thread")]
async fn aggregation_label_cannot_widen_another_role() {
    let plane = ControlPlane::start().await;
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
        "verbs": ["get", "update", "patch"]}]);
    plane.grant("mallory", "", rules).await;
    let mallory = plane.user("mallory", None);
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin";
    let label =
        json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    mallory.merge_patch(path, &label).await.expect_status(403);
    let finalizer = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    mallory.merge_patch(path, &finalizer).await.expect_success();
}

/// The class of CVE-2020-8555: endpoints must not point to loopback or to the metadata service, in
/// any spelling.
#[tokio::test(flavor = "multi_thread")]
async fn mapped_addresses_do_not_pass_the_address_filters() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    for (n, address) in [
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "127.0.0.1",
        "169.254.169.254",
    ]
    .iter()
    .enumerate()
    {
        let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": format!("e{n}")},
            "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 2379}]}]});
        admin
            .post("/api/v1/namespaces/default/endpoints", &endpoints)
            .await
            .expect_status(422);
        let family = if address.contains(':') {
            "IPv6"
        } else {
            "IPv4"
        };
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("s{n}")}, "addressType": family, "endpoints": [{"addresses": [address]}]});
        admin
            .post(
                "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
                &slice,
            )
            .await
            .expect_status(422);
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{n}")},
            "spec": {"ports": [{"port": 80}], "externalIPs": [address]}});
        admin
            .post("/api/v1/namespaces/default/services", &service)
            .await
            .expect_status(422);
    }
}

/// The signed request must be the approved one: all parsers read a request in the same way.
#[tokio::test(flavor = "multi_thread")]
async fn signing_request_with_a_hidden_block_is_refused() {
    const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let create = |name: &str, signer: &str, pem: &str| {
        let request = signing_request(name, signer, pem);
        let admin = &admin;
        async move { admin.post(path, &request).await.status }
    };
    assert_eq!(create("plain", CLIENT, HARMLESS).await, 201);
    assert_eq!(
        create("hidden", CLIENT, &format!(" {MASTERS}{HARMLESS}")).await,
        422
    );
    assert_eq!(
        create("behind", CLIENT, &format!("{HARMLESS}{MASTERS}")).await,
        422
    );
    assert_eq!(create("masters", CLIENT, MASTERS).await, 403);
    assert_eq!(
        create("legacy", "kubernetes.io/legacy-unknown", MASTERS).await,
        422
    );
    assert_eq!(create("a\u{1b}[2J", CLIENT, HARMLESS).await, 422);
}

/// Returns a pod that unmasks /proc in its container.
fn unmasked_pod(host_users: Value) -> Value {
    let context = json!({"procMount": "Unmasked", "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"}});
    let container = json!({"name": "c", "image": "example.com/c:1", "securityContext": context});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"},
        "spec": {"hostUsers": host_users, "containers": [container]}})
}

/// Root with an unmasked /proc and no user namespace is root on the node.
#[tokio::test(flavor = "multi_thread")]
async fn unmasked_proc_passes_pod_security_in_a_user_namespace_only() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    // With the status of a pod with a user namespace, and of one without. Validation comes before
    // Pod Security.
    for (level, version, with, without) in [
        ("privileged", "latest", 201, 422),
        ("baseline", "latest", 201, 422),
        ("baseline", "v1.35", 201, 422),
        ("baseline", "v1.34", 403, 422),
        ("restricted", "latest", 403, 422),
    ] {
        let namespace = format!("{level}-{}", version.replace('.', "-"));
        let labels = json!({"pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/enforce-version": version});
        create_namespace(&admin, &namespace, labels).await;
        for query in ["", "?dryRun=All"] {
            let path = format!("/api/v1/namespaces/{namespace}/pods{query}");
            for (host_users, expect) in [
                (json!(false), with),
                (json!(true), without),
                (Value::Null, without),
            ] {
                let reply = admin.post(&path, &unmasked_pod(host_users.clone())).await;
                let text = reply.text();
                assert_eq!(reply.status, expect, "{path} {host_users}: {text}");
                let warnings = reply.warnings();
                let is_warned = warnings.iter().any(|warning| warning.contains("hostUsers"));
                assert_eq!(is_warned, expect == 201, "{path} {warnings:?}");
            }
        }
    }
}

/// No later write of a pod unmasks /proc without a user namespace.
#[tokio::test(flavor = "multi_thread")]
async fn unmasked_proc_does_not_come_with_an_update() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let enforce = |level: &str| json!({"pod-security.kubernetes.io/enforce": level});
    create_namespace(&admin, "guarded", enforce("baseline")).await;
    let pods = "/api/v1/namespaces/guarded/pods";
    let create = async |host_users: Value, proc_mount: &str| {
        let mut pod = unmasked_pod(host_users);
        pod["spec"]["containers"][0]["securityContext"]["procMount"] = json!(proc_mount);
        let created = admin.post(pods, &pod).await.expect_success().json();
        format!("{pods}/{}", created["metadata"]["name"].as_str().unwrap())
    };
    let plain = create(Value::Null, "Default").await;
    let isolated = create(json!(false), "Unmasked").await;
    let unmasked = json!({"name": "d", "image": "example.com/d:1",
        "securityContext": {"procMount": "Unmasked"}});
    let proc_mount = "/spec/containers/0/securityContext/procMount";
    for (path, field, value) in [
        (plain.clone(), proc_mount, json!("Unmasked")),
        (plain.clone(), "/spec/hostUsers", json!(false)),
        (isolated.clone(), "/spec/hostUsers", json!(true)),
        (isolated.clone(), "/spec/hostUsers", Value::Null),
        (
            format!("{plain}/ephemeralcontainers"),
            "/spec/ephemeralContainers",
            json!([unmasked]),
        ),
    ] {
        let patch = json!([{"op": "add", "path": field, "value": value}]);
        let reply = admin.json_patch(&path, &patch).await;
        assert_eq!(reply.status, 422, "{path} {patch}: {}", reply.text());
    }
    // A resize takes over resources only.
    let patch = json!([{"op": "add", "path": proc_mount, "value": "Unmasked"}]);
    let resized = admin.json_patch(&format!("{plain}/resize"), &patch).await;
    let resized = resized.expect_success().json();
    assert_eq!(resized.pointer(proc_mount), Some(&json!("Default")));
    let debug = json!({"spec": {"ephemeralContainers": [unmasked]}});
    let path = format!("{isolated}/ephemeralcontainers");
    admin.merge_patch(&path, &debug).await.expect_success();
    // A stricter level holds for what is added to an admitted pod.
    let labels = json!({"metadata": {"labels": enforce("restricted")}});
    admin
        .merge_patch("/api/v1/namespaces/guarded", &labels)
        .await
        .expect_success();
    let mut second = unmasked.clone();
    second["name"] = json!("e");
    let debug = json!({"spec": {"ephemeralContainers": [unmasked, second]}});
    let reply = admin.merge_patch(&path, &debug).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
}

/// A user who installs a policy gets a warning that nothing enforces it.
#[tokio::test(flavor = "multi_thread")]
async fn policy_is_answered_with_a_warning_unless_it_is_enforced() {
    for flags in [&[][..], &["--network-policies-enforced".to_owned()]] {
        let plane = ControlPlane::start_with(Options {
            api_server: flags.to_vec(),
            ..Options::default()
        });
        let warnings = warnings_for_a_policy(&plane.await).await;
        let has_warning = warnings.iter().any(|text| text.contains("not enforced"));
        assert_eq!(has_warning, flags.is_empty(), "{flags:?} {warnings:?}");
    }
}

async fn warnings_for_a_policy(plane: &ControlPlane) -> Vec<String> {
    let admin = plane.admin();
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let reply = admin.post(path, &policy).await.expect_success();
    reply.warnings()
}

/// CVE-2025-4563 and its kind: a node must not grant itself access, nor change objects of other
/// nodes.
#[tokio::test(flavor = "multi_thread")]
async fn node_stays_within_what_is_its_own() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    create_namespace(&admin, "tenant", json!({})).await;
    for node in ["one", "two"] {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        admin.post("/api/v1/nodes", &object).await.expect_success();
        let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
            "spec": {"driver": "d.example.com", "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}});
        admin
            .post("/apis/resource.k8s.io/v1/resourceslices", &slice)
            .await
            .expect_success();
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": ["example.com/hold"]},
        "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "example.com/c:1"}],
            "tolerations": [{"operator": "Exists"}]}});
    let pod = admin
        .post("/api/v1/namespaces/tenant/pods", &pod)
        .await
        .expect_success()
        .json();
    let one = plane.kubelet("one");

    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    one.delete(slices).await.expect_status(403);
    one.delete(&format!("{slices}/two"))
        .await
        .expect_status(403);
    one.delete(&format!("{slices}?fieldSelector=spec.nodeName=two"))
        .await
        .expect_status(403);
    one.delete(&format!("{slices}?fieldSelector=spec.nodeName=one"))
        .await
        .expect_success();
    admin.get(&format!("{slices}/two")).await.expect_success();
    admin.get(&format!("{slices}/one")).await.expect_status(404);

    let status = "/api/v1/namespaces/tenant/pods/p/status";
    let claims = json!({"status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "secret"}]}});
    one.merge_patch(status, &claims).await.expect_status(403);
    one.merge_patch(status, &json!({"metadata": {"finalizers": null}}))
        .await
        .expect_status(403);
    one.merge_patch(status, &json!({"status": {"phase": "Running"}}))
        .await
        .expect_success();

    let token = |audiences: Value| {
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": audiences,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]}}})
    };
    let path = "/api/v1/namespaces/tenant/serviceaccounts/default/token";
    one.post(path, &token(json!(["vault.example.com"])))
        .await
        .expect_status(403);
    one.post(path, &token(json!([]))).await.expect_success();
}
