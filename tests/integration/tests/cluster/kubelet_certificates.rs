//! Kubelets that request their certificates from the cluster.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use integration_tests::{Components, Http2Client, Test, wait_for};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair,
};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// Keeps the pods of other tests away.
const TAINT: &str = "--register-with-taints=example.com/test:NoSchedule";
const GROUP: &str = "system:bootstrappers:ironclad:default-node-token";
/// A group whose requests no controller approves.
const UNAPPROVED: &str = "system:bootstrappers:test:unapproved";

async fn start() -> Test {
    let test = Test::start(Components::All).await;
    let rbac = "rbac.authorization.k8s.io";
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    for (name, role, group) in [
        ("test:bootstrap", "system:node-bootstrapper", GROUP),
        ("test:unapproved", "system:node-bootstrapper", UNAPPROVED),
        ("test:approve", &format!("{requests}:nodeclient"), GROUP),
        (
            "test:renew",
            &format!("{requests}:selfnodeclient"),
            "system:nodes",
        ),
    ] {
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": group}]});
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        let status = test.admin.post(path, &binding).await.status;
        assert!([201, 409].contains(&status), "{name}: {status}");
    }
    test
}

/// Creates a token that authenticates in the group of joining nodes; returns the flag with its
/// kubeconfig.
async fn create_token(test: &Test, id: &str, expiration: &str) -> String {
    create_token_in(test, id, expiration, GROUP).await
}

async fn create_token_in(test: &Test, id: &str, expiration: &str, group: &str) -> String {
    let secret = json!({"metadata": {"name": format!("bootstrap-token-{id}")},
        "type": "bootstrap.kubernetes.io/token", "stringData": {"token-id": id,
            "token-secret": "0123456789abcdef", "auth-extra-groups": group,
            "usage-bootstrap-authentication": "true", "expiration": expiration}});
    test.create("/api/v1/namespaces/kube-system/secrets", &secret)
        .await;
    token_flag(test, &format!("{id}.0123456789abcdef"))
}

fn token_flag(test: &Test, token: &str) -> String {
    let file = test.plane().token_kubeconfig(token, token);
    format!("--bootstrap-kubeconfig={}", file.display())
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    })
}

/// Waits for the request of a node to a signer; returns its path.
async fn wait_for_request(test: &Test, node: &str, signer: &str) -> String {
    let matches = |item: &Value| {
        item["spec"]["signerName"] == signer
            && item["spec"]["username"] == format!("system:node:{node}")
    };
    let items = test
        .wait_until_items(REQUESTS, "requested", |items| items.iter().any(matches))
        .await;
    let found = items.iter().find(|item| matches(item)).unwrap();
    format!("{REQUESTS}/{}", found["metadata"]["name"].as_str().unwrap())
}

#[tokio::test]
async fn kubelet_with_a_token_gets_its_certificates_and_joins() {
    let test = start().await;
    let node = test.name("joined");
    let flag = create_token(&test, "joins0", "2999-01-01T00:00:00Z").await;
    let plane = test.plane();
    let flags = [&flag, TAINT, "--node-ip=127.0.0.1"];
    let address = plane.start_joining_kubelet(&node, &flags).await.unwrap();
    let path = format!("/api/v1/nodes/{node}");
    test.wait_until(&path, "ready", is_ready).await;
    let kubeconfig = std::fs::read_to_string(plane.joining_kubeconfig(&node)).unwrap();
    assert!(
        kubeconfig.contains("kubelet-client-current.pem"),
        "{kubeconfig}"
    );
    assert!(!kubeconfig.contains("0123456789abcdef"), "{kubeconfig}");
    // The serving certificate is self-signed until an administrator approves the request.
    let kubelet = plane.admin().at(address);
    let health = async || kubelet.send(Method::GET, "/healthz", &[], "").await;
    assert!(health().await.is_err());
    let request = wait_for_request(&test, &node, "kubernetes.io/kubelet-serving").await;
    let condition = json!({"type": "Approved", "status": "True", "reason": "Test"});
    let patch = json!({"status": {"conditions": [condition]}});
    let approval = format!("{request}/approval");
    let reply = test.admin.merge_patch(&approval, &patch).await;
    reply.expect_status(200);
    wait_for(
        "the kubelet serves with the issued certificate",
        async || health().await.is_ok_and(|reply| reply.status == 200),
    )
    .await;
}

