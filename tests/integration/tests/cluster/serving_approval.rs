//! The approval of kubelets' serving certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use integration_tests::{Components, Test, has_condition, wait_for};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use testkit_control_plane::{Caller, ControlPlane};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Creates a node whose status has `address`; returns its name and a client with its identity. Only
/// this node may have its serving certificate approved: other tests share the cluster.
async fn create_node(test: &Test, stem: &str, address: &str) -> (String, Caller) {
    let node = test.name(stem);
    let kubelet = register_node(test.plane(), &node, address).await;
    (node, kubelet)
}

async fn register_node(plane: &ControlPlane, node: &str, address: &str) -> Caller {
    let user = format!("system:node:{node}");
    let certificates = "certificates.k8s.io";
    let own = json!([{"apiGroups": [certificates], "verbs": ["create"],
        "resources": ["certificatesigningrequests/selfnodeserver"]}]);
    plane.grant(&user, "", own).await;
    bind_approver(plane).await;
    let kubelet = plane.kubelet(node);
    let object = json!({"metadata": {"name": node}});
    kubelet
        .post("/api/v1/nodes", &object)
        .await
        .expect_status(201);
    claim(&kubelet, node, address).await;
    kubelet
}

/// Binds the approver's rights, as `ironclad up` does.
async fn bind_approver(plane: &ControlPlane) {
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
        let path = format!("{rbac}/{resource}");
        let reply = plane.admin().post(&path, &object).await;
        assert!([201, 409].contains(&reply.status), "{}", reply.status);
    }
}

/// Adds an address to the status of the node, as its kubelet may.
async fn claim(kubelet: &Caller, node: &str, address: &str) {
    let addresses = json!([{"type": "InternalIP", "address": address}]);
    let patch = json!({"status": {"addresses": addresses}});
    let path = format!("/api/v1/nodes/{node}/status");
    kubelet.merge_patch(&path, &patch).await.expect_status(200);
}

async fn request(kubelet: &Caller, name: &str, node: &str, hosts: &[&str]) -> String {
    assert_eq!(send_request(kubelet, name, node, hosts).await, 201);
    format!("{REQUESTS}/{name}")
}

async fn send_request(kubelet: &Caller, name: &str, node: &str, hosts: &[&str]) -> u16 {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let names = &mut params.distinguished_name;
    names.push(DnType::OrganizationName, "system:nodes");
    names.push(DnType::CommonName, format!("system:node:{node}"));
    let hosts = hosts.iter().map(|text| match text.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName((*text).try_into().unwrap()),
    });
    params.subject_alt_names = hosts.collect();
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

/// Returns whether the status of a node has an address.
async fn has_address(test: &Test, node: &str, address: &str) -> bool {
    let node = test.read(&format!("/api/v1/nodes/{node}")).await;
    let addresses = node["status"]["addresses"].as_array().unwrap();
    addresses.iter().any(|found| found["address"] == address)
}

/// A node writes its own status. With a certificate for the address of another one, of a Service or
/// of the API server it could pose as that server.
#[tokio::test]
async fn certificate_of_an_address_that_others_have_is_not_approved() {
    let test = Test::start(Components::All).await;
    let (victim, victims_kubelet) = create_node(&test, "victim", "192.0.2.110").await;
    let service = test
        .read("/api/v1/namespaces/default/services/kubernetes")
        .await;
    let service = service["spec"]["clusterIP"].as_str().unwrap();
    let mut pending = Vec::new();
    for (number, address) in ["192.0.2.110", service, "127.0.0.1"].iter().enumerate() {
        let stem = format!("claims-{number}");
        let (node, kubelet) = create_node(&test, &stem, address).await;
        let path = request(&kubelet, &test.name(&stem), &node, &[address]).await;
        pending.push((node, *address, path));
    }
    // A name alone.
    let (named, kubelet) = create_node(&test, "named", "192.0.2.112").await;
    let path = request(&kubelet, &test.name("named"), &named, &[&named]).await;
    pending.push((named, "192.0.2.112", path));
    // The name of another node is refused at once.
    let (_, kubelet) = create_node(&test, "foreign", "192.0.2.113").await;
    let status = send_request(&kubelet, &test.name("foreign"), &victim, &["192.0.2.110"]).await;
    assert_eq!(status, 403);
    // The claim of another node does not delay the certificate of the one that had the address before.
    let own = test.name("own-address");
    let own = request(&victims_kubelet, &own, &victim, &["192.0.2.110"]).await;
    test.wait_until(&own, "issued", is_issued).await;
    // The approver examines requests in their order, so it has examined the earlier ones.
    for (node, address, path) in &pending {
        assert!(has_address(&test, node, address).await, "{node} {address}");
        let csr = test.read(path).await;
        assert!(csr["status"]["conditions"].is_null(), "{csr}");
    }
}

#[tokio::test]
async fn certificate_is_approved_when_the_address_gets_free() {
    let test = Test::start(Components::All).await;
    let (before, _) = create_node(&test, "before", "192.0.2.120").await;
    let (after, kubelet) = create_node(&test, "after", "192.0.2.120").await;
    let path = request(&kubelet, &test.name("after"), &after, &["192.0.2.120"]).await;
    let (other, kubelet) = create_node(&test, "other", "192.0.2.121").await;
    let own = request(&kubelet, &test.name("other"), &other, &["192.0.2.121"]).await;
    test.wait_until(&own, "issued", is_issued).await;
    let csr = test.read(&path).await;
    assert!(csr["status"]["conditions"].is_null(), "{csr}");
    let node = format!("/api/v1/nodes/{before}");
    test.admin.delete(&node).await.expect_success();
    test.wait_until(&path, "issued", is_issued).await;
}

/// The names in the API server's certificate are published in kubeadm-config, for instance that of
/// its machine.
#[tokio::test]
async fn certificate_of_a_name_of_the_api_server_is_not_approved() {
    let plane = ControlPlane::start().await;
    let text = json!({"apiServer": {"certSANs": ["server"]}}).to_string();
    let map =
        json!({"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": text}});
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    plane.admin().post(maps, &map).await.expect_status(201);
    // After the map was written, so that the approver knows it from the beginning.
    plane.start_controllers("kubelet-serving-approver,csrsigning");
    let (server, address) = ("server", "192.0.2.130");
    let kubelet = register_node(&plane, server, address).await;
    let path = request(&kubelet, "named", server, &[server, address]).await;
    let other = register_node(&plane, "other", "192.0.2.131").await;
    let own = request(&other, "own", "other", &["other", "192.0.2.131"]).await;
    let has_been_issued = async |path: &str| is_issued(&plane.admin().get(path).await.json());
    wait_for("the other node's certificate is issued", async || {
        has_been_issued(&own).await
    })
    .await;
    let csr = plane.admin().get(&path).await.json();
    assert!(csr["status"]["conditions"].is_null(), "{csr}");
    let map = format!("{maps}/kubeadm-config");
    // Not deleted: without the map no names of the API server are known, and none is approved.
    let without_names = json!({"data": {"ClusterConfiguration": "{}"}});
    let reply = plane.admin().merge_patch(&map, &without_names).await;
    reply.expect_status(200);
    wait_for("the free name's certificate is issued", async || {
        has_been_issued(&path).await
    })
    .await;
}
