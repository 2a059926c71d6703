//! Discovery of a cluster by a joining machine, and what an attacker between the two can do.

use api_bootstrap::{BootstrapToken, sign_content};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use operator_discovery::{Cluster, Endpoint, Error, Trust, discover_cluster, pin_certificates};
use serde_json::json;
use std::net::SocketAddr;
use testkit_control_plane::ControlPlane;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

fn token() -> BootstrapToken {
    "abcdef.0123456789abcdef".parse().unwrap()
}

fn read_ca(plane: &ControlPlane) -> String {
    std::fs::read_to_string(plane.certificate("ca")).unwrap()
}

fn kubeconfig(plane: &ControlPlane, ca: &str) -> String {
    let (server, ca) = (plane.api_address(), STANDARD.encode(ca));
    format!(
        "clusters:\n- name: \"\"\n  cluster:\n    certificate-authority-data: {ca}\n    server: https://{server}\n"
    )
}

/// Starts a cluster whose cluster-info is public.
async fn start() -> ControlPlane {
    let plane = ControlPlane::start().await;
    let rule = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"],
        "resourceNames": ["cluster-info"]}]);
    plane.grant("system:anonymous", "kube-public", rule).await;
    plane
}

/// Publishes a cluster-info with the signature of `signer`.
async fn publish(plane: &ControlPlane, text: &str, signer: &BootstrapToken) {
    let signature = format!("jws-kubeconfig-{}", signer.id());
    let map = json!({"metadata": {"name": "cluster-info"},
        "data": {"kubeconfig": text, signature: sign_content(text, signer)}});
    let path = "/api/v1/namespaces/kube-public/configmaps";
    plane.admin().post(path, &map).await.expect_status(201);
}

/// Discovers the cluster at the address of `plane`.
async fn discover(plane: &ControlPlane, trust: Trust) -> Result<Cluster, Error> {
    let endpoint: Endpoint = plane.api_address().to_string().parse().unwrap();
    discover_cluster(&endpoint, &token(), &trust, "test").await
}

fn pins_of(ca: &str) -> Trust {
    Trust::Pins(pin_certificates(ca.as_bytes()))
}

#[tokio::test]
async fn cluster_is_discovered_with_its_token_and_the_key_of_its_ca() {
    let plane = start().await;
    let ca = read_ca(&plane);
    publish(&plane, &kubeconfig(&plane, &ca), &token()).await;
    for trust in [pins_of(&ca), Trust::TokenOnly] {
        let found = discover(&plane, trust).await.unwrap();
        assert_eq!(found.server.to_string(), plane.api_address().to_string());
        assert_eq!(found.ca, ca);
    }
}

#[tokio::test]
async fn other_key_or_secret_is_rejected() {
    let (plane, other) = (start().await, start().await);
    let ca = read_ca(&plane);
    publish(&plane, &kubeconfig(&plane, &ca), &token()).await;
    let error = discover(&plane, pins_of(&read_ca(&other))).await;
    assert!(matches!(error, Err(Error::NotPinned { .. })), "{error:?}");
    let guessed = "abcdef.fedcba9876543210".parse().unwrap();
    publish(&other, &kubeconfig(&other, &read_ca(&other)), &guessed).await;
    let error = discover(&other, Trust::TokenOnly).await;
    assert!(matches!(error, Err(Error::Signature { .. })), "{error:?}");
}

/// A machine in between has the public cluster-info, and its own key.
#[tokio::test]
async fn replayed_cluster_info_of_another_server_is_rejected() {
    let (plane, attacker) = (start().await, start().await);
    let ca = read_ca(&plane);
    publish(&attacker, &kubeconfig(&plane, &ca), &token()).await;
    let error = discover(&attacker, pins_of(&ca)).await;
    assert!(matches!(error, Err(Error::Untrusted { .. })), "{error:?}");
}

/// Forwards the first connection to one server, and all later ones to another.
async fn intercept(first: SocketAddr, later: SocketAddr) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut proxy = JoinSet::new();
    proxy.spawn(async move {
        let mut connections = JoinSet::new();
        let mut target = first;
        while let Ok((mut client, _)) = listener.accept().await {
            let to = std::mem::replace(&mut target, later);
            connections.spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, proxy)
}

/// A machine in between keeps a cluster-info that the token has signed, and shows it once the address
/// of the server has changed.
#[tokio::test]
async fn older_signed_cluster_info_is_rejected() {
    let (plane, attacker) = (start().await, start().await);
    let ca = read_ca(&plane);
    publish(&plane, &kubeconfig(&plane, &ca), &token()).await;
    let older = kubeconfig(&attacker, &ca);
    publish(&attacker, &older, &token()).await;
    let (address, _proxy) = intercept(attacker.api_address(), plane.api_address()).await;
    let endpoint: Endpoint = address.to_string().parse().unwrap();
    let error = discover_cluster(&endpoint, &token(), &pins_of(&ca), "test").await;
    assert!(matches!(error, Err(Error::Changed)), "{error:?}");
}

/// A holder of the token can sign: the pinned CA and an own one, for an own server.
#[tokio::test]
async fn bundle_with_the_pinned_ca_and_another_one_trusts_the_pinned_one_only() {
    let (plane, attacker) = (start().await, start().await);
    let ca = read_ca(&plane);
    for bundle in [
        format!("{ca}{}", read_ca(&attacker)),
        format!("{}{ca}", read_ca(&attacker)),
    ] {
        let text = kubeconfig(&attacker, &bundle);
        let map = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
        attacker.admin().delete(map).await;
        publish(&attacker, &text, &token()).await;
        let error = discover(&attacker, pins_of(&ca)).await;
        assert!(matches!(error, Err(Error::Untrusted { .. })), "{error:?}");
    }
}