#[tokio::test]
async fn kubelet_without_a_valid_token_does_not_start() {
    let test = start().await;
    let node = test.name("refused");
    let expired = create_token(&test, "ended0", "2001-01-01T00:00:00Z").await;
    let unknown = token_flag(&test, "absent.0123456789abcdef");
    for flag in [expired, unknown] {
        let error = test.plane().start_joining_kubelet(&node, &[&flag]).await;
        let error = format!("{:#}", error.unwrap_err());
        assert!(
            error.contains("the token in --bootstrap-kubeconfig is not valid"),
            "{error}"
        );
    }
    let path = format!("/api/v1/nodes/{node}");
    test.admin.get(&path).await.expect_status(404);
}

/// The kubelet must not wait for ever for an approval that would come too late.
#[tokio::test]
async fn kubelet_whose_token_is_deleted_before_the_approval_ends() {
    let test = start().await;
    let node = test.name("revoked");
    let flag = create_token_in(&test, "revoke", "2999-01-01T00:00:00Z", UNAPPROVED).await;
    let flags = [flag.as_str()];
    let start = test.plane().start_joining_kubelet(&node, &flags);
    let revoke = async {
        let is_own = |item: &Value| item["spec"]["username"] == "system:bootstrap:revoke";
        test.wait_until_items(REQUESTS, "requested", |items| items.iter().any(is_own))
            .await;
        let secret = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-revoke";
        test.admin.delete(secret).await.expect_status(200);
    };
    let (started, ()) = tokio::join!(start, revoke);
    let error = format!("{:#}", started.unwrap_err());
    assert!(
        error.contains("the token in --bootstrap-kubeconfig is not valid"),
        "{error}"
    );
}

