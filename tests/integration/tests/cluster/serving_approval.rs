//! The approval of kubelets' serving certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use integration_tests::{Components, Http2Client, Test, has_condition};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Creates a node whose status has `address`; returns its name and a client with its identity. Only
/// this node may have its serving certificate approved: other tests share the cluster.
async fn create_node(test: &Test, stem: &str, address: &str) -> (String, Http2Client) {
    let (node, plane) = (test.name(stem), test.plane());
    let user = format!("system:node:{node}");
    let certificates = "certificates.k8s.io";
    let own = json!([{"apiGroups": [certificates], "verbs": ["create"],
        "resources": ["certificatesigningrequests/selfnodeserver"]}]);
    plane.grant(&user, "", own).await;
    bind_approver(test).await;
    let kubelet = test.connect(&plane.kubelet(&node)).await;
    let object = json!({"metadata": {"name": node}});
    kubelet
        .post("/api/v1/nodes", &object)
        .await
        .expect_status(201);
    claim(&kubelet, &node, address).await;
    (node, kubelet)
}

/// Binds the approver's rights, as `ironclad up` does.
async fn bind_approver(test: &Test) {
    let (rbac, name) = (
        "/apis/rbac.authorization.k8s.io/v1",
        "test:serving-approver",
    );
    let certificates = "certificates.k8s.io";
    let rules = json!([
        {"apiGroups": [certificates], "verbs": ["update"], "resources": ["certificatesigningrequests/approval"]},
        {"apiGroups": [certificates], "verbs": ["approve"], "resources": ["signers"],
            "resourceNames": ["kubernetes.io/kubelet-serving"]}]);
    let group = "rbac.authorization.k8s.io";
    let account = json!({"kind": "ServiceAccount", "name": "kubelet-serving-approver", "namespace": "kube-system"});
    let binding = json!({"metadata": {"name": name}, "subjects": [account],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}});
    let role = json!({"metadata": {"name": name}, "rules": rules});
    for (resource, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let reply = test
            .admin
            .post(&format!("{rbac}/{resource}"), &object)
            .await;
        assert!([201, 409].contains(&reply.status), "{}", reply.status);
    }
}

/// Adds an address to the status of the node, as its kubelet may.
async fn claim(kubelet: &Http2Client, node: &str, address: &str) {
    let addresses = json!([{"type": "InternalIP", "address": address}]);
    let patch = json!({"status": {"addresses": addresses}});
    let path = format!("/api/v1/nodes/{node}/status");
    kubelet.merge_patch(&path, &patch).await.expect_status(200);
}

async fn request(kubelet: &Http2Client, name: &str, node: &str, addresses: &[&str]) -> String {
    assert_eq!(send_request(kubelet, name, node, addresses).await, 201);
    format!("{REQUESTS}/{name}")
}

async fn send_request(kubelet: &Http2Client, name: &str, node: &str, addresses: &[&str]) -> u16 {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let names = &mut params.distinguished_name;
    names.push(DnType::OrganizationName, "system:nodes");
    names.push(DnType::CommonName, format!("system:node:{node}"));
    let addresses = addresses
        .iter()
        .map(|text| SanType::IpAddress(text.parse().unwrap()));
    params.subject_alt_names = addresses.collect();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let object = json!({"metadata": {"name": name}, "spec": {"request": STANDARD.encode(pem),
        "signerName": "kubernetes.io/kubelet-serving", "usages": ["digital signature", "server auth"]}});
    kubelet.post(REQUESTS, &object).await.status
}

fn is_issued(csr: &Value) -> bool {
    has_condition(csr, "Approved") && csr["status"]["certificate"].is_string()
}

#[tokio::test]
async fn certificate_of_a_nodes_own_address_is_approved() {
    let test = Test::start(Components::All).await;
    let (node, kubelet) = create_node(&test, "serving", "192.0.2.101").await;
    let path = request(&kubelet, &test.name("own"), &node, &["192.0.2.101"]).await;
    test.wait_until(&path, "issued", is_issued).await;
    // A request that comes before the address is in the status waits for it.
    let early = request(&kubelet, &test.name("early"), &node, &["192.0.2.102"]).await;
    claim(&kubelet, &node, "192.0.2.102").await;
    test.wait_until(&early, "issued", is_issued).await;
}

/// A node writes its own status. With a certificate for the address of another one, of a Service or
/// of the API server it could pose as that server.
#[tokio::test]
async fn certificate_of_an_address_that_others_have_is_not_approved() {
    let test = Test::start(Components::All).await;
    let (victim, _) = create_node(&test, "victim", "192.0.2.110").await;
    let (node, kubelet) = create_node(&test, "claims", "192.0.2.111").await;
    let service = test
        .read("/api/v1/namespaces/default/services/kubernetes")
        .await;
    let service = service["spec"]["clusterIP"].as_str().unwrap();
    let mut pending = Vec::new();
    for (number, address) in ["192.0.2.110", service, "127.0.0.1"].iter().enumerate() {
        claim(&kubelet, &node, address).await;
        let name = test.name(&format!("claim-{number}"));
        pending.push(request(&kubelet, &name, &node, &[address]).await);
    }
    // The name of another node is refused at once.
    let foreign = test.name("foreign");
    let status = send_request(&kubelet, &foreign, &victim, &["192.0.2.110"]).await;
    assert_eq!(status, 403);
    claim(&kubelet, &node, "192.0.2.111").await;
    let own = request(&kubelet, &test.name("after"), &node, &["192.0.2.111"]).await;
    test.wait_until(&own, "issued", is_issued).await;
    // The approver has looked at the earlier ones by now.
    for path in &pending {
        let csr = test.read(path).await;
        assert!(csr["status"]["conditions"].is_null(), "{csr}");
    }
}