/// Writes the kubeconfig of a node with a certificate that is near its end.
fn write_old_kubeconfig(test: &Test, node: &str) {
    let plane = test.plane();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let ca = read(plane.certificate("ca"));
    let ca_key = KeyPair::from_pem(&read(plane.key("ca"))).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&ca, ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let names = &mut params.distinguished_name;
    names.push(DnType::OrganizationName, "system:nodes");
    names.push(DnType::CommonName, format!("system:node:{node}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(99 * 60)).into();
    params.not_after = (now + Duration::from_secs(10 * 60)).into();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    let tree = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{}", plane.api_address()),
            "certificate-authority": plane.certificate("ca")}}],
        "users": [{"name": "u", "user": {"client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key.serialize_pem())}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    let path = plane.joining_kubeconfig(node);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, tree.to_string()).unwrap();
}

#[tokio::test]
async fn client_certificate_is_renewed_before_it_expires() {
    let test = start().await;
    let node = test.name("renewed");
    write_old_kubeconfig(&test, &node);
    let plane = test.plane();
    plane.start_joining_kubelet(&node, &[TAINT]).await.unwrap();
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let request = wait_for_request(&test, &node, signer).await;
    let issued = test
        .wait_until(&request, "issued", |csr| {
            csr["status"]["certificate"].is_string()
        })
        .await;
    let issued = STANDARD.decode(issued["status"]["certificate"].as_str().unwrap());
    let issued = String::from_utf8(issued.unwrap()).unwrap();
    let current = plane
        .folder()
        .join(&node)
        .join("pki/kubelet-client-current.pem");
    wait_for("the renewed certificate is the current one", async || {
        std::fs::read_to_string(&current).is_ok_and(|pem| pem.contains(issued.trim()))
    })
    .await;
    // The kubelet continues with it.
    test.wait_until(&format!("/api/v1/nodes/{node}"), "ready", is_ready)
        .await;
}

/// After the replacement of a CA, certificates are rejected long before they expire.
#[tokio::test]
async fn requested_renewal_replaces_a_certificate_that_is_not_due() {
    let test = start().await;
    let node = test.name("requested");
    let flag = create_token(&test, "asking", "2999-01-01T00:00:00Z").await;
    let plane = test.plane();
    let flags = [&flag, TAINT];
    plane.start_joining_kubelet(&node, &flags).await.unwrap();
    let pki = plane.folder().join(&node).join("pki");
    let read = || std::fs::read_to_string(pki.join("kubelet-client-current.pem")).unwrap();
    let former = read();
    let request = pki.join("kubelet-client-due");
    std::fs::write(&request, "").unwrap();
    wait_for("the kubelet removes the request", async || {
        !request.exists()
    })
    .await;
    assert_ne!(read(), former);
    test.wait_until(&format!("/api/v1/nodes/{node}"), "ready", is_ready)
        .await;
}

/// Requests a certificate as the holder of a token; returns its path if the request was accepted.
async fn request_as(
    holder: &Http2Client,
    name: &str,
    signer: &str,
    (group, user): (&str, &str),
    usage: &str,
) -> Result<String, u16> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let names = &mut params.distinguished_name;
    names.push(DnType::OrganizationName, group);
    names.push(DnType::CommonName, user);
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let object = json!({"metadata": {"name": name}, "spec": {"request": STANDARD.encode(request),
        "signerName": format!("kubernetes.io/{signer}"), "usages": ["digital signature", usage]}});
    match holder.post(REQUESTS, &object).await.status {
        201 => Ok(format!("{REQUESTS}/{name}")),
        status => Err(status),
    }
}

/// A leaked token is worth the client certificate of a kubelet, and no other.
#[tokio::test]
async fn holder_of_a_token_gets_only_the_client_certificate_of_a_kubelet() {
    let test = start().await;
    create_token(&test, "leaked", "2999-01-01T00:00:00Z").await;
    let token = test.plane().bearer("leaked.0123456789abcdef");
    let holder = test.connect(&token).await;
    let node = format!("system:node:{}", test.name("leaked"));
    let (client, kubelet) = ("kube-apiserver-client", "kube-apiserver-client-kubelet");
    let cases = [
        (client, ("devs", "admin"), "client auth", 201),
        (client, ("system:masters", "admin"), "client auth", 403),
        (client, ("system:nodes", node.as_str()), "client auth", 201),
        (
            kubelet,
            ("system:masters", node.as_str()),
            "client auth",
            201,
        ),
        (kubelet, ("system:nodes", "admin"), "client auth", 201),
        (kubelet, ("system:nodes", node.as_str()), "server auth", 201),
        (
            "kubelet-serving",
            ("system:nodes", node.as_str()),
            "server auth",
            201,
        ),
        (
            "legacy-unknown",
            ("system:masters", "admin"),
            "client auth",
            422,
        ),
    ];
    let mut pending = Vec::new();
    for (number, (signer, subject, usage, expected)) in cases.into_iter().enumerate() {
        let name = test.name(&format!("leaked-{number}"));
        let created = request_as(&holder, &name, signer, subject, usage).await;
        let status = *created.as_ref().err().unwrap_or(&201);
        assert_eq!(status, expected, "{signer} {subject:?} {usage}");
        pending.extend(created);
    }
    let name = test.name("leaked-node");
    let subject = ("system:nodes", node.as_str());
    let granted = request_as(&holder, &name, kubelet, subject, "client auth").await;
    test.wait_until(&granted.unwrap(), "issued", |csr| {
        csr["status"]["certificate"].is_string()
    })
    .await;
    // The approver has looked at the earlier ones by now.
    for path in &pending {
        let csr = test.read(path).await;
        assert!(csr["status"]["conditions"].is_null(), "{csr}");
        let condition = json!([{"type": "Approved", "status": "True", "reason": "Mine"}]);
        let patch = json!({"status": {"conditions": condition, "certificate": "UEVN"}});
        for subresource in ["/approval", "/status", ""] {
            let reply = holder
                .merge_patch(&format!("{path}{subresource}"), &patch)
                .await;
            assert_eq!(reply.status, 403, "{path}{subresource}");
        }
        assert_eq!(holder.delete(path).await.status, 403);
    }
    for path in [
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/secrets",
        "/api/v1/namespaces/kube-system/secrets/bootstrap-token-leaked",
        "/api/v1/namespaces/kube-public/configmaps/cluster-info",
    ] {
        assert_eq!(holder.get(path).await.status, 403, "{path}");
    }
}
